//! One small question to a model, so that a person sees which setting is wrong.
//!
//! It takes the way of every other question, so what works here works there. It costs a few tokens.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::answer::ChatAnswer;
use super::client::{Models, Prepared};
use super::error::LlmError;
use super::message::Message;
use super::request::ChatRequest;

/// Longest answer to a ping, in tokens: a word, and room for some thinking.
const PING_TOKENS: u32 = 64;
/// What it says.
const PING: &str = "Answer with the single word: pong";

/// A ping to send.
#[derive(Clone, Debug)]
pub struct Ping {
    request: ChatRequest,
    timeout: Duration,
}

/// Who was asked, and what came of it.
#[derive(Debug)]
pub struct Pong {
    /// Model asked for.
    pub model: String,
    /// Address without query.
    pub url: String,
    /// host:port.
    pub target: String,
    /// End of the key, where it may be told; `None` without one.
    pub key_ending: Option<String>,
    /// True when a key was shown.
    pub with_key: bool,
    /// The proxy on the way.
    pub proxy: Option<String>,
    /// Requests that were sent.
    pub requests: u32,
    /// From the first request to the answer.
    pub took: Duration,
    /// What came of it.
    pub answer: Result<ChatAnswer, LlmError>,
}

impl Ping {
    /// To a model; `None` is the configured default.
    pub fn to(model: Option<String>, timeout: Duration) -> Self {
        let messages = vec![Message::user(PING)];
        let max_tokens = Some(PING_TOKENS);
        Self {
            request: ChatRequest { model, messages, max_tokens, ..ChatRequest::default() },
            timeout,
        }
    }

    /// Sends it; a model that wants the other name of the limit is asked once more.
    pub async fn send(&self, models: &Models) -> Result<Pong, LlmError> {
        let call = models.prepare(&self.request)?;
        let begun = Instant::now();
        let mut answer = self.ask(models, &call).await;
        let mut requests = 1;
        if matches!(answer, Err(LlmError::LimitName { .. })) {
            answer = self.ask(models, &call).await;
            requests = 2;
        }
        Ok(Pong {
            url: call.endpoint.shown(),
            target: call.endpoint.target(),
            key_ending: call.endpoint.key_ending(),
            with_key: call.endpoint.has_key(),
            proxy: call.endpoint.proxy(),
            model: call.model,
            requests,
            took: begun.elapsed(),
            answer,
        })
    }

    async fn ask(&self, models: &Models, call: &Prepared<'_>) -> Result<ChatAnswer, LlmError> {
        let timeout = self.timeout.min(models.timeout());
        models.ask(call, Uuid::new_v4(), None, Instant::now() + timeout).await
    }
}
