//! `model_invoke`: one question to a model.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Payload, given};

/// Longest answer unless the payload says otherwise, in tokens.
const DEFAULT_MAX_TOKENS: u32 = 512;
const ROLES: [&str; 4] = ["system", "developer", "user", "assistant"];

/// One question to a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelInvoke {
    /// The question, as one text.
    #[serde(default)]
    pub prompt: Option<String>,
    /// The question, as a conversation.
    #[serde(default)]
    pub messages: Vec<PromptMessage>,
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
    /// `{"type": "json_object"}` or a schema.
    #[serde(default, deserialize_with = "given")]
    pub response_format: Option<Value>,
}

/// One message of a conversation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptMessage {
    /// Who speaks.
    pub role: String,
    /// What is said.
    pub content: String,
}

fn default_max_tokens() -> u32 {
    DEFAULT_MAX_TOKENS
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
                "prompt": {"type": "string", "minLength": 1, "description": "the question as one text; either this or messages"},
                "messages": {
                    "type": "array", "minItems": 1, "description": "the question as a conversation",
                    "items": {
                        "type": "object", "required": ["role", "content"], "additionalProperties": false,
                        "properties": {"role": {"enum": ROLES}, "content": {"type": "string"}},
                    },
                },
                "system": {"type": "string", "description": "instruction before the question"},
                "model": {"type": "string", "description": "model; without it model.default_model (MODEL_NAME)"},
                "max_tokens": {"type": "integer", "minimum": 1, "default": DEFAULT_MAX_TOKENS, "description": "longest answer in tokens"},
                "temperature": {"type": "number", "minimum": 0, "maximum": 2, "description": "randomness"},
                "response_format": {"type": "object", "description": "{\"type\": \"json_object\"} or a json_schema; an answer that is no JSON then fails the task"},
            },
            "examples": [
                {"prompt": "Summarise in one sentence: 17 orders, 2 refunds.", "max_tokens": 100},
                {
                    "model": "claude-sonnet-4-5",
                    "system": "Answer in JSON.",
                    "messages": [{"role": "user", "content": "Name three rivers."}],
                    "response_format": {"type": "json_object"},
                },
            ],
        })
    }

    fn judge(&self) -> Result<(), String> {
        match (&self.prompt, self.messages.is_empty()) {
            (None, true) => return Err("say prompt or messages".to_owned()),
            (Some(_), false) => return Err("say prompt or messages, not both".to_owned()),
            (Some(prompt), true) if prompt.trim().is_empty() => {
                return Err("prompt is empty".to_owned());
            }
            _ => {}
        }
        if let Some(message) = self.messages.iter().find(|m| !ROLES.contains(&m.role.as_str())) {
            return Err(format!("role {:?} is none of {}", message.role, ROLES.join(", ")));
        }
        if self.max_tokens == 0 {
            return Err("max_tokens is 0; an answer needs at least 1".to_owned());
        }
        if self.temperature.is_some_and(|t| !(0.0..=2.0).contains(&t)) {
            return Err("temperature is not between 0 and 2".to_owned());
        }
        match &self.response_format {
            Some(format) if !format["type"].is_string() => {
                Err("response_format has no type; say {\"type\": \"json_object\"}".to_owned())
            }
            _ => Ok(()),
        }
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
        check(&json!({"prompt": "a", "response_format": "json"}), "json_object");
    }
}
