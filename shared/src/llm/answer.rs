//! An answer of a model: what is read from a completion, tolerant of everything but its absence.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::LlmError;
use super::request::{ChatRequest, estimated_tokens};

/// A tool that the model asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of the request.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as the model wrote them: meant to be JSON, not always so.
    pub arguments: String,
}

/// Tokens of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// In, cached ones included.
    pub input_tokens: i64,
    /// Out, reasoning included.
    pub output_tokens: i64,
    /// Of the input, read from the provider's cache.
    #[serde(default)]
    pub cached_tokens: Option<i64>,
    /// Of the output, spent on reasoning.
    #[serde(default)]
    pub reasoning_tokens: Option<i64>,
    /// The provider did not say; this is our estimate.
    #[serde(default)]
    pub estimated: bool,
}

/// An answer, as it is stored and reused.
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
    /// The provider's id.
    #[serde(default)]
    pub id: Option<String>,
    /// Model that answered.
    pub model: String,
    /// Tokens.
    pub usage: TokenUsage,
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
        Some(Self {
            finish_reason: word(&choice["finish_reason"]),
            tool_calls: tools.map(tool_call).collect(),
            refusal: word(&message["refusal"]),
            id: word(&body["id"]),
            model: word(&body["model"]).unwrap_or_else(|| model.to_owned()),
            usage: usage(&body["usage"], request, &text),
            text,
        })
    }

    /// True when there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.tool_calls.is_empty() && self.refusal.is_none()
    }

    /// Judges an answer that was paid for: is it what was asked for?
    pub fn usable(self, request: &ChatRequest) -> Result<Self, LlmError> {
        let finish = self.finish_reason.as_deref().unwrap_or_default();
        if let Some(refusal) = &self.refusal {
            return Err(LlmError::Filtered { message: refusal.clone() });
        }
        if finish == "content_filter" {
            let message = "finish_reason is content_filter; the part that came is kept".to_owned();
            return Err(LlmError::Filtered { message });
        }
        if finish == "length" && self.is_empty() {
            let used = self.usage.reasoning_tokens.unwrap_or(self.usage.output_tokens);
            return Err(LlmError::Truncated(format!("before its first word ({used} tokens used)")));
        }
        if !request.wants_json() || !self.tool_calls.is_empty() {
            return Ok(self);
        }
        if finish == "length" {
            return Err(LlmError::Truncated("and half a JSON is none".to_owned()));
        }
        match serde_json::from_str::<Value>(&self.text) {
            Ok(_) => Ok(self),
            Err(error) => Err(LlmError::NotJson(error.to_string())),
        }
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

/// Counts as billed; what is missing or nonsense is estimated and marked so.
fn usage(usage: &Value, request: &ChatRequest, text: &str) -> TokenUsage {
    let input = count(&usage["prompt_tokens"]).or_else(|| count(&usage["input_tokens"]));
    let output = count(&usage["completion_tokens"]).or_else(|| count(&usage["output_tokens"]));
    TokenUsage {
        input_tokens: input.unwrap_or_else(|| request.estimated_input()),
        output_tokens: output.unwrap_or_else(|| estimated_tokens(text)),
        cached_tokens: count(&usage["prompt_tokens_details"]["cached_tokens"]),
        reasoning_tokens: count(&usage["completion_tokens_details"]["reasoning_tokens"]),
        estimated: input.is_none() || output.is_none(),
    }
}

/// A count in whatever dress: integer, whole float, text. Negative is none.
fn count(value: &Value) -> Option<i64> {
    let number = match value {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|n| n as i64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| *number >= 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::request::Message;
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
        let object = json!({"function": {"name": "g", "arguments": {"a": 1}}});
        let message = json!({"content": null, "tool_calls": [call, object]});
        let seen = answer(&message, &json!("eos")).expect("an answer");
        assert_eq!(seen.finish_reason.as_deref(), Some("eos"));
        assert_eq!(seen.tool_calls[0].arguments, "{");
        assert_eq!(seen.tool_calls[1].arguments, r#"{"a":1}"#);
        assert!(!seen.is_empty() && seen.usable(&request()).is_ok());
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

    #[track_caller]
    fn tokens(usage: &Value, input: i64, output: i64, estimated: bool) {
        let body = json!({"choices": [{"message": {"content": "five!"}}], "usage": usage});
        let seen = ChatAnswer::of(&body, "m", &request()).expect("an answer").usage;
        assert_eq!(
            (seen.input_tokens, seen.output_tokens, seen.estimated),
            (input, output, estimated)
        );
    }

    #[test]
    fn missing_or_odd_usage_is_estimated_and_said_so() {
        tokens(&json!({"prompt_tokens": 7, "completion_tokens": 3}), 7, 3, false);
        tokens(&json!({"prompt_tokens": "7", "completion_tokens": 3.0}), 7, 3, false);
        tokens(&json!({"input_tokens": 7, "output_tokens": 3}), 7, 3, false);
        tokens(&json!({"prompt_tokens": -7, "completion_tokens": 3}), 7, 3, true);
        tokens(&Value::Null, 7, 2, true);
        tokens(&json!("many"), 7, 2, true);
    }

    #[track_caller]
    fn judged(message: &Value, finish: &str, format: Option<&str>, expected: &str) {
        let mut request = request();
        request.response_format = format.map(|kind| json!({ "type": kind }));
        let answer = answer(message, &json!(finish)).expect("an answer");
        let seen = answer.usable(&request).map_or_else(|e| e.error_type(), |_| "ok".to_owned());
        assert_eq!(seen, expected, "{message} {finish} {format:?}");
    }

    #[test]
    fn a_paid_answer_is_judged_by_what_was_asked() {
        judged(&json!({"content": "hi"}), "stop", None, "ok");
        judged(&json!({"content": "hi"}), "length", None, "ok");
        judged(&json!({"content": "hi"}), "content_filter", None, "content_filter");
        judged(&json!({"content": null, "refusal": "no"}), "stop", None, "content_filter");
        judged(&json!({"content": ""}), "length", None, "truncated");
        judged(&json!({"content": "{}"}), "stop", Some("json_object"), "ok");
        judged(&json!({"content": "{}"}), "length", Some("json_object"), "truncated");
        judged(&json!({"content": "sorry"}), "stop", Some("json_schema"), "malformed_response");
        judged(&json!({"content": "sorry"}), "stop", Some("text"), "ok");
    }
}
