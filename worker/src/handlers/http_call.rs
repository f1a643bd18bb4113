//! `http_call`: one HTTP request; its answer is the result.

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use shared::domain::outcome::TaskError;
use shared::domain::payloads::{self, Payload};
use shared::http::{Call, HeaderValue, Method, Url, header};

use super::web::{Answer, Web, reveal_body, reveal_headers};
use crate::context::Context;
use crate::handler::Handler;

/// Headers of an answer that are kept.
const KEPT_HEADERS: [&str; 7] =
    ["content-type", "date", "etag", "last-modified", "location", "retry-after", "x-request-id"];

/// See the module.
pub(super) struct HttpCall {
    web: Web,
}

impl HttpCall {
    pub fn new(web: Web) -> Self {
        Self { web }
    }
}

#[async_trait]
impl Handler for HttpCall {
    fn task_type(&self) -> &'static str {
        payloads::HttpCall::TYPE
    }

    fn summary(&self) -> &'static str {
        "one HTTP request; its answer is the result"
    }

    fn schema(&self) -> Value {
        payloads::HttpCall::schema()
    }

    fn check(&self, payload: &Value) -> Result<(), String> {
        payloads::HttpCall::read(payload).map(drop)
    }

    async fn run(&self, context: &Context, payload: Value) -> Result<Value, TaskError> {
        let asked = payloads::HttpCall::read(&payload).map_err(TaskError::invalid)?;
        let call = call_of(context, &asked)?;
        let answer = self.web.send(context, call, asked.timeout).await?;
        let success = match &asked.expect_status {
            Some(expected) => expected.contains(answer.status),
            None => (200..300).contains(&answer.status),
        };
        if success { Ok(result_of(context, &answer)) } else { Err(answer.refusal(context)) }
    }
}

fn call_of(context: &Context, asked: &payloads::HttpCall) -> Result<Call, TaskError> {
    let invalid = |error: &dyn std::fmt::Display| TaskError::invalid(format!("url: {error}"));
    let mut url = Url::parse(&asked.url).map_err(|error| invalid(&error))?;
    for (name, value) in &asked.query {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        url.query_pairs_mut().append_pair(name, &context.reveal(&text)?);
    }
    let method = Method::from_bytes(asked.method.to_ascii_uppercase().as_bytes());
    let method = method.map_err(|error| TaskError::invalid(error.to_string()))?;
    let mut headers = reveal_headers(context, asked.headers.iter())?;
    let body = asked.body.as_ref().map(|body| reveal_body(context, body)).transpose()?;
    let (body, media_type) = match body {
        None => (None, None),
        Some(Value::String(text)) => (Some(text), Some("text/plain; charset=utf-8")),
        Some(other) => (Some(other.to_string()), Some("application/json")),
    };
    if let Some(media_type) = media_type {
        headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(media_type));
    }
    if asked.has_effect() {
        let key = HeaderValue::from_str(context.idempotency_key());
        let key = key.map_err(|error| TaskError::permanent(error.to_string()))?;
        headers.entry("idempotency-key").or_insert(key);
    }
    Ok(Call { method, url, headers, body: body.map(Into::into) })
}

fn result_of(context: &Context, answer: &Answer) -> Value {
    let headers: Map<String, Value> = KEPT_HEADERS
        .into_iter()
        .filter_map(|name| {
            let value = answer.headers.get(name)?.to_str().ok()?;
            Some((name.to_owned(), context.redact(value).into()))
        })
        .collect();
    let mut result =
        json!({"status": answer.status, "headers": headers, "body": answer.body(context)});
    if answer.truncated {
        result["truncated"] = true.into();
    }
    result
}
