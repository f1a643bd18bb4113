//! An answer of a model: what is read from a completion, tolerant of everything but its absence.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::request::{ChatRequest, estimated_tokens};
use super::usage::TokenUsage;
use crate::domain::tools::{ToolCall, with_own_ids};
use crate::redact::Secrets;

/// An answer, as it is stored and reused. JSON: its fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatAnswer {
    /// What the model says; empty when it only asks for tools.
    pub text: String,
    /// stop, length, tool_calls, … — open to new words.
    pub finish_reason: Option<String>,
    /// Tools it asks for.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// Why it refuses, where it does.
    #[serde(default)]
    pub refusal: Option<String>,
    /// What it thought, where the provider shows it. Never sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The provider's id.
    #[serde(default)]
    pub id: Option<String>,
    /// Model that answered.
    pub model: String,
    /// The provider's mark of what ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Tokens.
    pub usage: TokenUsage,
    /// What the endpoint says of its tokens, where nobody can believe it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_doubted: Option<String>,
    /// How the pieces of a stream came; empty for a stored answer.
    #[serde(skip)]
    pub pace: Pace,
}

/// How the pieces of a streamed answer came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// From the request to the first piece that says something.
    pub first: Option<Duration>,
    /// From each piece to the next.
    pub gaps: Vec<Duration>,
}

impl ChatAnswer {
    /// From a completion; `None` when it holds no message.
    pub(super) fn of(body: &Value, model: &str, request: &ChatRequest) -> Option<Self> {
        let choice = body["choices"].as_array()?.first()?;
        let message = choice.get("message").filter(|message| message.is_object())?;
        let text = content(&message["content"]);
        let word =
            |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let tools = message["tool_calls"].as_array().into_iter().flatten();
        let tool_calls = with_own_ids(tools.map(tool_call).collect());
        let reasoning = word(&message["reasoning_content"]).or_else(|| word(&message["reasoning"]));
        let said = [Some(text.as_str()), reasoning.as_deref()].into_iter().flatten();
        let asked = tool_calls.iter().map(|call| call.arguments.as_str());
        let output = said.chain(asked).map(estimated_tokens).sum();
        Some(Self {
            finish_reason: word(&choice["finish_reason"]),
            refusal: word(&message["refusal"]),
            id: word(&body["id"]),
            model: word(&body["model"]).unwrap_or_else(|| model.to_owned()),
            fingerprint: word(&body["system_fingerprint"]),
            usage: TokenUsage::of(&body["usage"], request.estimated_input(), output),
            usage_doubted: TokenUsage::doubt(&body["usage"]),
            tool_calls,
            reasoning,
            text,
            pace: Pace::default(),
        })
    }

    /// The same without secrets: an answer is stored, told and shown, and what it repeats of them must
    /// not be.
    #[must_use]
    pub(super) fn without(self, secrets: &Secrets) -> Self {
        let redact = |text: &str| secrets.out_of(text);
        let maybe = |text: Option<String>| text.map(|text| redact(&text));
        let call = |call: ToolCall| ToolCall {
            id: redact(&call.id),
            name: redact(&call.name),
            arguments: redact(&call.arguments),
        };
        Self {
            text: redact(&self.text),
            finish_reason: maybe(self.finish_reason),
            tool_calls: self.tool_calls.into_iter().map(call).collect(),
            refusal: maybe(self.refusal),
            reasoning: maybe(self.reasoning),
            id: maybe(self.id),
            model: redact(&self.model),
            fingerprint: maybe(self.fingerprint),
            usage: self.usage,
            usage_doubted: maybe(self.usage_doubted),
            pace: self.pace,
        }
    }

    /// True when there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.tool_calls.is_empty() && self.refusal.is_none()
    }

    /// True when it was cut at its limit of tokens.
    pub fn is_cut(&self) -> bool {
        self.finish_reason.as_deref() == Some("length")
    }

    /// The text, a fence around the whole left out.
    pub fn bare(&self) -> &str {
        unfenced(&self.text)
    }

    /// The JSON that it is.
    pub fn json(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_str(self.bare())
    }
}

/// What a fence of three backticks, or nothing, holds: models that know no `response_format` like
/// to write one.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let Some(inner) = inner else { return text };
    match inner.split_once('\n') {
        Some((language, code)) if language.trim().chars().all(char::is_alphanumeric) => code.trim(),
        _ => inner.trim(),
    }
}

fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

fn tool_call(value: &Value) -> ToolCall {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let function = &value["function"];
    ToolCall {
        id: text(&value["id"]),
        name: text(&function["name"]),
        arguments: text(&function["arguments"]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::message::Message;
    use super::*;

    fn request() -> ChatRequest {
        ChatRequest { messages: vec![Message::user("twelve chars")], ..ChatRequest::default() }
    }

    fn answer(message: &Value, finish: &Value) -> Option<ChatAnswer> {
        let body = json!({"choices": [{"message": message, "finish_reason": finish}]});
        ChatAnswer::of(&body, "m", &request())
    }

    #[test]
    fn content_is_read_in_every_dress() {
        let text =
            |content| answer(&json!({ "content": content }), &json!("stop")).expect("ok").text;
        assert_eq!(text(json!("hi")), "hi");
        assert_eq!(text(json!([{"type": "text", "text": "h"}, {"text": "i"}, {"image": 1}])), "hi");
        assert_eq!(text(Value::Null), "");
    }

    #[test]
    fn tools_and_unknown_words_are_kept_as_they_come() {
        let call =
            json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}});
        let object = json!({"id": "1", "function": {"name": "g", "arguments": {"a": 1}}});
        let message = json!({"content": null, "tool_calls": [call, object]});
        let seen = answer(&message, &json!("eos")).expect("an answer");
        assert_eq!(seen.finish_reason.as_deref(), Some("eos"));
        assert_eq!(seen.tool_calls[0].arguments, "{");
        assert_eq!(seen.tool_calls[1].arguments, r#"{"a":1}"#);
        assert_ne!(seen.tool_calls[0].id, seen.tool_calls[1].id);
        assert!(!seen.is_empty());
    }

    #[test]
    fn what_holds_no_message_is_no_answer() {
        for body in [
            json!({}),
            json!({"choices": null}),
            json!({"choices": []}),
            json!({"choices": [{}]}),
            json!({"choices": [{"message": null}]}),
            json!([1]),
            json!(1),
        ] {
            assert_eq!(ChatAnswer::of(&body, "m", &request()), None, "{body}");
        }
    }

    #[test]
    fn reasoning_is_kept_under_either_name_and_counted_where_nobody_counts() {
        for name in ["reasoning_content", "reasoning"] {
            let message = json!({"content": "five!", name: "let me think"});
            let seen = answer(&message, &json!("stop")).expect("an answer");
            assert_eq!(seen.reasoning.as_deref(), Some("let me think"));
            assert_eq!((seen.usage.output_tokens, seen.usage.estimated), (2 + 3, true));
        }
        let stored = json!(answer(&json!({"content": "x", "reasoning": "y"}), &Value::Null));
        let read: ChatAnswer = serde_json::from_value(stored).expect("stored");
        assert_eq!(read.reasoning.as_deref(), Some("y"));
    }

    #[test]
    fn json_is_found_inside_a_fence() {
        let of =
            |text: &str| ChatAnswer { text: text.to_owned(), ..ChatAnswer::default() }.json().ok();
        for text in
            ["{\"a\":1}", "```json\n{\"a\":1}\n```", "```\n{\"a\":1}```", " ```{\"a\":1}``` "]
        {
            assert_eq!(of(text), Some(json!({"a": 1})), "{text}");
        }
        for text in ["", "sorry", "```json", "here: {\"a\":1}"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
