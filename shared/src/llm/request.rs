//! A question to a model, and how it is written on the wire.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use url::Url;

use super::message::Message;
use crate::domain::answer::AnswerPolicy;
use crate::domain::tools::{Tool, ToolChoice};

/// Longest question that is sent, in bytes: providers refuse far smaller ones.
pub(super) const MAX_REQUEST_BYTES: usize = 16 * 1024 * 1024;

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
    /// Asks for the same answer to the same question, where the provider can.
    pub seed: Option<i64>,
    /// How long the model thinks: `low`, `medium`, `high`, … — open to new words.
    pub reasoning_effort: Option<String>,
    /// `{"type": "json_object"}` or a schema; the answer is then held to it.
    pub response_format: Option<Value>,
    /// Tools that the model may ask for.
    pub tools: Vec<Tool>,
    /// Whether it must.
    pub tool_choice: Option<ToolChoice>,
    /// Take the answer piece by piece. The same question either way.
    pub stream: bool,
    /// What to do with an answer that is not what was asked for.
    pub policy: AnswerPolicy,
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

    /// The schema that the answer is held to.
    pub fn schema(&self) -> Option<&Value> {
        self.response_format.as_ref()?.get("json_schema")?.get("schema")
    }

    /// The body, without what says how it is answered.
    fn body(&self, model: &str, limit: LimitName) -> Map<String, Value> {
        let mut body = Map::new();
        let mut add = |name: &str, value: Value| body.insert(name.to_owned(), value);
        add("model", model.into());
        add("messages", self.messages.iter().map(Message::wire).collect());
        if let Some(max_tokens) = self.max_tokens {
            add(limit.as_str(), max_tokens.into());
        }
        if let Some(temperature) = self.temperature {
            add("temperature", temperature.into());
        }
        if let Some(seed) = self.seed {
            add("seed", seed.into());
        }
        if let Some(effort) = &self.reasoning_effort {
            add("reasoning_effort", effort.clone().into());
        }
        if let Some(format) = &self.response_format {
            add("response_format", format.clone());
        }
        if !self.tools.is_empty() {
            add("tools", json!(self.tools));
            if let Some(choice) = &self.tool_choice {
                add("tool_choice", json!(choice));
            }
        }
        body
    }

    /// The body as it is sent.
    pub(super) fn wire(&self, model: &str, limit: LimitName) -> Value {
        let mut body = self.body(model, limit);
        if self.stream {
            body.insert("stream".to_owned(), true.into());
            // Without it a stream says nothing of what it costs.
            body.insert("stream_options".to_owned(), json!({"include_usage": true}));
        }
        Value::Object(body)
    }

    /// What makes two questions the same: where, and everything that is said.
    pub(super) fn hash(&self, model: &str, url: &Url) -> Vec<u8> {
        // By one name of the limit, so that learning the other one asks nothing again.
        let body = Value::Object(self.body(model, LimitName::MaxTokens));
        Sha256::digest(format!("{url}\n{body}").as_bytes()).to_vec()
    }

    /// Input tokens by rule of thumb: four characters each, and a frame around each message.
    pub fn estimated_input(&self) -> i64 {
        let said: i64 =
            self.messages.iter().map(|message| estimated_tokens(&message.content) + 4).sum();
        let offered = self.tools.iter().map(|tool| estimated_tokens(&json!(tool).to_string()));
        said + offered.sum::<i64>()
    }
}

/// Tokens by rule of thumb.
pub(super) fn estimated_tokens(text: &str) -> i64 {
    text.chars().count().div_ceil(4) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> ChatRequest {
        ChatRequest { messages: vec![Message::user("hi")], ..ChatRequest::default() }
    }

    #[test]
    fn what_is_not_asked_is_not_sent() {
        let mut request = question();
        let bare = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        assert_eq!(request.wire("m", LimitName::MaxTokens), bare);

        request.max_tokens = Some(5);
        request.seed = Some(7);
        request.reasoning_effort = Some("low".to_owned());
        request.tool_choice = Some(ToolChoice::Auto);
        request.tools = vec![Tool { name: "f".to_owned(), ..Tool::default() }];
        let body = request.wire("m", LimitName::MaxCompletionTokens);
        assert_eq!(body["max_completion_tokens"], 5);
        assert!(body.get("max_tokens").is_none());
        assert_eq!((&body["seed"], &body["reasoning_effort"]), (&json!(7), &json!("low")));
        assert_eq!(body["tools"][0]["function"]["name"], "f");
        assert_eq!(body["tool_choice"], "auto");
    }

    #[test]
    fn the_same_question_to_another_model_or_place_is_another_question() {
        let request = question();
        let url = |text| Url::parse(text).expect("a URL");
        let hash = request.hash("m", &url("http://a/v1"));
        assert_eq!(hash, request.clone().hash("m", &url("http://a/v1")));
        assert_ne!(hash, request.hash("n", &url("http://a/v1")));
        assert_ne!(hash, request.hash("m", &url("http://b/v1")));
        let seeded = ChatRequest { seed: Some(1), ..question() };
        assert_ne!(hash, seeded.hash("m", &url("http://a/v1")));
    }

    #[test]
    fn a_streamed_question_is_the_same_question() {
        let streamed = ChatRequest { stream: true, ..question() };
        let body = streamed.wire("m", LimitName::MaxTokens);
        assert_eq!(
            (&body["stream"], &body["stream_options"]["include_usage"]),
            (&json!(true), &json!(true))
        );
        let url = Url::parse("http://a/v1").expect("a URL");
        assert_eq!(streamed.hash("m", &url), question().hash("m", &url));
    }
}
