//! `model_invoke`: one question to a model.

mod message;

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{Payload, given};
use crate::domain::answer::{
    AnswerPolicy, MAX_FALLBACKS, OnEmpty, OnInvalid, OnRefused, OnTruncated,
};
use crate::domain::json_schema::Schema;
use crate::domain::tools::{Tool, ToolChoice};
pub use message::PromptMessage;

/// Longest answer unless the payload says otherwise, in tokens.
const DEFAULT_MAX_TOKENS: u32 = 512;
/// Longest word for `reasoning_effort`.
pub(super) const MAX_WORD: usize = 32;
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
const FORMATS: [&str; 3] = ["text", "json_object", "json_schema"];

/// One question to a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelInvoke {
    /// The question, as one text.
    #[serde(default, deserialize_with = "said")]
    pub prompt: Option<String>,
    /// The question, as a conversation.
    #[serde(default, deserialize_with = "said")]
    pub messages: Option<Vec<PromptMessage>>,
    /// Instruction before it.
    #[serde(default)]
    pub system: Option<String>,
    /// Model; without it the configured default.
    #[serde(default)]
    pub model: Option<String>,
    /// Longest answer in tokens.
    #[serde(default = "default_max_tokens")]
    pub max_tokens: u32,
    /// Randomness, 0 to 2.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// The same answer to the same question, where the provider can.
    #[serde(default)]
    pub seed: Option<i64>,
    /// How long the model thinks.
    #[serde(default)]
    pub reasoning_effort: Option<String>,
    /// `{"type": "json_object"}` or a schema.
    #[serde(default, deserialize_with = "given")]
    pub response_format: Option<Value>,
    /// Tools that the model may ask for; nobody runs them, the result names what it asks.
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// Whether it must.
    #[serde(default)]
    pub tool_choice: Option<ToolChoice>,
    /// Take the answer piece by piece.
    #[serde(default)]
    pub stream: bool,
    /// What to do with a cut answer.
    #[serde(default)]
    pub on_truncated: Option<OnTruncated>,
    /// What to do with an answer that is not what was asked for.
    #[serde(default)]
    pub on_invalid: OnInvalid,
    /// What to do with an empty answer.
    #[serde(default)]
    pub on_empty: OnEmpty,
    /// What to do with a refusal.
    #[serde(default)]
    pub on_refused: OnRefused,
    /// Models that stand in; without it those of `model.fallback`.
    #[serde(default)]
    pub fallback: Option<Vec<String>>,
}

/// What is there is not null: two ways to ask are no way, and an empty one is none.
fn said<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

fn default_max_tokens() -> u32 {
    DEFAULT_MAX_TOKENS
}

impl ModelInvoke {
    /// What to do with an answer that is not what was asked for.
    pub fn policy(&self) -> AnswerPolicy {
        AnswerPolicy {
            on_truncated: self.on_truncated,
            on_invalid: self.on_invalid,
            on_empty: self.on_empty,
            on_refused: self.on_refused,
            fallback: self.fallback.clone(),
        }
    }

    fn judge_conversation(&self) -> Result<(), String> {
        match (&self.prompt, &self.messages) {
            (None, None) => return Err("say prompt or messages".to_owned()),
            (Some(_), Some(_)) => return Err("say prompt or messages, not both".to_owned()),
            (Some(prompt), None) if prompt.trim().is_empty() => {
                return Err("prompt is empty".to_owned());
            }
            (None, Some(messages)) if messages.is_empty() => {
                return Err("messages is empty".to_owned());
            }
            _ => {}
        }
        let mut asked = BTreeSet::new();
        for message in self.messages.iter().flatten() {
            let role = message.role.as_str();
            if !ROLES.contains(&role) {
                return Err(format!("role {role:?} is none of {}", ROLES.join(", ")));
            }
            if role != "assistant" && !message.tool_calls.is_empty() {
                return Err("only an assistant's message has tool_calls".to_owned());
            }
            asked.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
            match (role == "tool", &message.tool_call_id) {
                (true, Some(id)) if asked.contains(id.as_str()) => {}
                (true, Some(id)) => {
                    return Err(format!("tool_call_id {id:?} answers no tool_calls before it"));
                }
                (true, None) => return Err("a tool's message needs a tool_call_id".to_owned()),
                (false, Some(_)) => {
                    return Err("only a tool's message has a tool_call_id".to_owned());
                }
                (false, None) => {}
            }
        }
        Ok(())
    }

    fn judge_tools(&self) -> Result<(), String> {
        Tool::judge_all(&self.tools)?;
        match &self.tool_choice {
            Some(_) if self.tools.is_empty() => Err("tool_choice without tools".to_owned()),
            Some(ToolChoice::Named(name)) if !self.tools.iter().any(|it| it.name == *name) => {
                Err(format!("tool_choice names {name:?}, which is none of tools"))
            }
            _ => Ok(()),
        }
    }
}

/// What can be said of how an answer is made.
pub(super) fn judge_options(
    max_tokens: u32,
    temperature: Option<f64>,
    reasoning_effort: Option<&str>,
) -> Result<(), String> {
    if max_tokens == 0 {
        return Err("max_tokens is 0; an answer needs at least 1".to_owned());
    }
    if temperature.is_some_and(|t| !(0.0..=2.0).contains(&t)) {
        return Err("temperature is not between 0 and 2".to_owned());
    }
    if reasoning_effort.is_some_and(|it| !(1..=MAX_WORD).contains(&it.len())) {
        return Err("reasoning_effort is a word such as low, medium or high".to_owned());
    }
    Ok(())
}

/// A `response_format` that an answer can be held to.
pub(super) fn judge_format(format: Option<&Value>) -> Result<(), String> {
    let Some(format) = format else { return Ok(()) };
    let kind = format["type"]
        .as_str()
        .ok_or_else(|| "response_format has no type; say {\"type\": \"json_object\"}".to_owned())?;
    if !FORMATS.contains(&kind) {
        return Err(format!("response_format.type {kind:?} is none of {}", FORMATS.join(", ")));
    }
    if kind != "json_schema" {
        return Ok(());
    }
    let part = &format["json_schema"];
    if !part["name"].is_string() || part.get("schema").is_none() {
        return Err("response_format.json_schema needs name and schema".to_owned());
    }
    Schema::compile(&part["schema"]).map(drop).map_err(|what| format!("response_format: {what}"))
}

impl Payload for ModelInvoke {
    const TYPE: &'static str = "model_invoke";

    fn schema() -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "model_invoke",
            "description": "One question to a model of an OpenAI-compatible endpoint. A stored answer is never paid again, whatever retries or replays the task sees.",
            "type": "object",
            "oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
            "additionalProperties": false,
            "properties": {
                "prompt": {"type": "string", "pattern": "\\S", "description": "the question as one text; either this or messages"},
                "messages": {
                    "type": "array", "minItems": 1, "description": "the question as a conversation",
                    "items": {
                        "type": "object", "required": ["role"], "additionalProperties": false,
                        "properties": {
                            "role": {"enum": ROLES},
                            "content": {
                                "description": "a text, or text parts, which are joined",
                                "type": ["string", "null", "array"],
                                "items": {
                                    "type": "object", "required": ["type", "text"], "additionalProperties": false,
                                    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
                                },
                            },
                            "tool_calls": {"type": "array", "items": {"type": "object"}},
                            "tool_call_id": {"type": "string"},
                        },
                    },
                },
                "system": {"type": "string", "description": "instruction before the question"},
                "model": {"type": "string", "description": "model; without it model.default_model (MODEL_NAME)"},
                "max_tokens": {"type": "integer", "minimum": 1, "default": DEFAULT_MAX_TOKENS, "description": "longest answer in tokens"},
                "temperature": {"type": "number", "minimum": 0, "maximum": 2, "description": "randomness"},
                "seed": {"type": "integer", "description": "asks for the same answer to the same question, where the provider can"},
                "reasoning_effort": {"type": "string", "minLength": 1, "maxLength": MAX_WORD, "description": "how long the model thinks: low, medium, high, or another word of the provider"},
                "response_format": {"type": "object", "description": "{\"type\": \"json_object\"}, or {\"type\": \"json_schema\", \"json_schema\": {\"name\", \"schema\"}}; the answer is held to it here, whatever the provider promises"},
                "tools": {"type": "array", "items": {"type": "object"}, "description": "tools as on the wire, {\"type\": \"function\", \"function\": {\"name\", \"description\", \"parameters\"}}; nobody runs them, the result's tool_calls says what the model asks"},
                "tool_choice": {"type": ["string", "object"], "description": "auto, none, required, or {\"type\": \"function\", \"function\": {\"name\"}}"},
                "stream": {"type": "boolean", "default": false, "description": "take the answer piece by piece; the time to the first is measured"},
                "on_truncated": {"enum": ["accept", "fail", "larger"], "description": "an answer cut at max_tokens: take the part (the default for text), give up (the default for JSON), or ask once more with four times the tokens"},
                "on_invalid": {"enum": ["fail", "repair", "fallback", "accept"], "default": "fail", "description": "no JSON, not by the schema, or tools that cannot be run: give up, show the model once what is wrong, ask the next model of fallback, or take it as it is"},
                "on_empty": {"enum": ["again", "fallback", "fail"], "default": "again", "description": "not a word: ask once more in the next attempt, ask the next model of fallback at once, or give up"},
                "on_refused": {"enum": ["fallback", "fail"], "default": "fallback", "description": "the model or a filter would not answer: ask the next model of fallback, if there is one, or give up"},
                "fallback": {"type": "array", "maxItems": MAX_FALLBACKS, "items": {"type": "string", "minLength": 1}, "description": "models that stand in when this one is not found, overloaded again and again, or will not answer; without it those of model.fallback"},
            },
            "examples": [
                {"prompt": "Summarise in one sentence: 17 orders, 2 refunds.", "max_tokens": 100},
                {
                    "model": "claude-sonnet-4-5",
                    "system": "Answer in JSON.",
                    "messages": [{"role": "user", "content": "Name three rivers."}],
                    "response_format": {"type": "json_object"},
                },
                {
                    "prompt": "How many orders and refunds? 17 orders, 2 refunds.",
                    "response_format": {"type": "json_schema", "json_schema": {"name": "counts", "schema": {
                        "type": "object", "required": ["orders", "refunds"], "additionalProperties": false,
                        "properties": {"orders": {"type": "integer"}, "refunds": {"type": "integer"}},
                    }}},
                    "on_invalid": "repair",
                    "fallback": ["gpt-4o-mini"],
                },
            ],
        })
    }

    fn judge(&self) -> Result<(), String> {
        self.judge_conversation()?;
        judge_options(self.max_tokens, self.temperature, self.reasoning_effort.as_deref())?;
        judge_format(self.response_format.as_ref())?;
        self.judge_tools()?;
        self.policy().judge()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(payload: &Value, expected: &str) {
        let seen = ModelInvoke::read(payload).map_or_else(|error| error, |_| "ok".to_owned());
        assert!(seen.contains(expected), "{payload}: {seen}");
    }

    #[test]
    fn a_question_is_asked_in_one_way() {
        check(&json!({"prompt": "hi"}), "ok");
        check(&json!({"messages": [{"role": "user", "content": "hi"}]}), "ok");
        check(&json!({}), "say prompt or messages");
        check(&json!({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}), "not both");
        check(&json!({"prompt": " "}), "prompt is empty");
        check(&json!({"messages": [{"role": "robot", "content": "hi"}]}), "none of system");
        check(&json!({"prompt": "a", "max_tokens": 0}), "at least 1");
        check(&json!({"prompt": "a", "max_tokens": -1}), "invalid value");
        check(&json!({"prompt": "a", "temperature": 3}), "between 0 and 2");
        check(&json!({"prompt": "a", "reasoning_effort": ""}), "a word such as");
    }

    /// Whoever reads the printed schema is told the same as whoever publishes.
    #[test]
    fn the_check_and_the_printed_schema_agree_on_a_question() {
        let schema = Schema::compile(&ModelInvoke::schema()).expect("a schema");
        let part = |text: &str| json!({"type": "text", "text": text});
        let say = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
        for (payload, right) in [
            (json!({"prompt": "x"}), true),
            (json!({"prompt": "x", "messages": []}), false),
            (json!({"prompt": "x", "messages": null}), false),
            (json!({"prompt": null, "messages": [{"role": "user", "content": "x"}]}), false),
            (json!({"messages": []}), false),
            (json!({"prompt": ""}), false),
            (json!({"prompt": " \n"}), false),
            (json!({}), false),
            (say(json!("x")), true),
            (say(json!([part("a"), part("b")])), true),
            (say(json!([])), true),
            (say(Value::Null), true),
            (say(json!(["a"])), false),
            (say(json!(7)), false),
            (say(json!([{"type": "image_url", "image_url": {"url": "https://a"}}])), false),
            (say(json!([{"type": "text", "text": "a", "cache_control": {}}])), false),
        ] {
            let seen = ModelInvoke::read(&payload);
            assert_eq!(seen.is_ok(), right, "{payload}: {seen:?}");
            assert_eq!(schema.check(&payload).is_ok(), right, "the schema of {payload}");
        }
        let joined = ModelInvoke::read(&say(json!([part("a"), part("b")]))).expect("read");
        assert_eq!(joined.messages.expect("some")[0].content, "ab");
        check(
            &say(json!([{"type": "image_url"}])),
            r#"a part "image_url" that is not {"type": "text""#,
        );
        check(&json!({"prompt": "x", "messages": []}), "not both");
    }

    #[test]
    fn a_format_is_one_that_can_be_held() {
        let with = |format: Value| json!({"prompt": "a", "response_format": format});
        check(&with(json!("json")), "json_object");
        check(&with(json!({"type": "xml"})), "none of text, json_object");
        check(&with(json!({"type": "json_schema"})), "needs name and schema");
        let schema = |schema: Value| {
            with(json!({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}))
        };
        check(&schema(json!({"type": "object"})), "ok");
        check(&schema(json!({"type": "objekt"})), "the schema cannot be used");
        check(&schema(json!({"$ref": "https://example.com/s.json"})), "the schema cannot be used");
    }

    #[test]
    fn tools_and_their_messages_fit_together() {
        let tool = json!({"type": "function", "function": {"name": "f"}});
        let with = |choice: Value| json!({"prompt": "a", "tools": [tool], "tool_choice": choice});
        check(&with(json!("required")), "ok");
        check(&with(json!("perhaps")), "tool_choice is auto");
        check(&with(json!({"type": "function", "function": {"name": "g"}})), "none of tools");
        check(&json!({"prompt": "a", "tool_choice": "auto"}), "without tools");
        check(
            &json!({"prompt": "a", "tools": [{"type": "function", "function": {"name": "a b"}}]}),
            "letters",
        );
        let call =
            json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let said = |id: &str| {
            json!({"messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": id, "content": "42"},
            ]})
        };
        check(&said("c1"), "ok");
        check(&said("c2"), "answers no tool_calls");
        check(&json!({"messages": [{"role": "tool", "content": "42"}]}), "needs a tool_call_id");
        check(&json!({"messages": [{"role": "user", "tool_call_id": "x"}]}), "only a tool's");
        check(
            &json!({"messages": [{"role": "user", "tool_calls": [call]}]}),
            "only an assistant's",
        );
    }

    #[test]
    fn a_policy_is_made_of_known_words() {
        check(
            &json!({"prompt": "a", "on_truncated": "larger", "on_invalid": "repair", "on_empty": "fail", "on_refused": "fail"}),
            "ok",
        );
        check(&json!({"prompt": "a", "on_invalid": "hope"}), "unknown variant");
        check(&json!({"prompt": "a", "fallback": ["1", "2", "3", "4", "5", "6"]}), "more than 5");
        check(&json!({"prompt": "a", "fallback": [""]}), "empty name");
    }
}
