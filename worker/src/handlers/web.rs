//! Requests that payloads and reports ask for: guarded, bounded, and judged by status.

use std::time::Duration;

use serde_json::Value;
use shared::config::HttpGuard;
use shared::domain::clock;
use shared::domain::outcome::{ErrorClass, Failure, TaskError};
use shared::http::{self, Call, Guard, HeaderMap, PayloadClient};
use tokio::time::Instant;

use crate::context::Context;
use crate::llm::{lenient_json, quote, spread, wait_hint};

/// Most bytes of an answer that are kept: it becomes a task's result.
pub(super) const MAX_BODY_BYTES: usize = 256 * 1024;
/// Left of the attempt's time when a request is given up, so that its end can still be told.
const MARGIN: Duration = Duration::from_secs(1);
/// Wait after a 429 that names no time.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// The guarded client. Clones share connections.
#[derive(Clone)]
pub(super) struct Web(Result<PayloadClient, String>);

/// An answer, whatever its status.
pub(super) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    body: Vec<u8>,
    pub truncated: bool,
    target: String,
}

impl Web {
    /// By the guard's rules; what is wrong with them is an error where it is used.
    pub fn new(rules: &HttpGuard) -> Self {
        let client = Guard::new(rules).and_then(|guard| http::payload_client(&guard));
        Self(client.map_err(|error| error.to_string()))
    }

    /// Sends a request and reads the beginning of its answer.
    pub async fn send(
        &self,
        context: &Context,
        call: Call,
        timeout: Option<Duration>,
    ) -> Result<Answer, TaskError> {
        let client = self.0.as_ref().map_err(TaskError::permanent)?;
        let target = match (call.url.host_str(), call.url.port_or_known_default()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            _ => call.url.scheme().to_owned(),
        };
        let left = context.time_left().saturating_sub(MARGIN.min(context.timeout / 10));
        let deadline = Instant::now() + timeout.map_or(left, |timeout| timeout.min(left));
        let failed = |error: http::Error| failed(context, &error);
        let response = client.send(call, deadline).await.map_err(failed)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let read = http::read_up_to(response, MAX_BODY_BYTES, deadline).await;
        let (body, truncated) = read.map_err(failed)?;
        Ok(Answer { status, headers, body: body.to_vec(), truncated, target })
    }
}

impl Answer {
    /// The body: JSON where it is, else text; secrets are taken out of both.
    pub fn body(&self, context: &Context) -> Value {
        let json = if self.truncated { None } else { lenient_json(&self.body) };
        let text = || String::from_utf8_lossy(&self.body).replace('\0', "\u{fffd}");
        context.redacted(json.unwrap_or_else(|| Value::String(text())))
    }

    /// What becomes of the task after an answer that is no success.
    pub fn refusal(&self, context: &Context) -> TaskError {
        let said = context.redact(&quote(&self.body));
        let message = format!("{} answered {}: {said}", self.target, self.status);
        let after = wait_hint(&self.headers, clock::now()).map(spread);
        match self.status {
            429 => TaskError::snooze(after.unwrap_or_else(|| spread(DEFAULT_WAIT)), message),
            408 | 425 | 500.. => {
                TaskError::Retry { failure: Failure::new(ErrorClass::Retryable, message), after }
            }
            _ => TaskError::permanent(message),
        }
    }
}

fn failed(context: &Context, error: &http::Error) -> TaskError {
    let failure = Failure::new(error.class(), context.redact(&error.to_string()));
    match failure.class {
        ErrorClass::Permanent | ErrorClass::Invalid => TaskError::Permanent(failure),
        _ => TaskError::Retry { failure, after: None },
    }
}

/// A header's value: itself, a secret, or something before one as in `Bearer secret:NAME`.
pub(super) fn reveal_header(context: &Context, value: &str) -> Result<String, TaskError> {
    match value.rsplit_once(" secret:") {
        Some((before, name)) => {
            Ok(format!("{before} {}", context.reveal(&format!("secret:{name}"))?))
        }
        None => context.reveal(value),
    }
}

/// A body with its secrets in place.
pub(super) fn reveal_body(context: &Context, value: &Value) -> Result<Value, TaskError> {
    Ok(match value {
        Value::String(text) => Value::String(context.reveal(text)?),
        Value::Array(items) => {
            let items: Result<_, _> = items.iter().map(|item| reveal_body(context, item)).collect();
            Value::Array(items?)
        }
        Value::Object(fields) => {
            let mut revealed = serde_json::Map::new();
            for (name, item) in fields {
                revealed.insert(name.clone(), reveal_body(context, item)?);
            }
            Value::Object(revealed)
        }
        other => other.clone(),
    })
}

/// Headers with their secrets in place, as the client takes them.
pub(super) fn reveal_headers<'a>(
    context: &Context,
    wanted: impl Iterator<Item = (&'a String, &'a String)>,
) -> Result<HeaderMap, TaskError> {
    let revealed = wanted
        .map(|(name, value)| Ok((name.as_str(), reveal_header(context, value)?)))
        .collect::<Result<Vec<_>, TaskError>>()?;
    http::headers(revealed.iter().map(|(name, value)| (*name, value.as_str())))
        .map_err(|error| failed(context, &error))
}
