//! One way to misbehave, and the names of the usual ones.
//!
//! A model called `stub-KIND[-afterSECONDS][xTIMES]` misbehaves without any script: `stub-429x2`
//! answers 429 to each question twice and then properly, `stub-503-after1` always.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// How long `hang` holds a call, longer than any client waits.
const HANG_MS: u64 = 3_600_000;

/// A step of a script. Every field is optional; an empty step is a proper answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// HTTP status; without a body, 400 and above get an error body.
    pub status: Option<u16>,
    /// `Retry-After`: a number or a text.
    pub retry_after: Option<Value>,
    /// More headers.
    pub headers: BTreeMap<String, String>,
    /// Body in place of the answer: a text is sent as it is, anything else as JSON.
    #[serde(deserialize_with = "given")]
    pub body: Option<Value>,
    /// In place of `application/json`.
    pub content_type: Option<String>,
    /// `error.code` of an error body.
    pub code: Option<String>,
    /// Wait this long before answering.
    pub hang_ms: u64,
    /// Break the connection after this many bytes of the body.
    pub cut_after: Option<usize>,
    /// In place of `choices`.
    #[serde(deserialize_with = "given")]
    pub choices: Option<Value>,
    /// In place of the text.
    #[serde(deserialize_with = "given")]
    pub content: Option<Value>,
    /// In place of `stop`.
    #[serde(deserialize_with = "given")]
    pub finish_reason: Option<Value>,
    /// In place of `usage`; null leaves it out.
    #[serde(deserialize_with = "given")]
    pub usage: Option<Value>,
    /// Before the body: a byte order mark, blank lines.
    pub prefix: String,
    /// Model that answers, in place of the one that was asked.
    pub model: Option<String>,
    /// Tools that the answer asks for, as on the wire, in place of its text.
    #[serde(deserialize_with = "given")]
    pub tool_calls: Option<Value>,
    /// What the model thought, in `reasoning_content`.
    pub reasoning: Option<String>,
    /// A refusal, in place of the text.
    pub refusal: Option<String>,
    /// Send the body byte by byte, with such pauses.
    pub drip_ms: u64,
    /// How a stream misbehaves.
    pub stream: StreamFault,
    /// How many calls it serves, default 1.
    pub times: Option<u32>,
}

/// How a stream misbehaves. An empty one is a proper stream.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamFault {
    /// Break the connection after so many events.
    pub cut_after: Option<usize>,
    /// End it properly after so many events.
    pub end_after: Option<usize>,
    /// After `end_after`, this error as an event.
    #[serde(deserialize_with = "given")]
    pub error: Option<Value>,
    /// Leave out `[DONE]`.
    pub no_done: bool,
    /// Never end the connection.
    pub stay_open: bool,
    /// Comments between the events.
    pub keep_alive: bool,
    /// Line ends of a carriage return and a line feed.
    pub crlf: bool,
    /// Pause before each event.
    pub pause_ms: u64,
    /// Answer in one piece, though a stream was asked for.
    pub ignored: bool,
}

/// Tells a field that is null from one that is absent.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

impl Fault {
    /// An error status.
    pub fn status(status: u16) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// With `Retry-After`.
    #[must_use]
    pub fn after(mut self, seconds: impl Into<Value>) -> Self {
        self.retry_after = Some(seconds.into());
        self
    }

    /// With a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Value>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The fault that a model's name asks for, and how often per question.
    pub(super) fn of_model(model: &str) -> Option<(Self, Option<u32>)> {
        let name = model.strip_prefix("stub-")?;
        let (name, times) = match name.rsplit_once('x') {
            Some((rest, times)) if times.parse::<u32>().is_ok() => (rest, times.parse().ok()),
            _ => (name, None),
        };
        let (kind, after) = match name.rsplit_once("-after") {
            Some((kind, seconds)) => (kind, Some(seconds.parse::<u64>().ok()?)),
            None => (name, None),
        };
        let mut fault = Self::of_kind(kind)?;
        if let Some(seconds) = after {
            fault.retry_after = Some(seconds.into());
        }
        Some((fault, times))
    }

    fn of_kind(kind: &str) -> Option<Self> {
        let proper = Self::default();
        Some(match kind {
            "hang" => Self { hang_ms: HANG_MS, ..proper },
            "cut" => Self { cut_after: Some(20), ..proper },
            "empty" => Self { content: Some("".into()), ..proper },
            "nochoices" => Self { choices: Some(json!([])), ..proper },
            "null" => Self {
                choices: Some(Value::Null),
                body: Some(
                    json!({"error": {"code": 502, "message": "no provider"}, "choices": null}),
                ),
                ..proper
            },
            "html" => Self {
                content_type: Some("text/html".to_owned()),
                body: Some("<html><body>Please log in to the network</body></html>".into()),
                ..proper
            },
            "error200" => proper.body(json!({
                "error": {"code": 429, "message": "slow down"}, "choices": null
            })),
            "quota" => Self { code: Some("insufficient_quota".to_owned()), ..Self::status(429) },
            "filter" => Self { finish_reason: Some("content_filter".into()), ..proper },
            "length" => Self { finish_reason: Some("length".into()), ..proper },
            "bom" => Self { prefix: "\u{feff}\r\n\n  ".to_owned(), ..proper },
            "nul" => Self { content: Some("a\u{0}b".into()), ..proper },
            "reasoning" => Self { reasoning: Some("let me think".to_owned()), ..proper },
            "refusal" => Self { refusal: Some("I would rather not.".to_owned()), ..proper },
            "cutstream" => Self {
                stream: StreamFault { cut_after: Some(3), ..StreamFault::default() },
                ..proper
            },
            "nodone" => {
                Self { stream: StreamFault { no_done: true, ..StreamFault::default() }, ..proper }
            }
            "nousage" => Self { usage: Some(Value::Null), ..proper },
            _ => Self::status(kind.parse().ok().filter(|status| (100..600).contains(status))?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_name_says_how_it_fails_and_how_often() {
        let of = |name| Fault::of_model(name);
        assert_eq!(of("stub-429x2"), Some((Fault::status(429), Some(2))));
        assert_eq!(of("stub-503-after1"), Some((Fault::status(503).after(1), None)));
        assert_eq!(of("stub-429-after2x3"), Some((Fault::status(429).after(2), Some(3))));
        for unknown in ["gpt-4o", "stub-mini", "stub-99", "stub-", "stub-429-aftersoon"] {
            assert_eq!(of(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn null_in_a_script_is_not_absence() {
        let step: Fault = serde_json::from_str(r#"{"choices": null}"#).expect("a step");
        assert_eq!(step.choices, Some(Value::Null));
        assert!(serde_json::from_str::<Fault>(r#"{"stauts": 1}"#).is_err());
    }
}
