//! A question to a model, and how it is written on the wire.

use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use url::Url;

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Message {
    /// system, user, assistant or tool.
    pub role: String,
    /// What is said.
    pub content: String,
    /// Tools that an assistant asked for, as it sent them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
    /// Which of them a tool message answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message of a role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }

    /// An instruction.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A question.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }
}

/// A question.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest {
    /// Model; `None` asks the configured default.
    pub model: Option<String>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// Longest answer in tokens.
    pub max_tokens: Option<u32>,
    /// Randomness.
    pub temperature: Option<f64>,
    /// `{"type": "json_object"}` or a schema; then an answer that is no JSON is an error.
    pub response_format: Option<Value>,
    /// Tools that the model may ask for.
    pub tools: Vec<Value>,
    /// Session that the question belongs to, for its span.
    pub conversation: Option<String>,
}

/// Name of the limit, which newer models of some providers insist on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LimitName {
    #[default]
    MaxTokens,
    MaxCompletionTokens,
}

impl LimitName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

impl ChatRequest {
    /// True when only JSON will do.
    pub fn wants_json(&self) -> bool {
        let format = self.response_format.as_ref();
        format.and_then(|format| format["type"].as_str()).is_some_and(|kind| kind != "text")
    }

    /// The body.
    pub(super) fn wire(&self, model: &str, limit: LimitName) -> Value {
        let mut body = Map::new();
        body.insert("model".to_owned(), model.into());
        body.insert("messages".to_owned(), serde_json::json!(self.messages));
        if let Some(max_tokens) = self.max_tokens {
            body.insert(limit.as_str().to_owned(), max_tokens.into());
        }
        if let Some(temperature) = self.temperature {
            body.insert("temperature".to_owned(), temperature.into());
        }
        if let Some(format) = &self.response_format {
            body.insert("response_format".to_owned(), format.clone());
        }
        if !self.tools.is_empty() {
            body.insert("tools".to_owned(), self.tools.clone().into());
        }
        Value::Object(body)
    }

    /// What makes two questions the same: where, and everything that is said.
    pub(super) fn hash(&self, model: &str, url: &Url) -> Vec<u8> {
        // By one name of the limit, so that learning the other one asks nothing again.
        let body = self.wire(model, LimitName::MaxTokens);
        Sha256::digest(format!("{url}\n{body}").as_bytes()).to_vec()
    }

    /// Input tokens by rule of thumb: four characters each, and a frame around each message.
    pub fn estimated_input(&self) -> i64 {
        self.messages.iter().map(|message| estimated_tokens(&message.content) + 4).sum()
    }
}

/// Tokens by rule of thumb.
pub(super) fn estimated_tokens(text: &str) -> i64 {
    text.chars().count().div_ceil(4) as i64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_asked_is_not_sent() {
        let mut request =
            ChatRequest { messages: vec![Message::user("hi")], ..ChatRequest::default() };
        let bare = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        assert_eq!(request.wire("m", LimitName::MaxTokens), bare);

        request.max_tokens = Some(5);
        let body = request.wire("m", LimitName::MaxCompletionTokens);
        assert_eq!(body["max_completion_tokens"], 5);
        assert!(body.get("max_tokens").is_none());
    }

    #[test]
    fn the_same_question_to_another_model_or_place_is_another_question() {
        let request = ChatRequest { messages: vec![Message::user("hi")], ..ChatRequest::default() };
        let url = |text| Url::parse(text).expect("a URL");
        let hash = request.hash("m", &url("http://a/v1"));
        assert_eq!(hash, request.clone().hash("m", &url("http://a/v1")));
        assert_ne!(hash, request.hash("n", &url("http://a/v1")));
        assert_ne!(hash, request.hash("m", &url("http://b/v1")));
    }
}
