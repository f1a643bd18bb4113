//! Spans of calls that leave the house: models, HTTP, databases. Always children of the scope.

use std::time::Duration;

use opentelemetry::trace::SpanKind;
use opentelemetry::{Array, StringValue, Value};
use serde_json::Value as Json;
use url::Url;

use super::guard::{Draft, Parent, Span};
use crate::telemetry::captures_content;
use crate::telemetry::names::{self, belfry, db, gen_ai};

/// Longest text of a prompt or answer on a span; the whole of it is in the call's row.
const MAX_CONTENT_CHARS: usize = 4096;

/// The other side of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server<'a> {
    /// Host name or address.
    pub host: &'a str,
    /// Port.
    pub port: u16,
}

/// A model call about to be made: the logical operation, its in-process repeats included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chat<'a> {
    /// Model asked for.
    pub model: &'a str,
    /// `openai`, `anthropic`, `ollama`, … as in the conventions.
    pub provider: &'a str,
    /// Where.
    pub server: Option<Server<'a>>,
    /// Limit of the answer.
    pub max_tokens: Option<u32>,
    /// Temperature.
    pub temperature: Option<f64>,
    /// The answer is streamed.
    pub stream: bool,
    /// Seed.
    pub seed: Option<i64>,
    /// How long the model is to think.
    pub reasoning_effort: Option<&'a str>,
    /// Only JSON will do.
    pub json: bool,
    /// The agent session, if there is one.
    pub conversation: Option<&'a str>,
    /// Its step, in a session.
    pub step: Option<&'a str>,
    /// Row that keeps prompt and answer.
    pub call_id: Option<&'a str>,
    /// How long it waited for the fleet's quotas.
    pub waited: Duration,
}

/// What came back from a model.
#[derive(Clone, Debug, Default)]
pub struct ChatAnswer {
    /// The provider's id of the answer.
    pub id: Option<String>,
    /// Model that answered.
    pub model: Option<String>,
    /// Why each choice ended.
    pub finish_reasons: Vec<String>,
    /// Input tokens, cached ones included.
    pub input_tokens: Option<u64>,
    /// Output tokens, reasoning included.
    pub output_tokens: Option<u64>,
    /// Input tokens read from the provider's cache.
    pub cache_read_tokens: Option<u64>,
    /// Input tokens written to the provider's cache.
    pub cache_write_tokens: Option<u64>,
    /// Output tokens spent on reasoning.
    pub reasoning_tokens: Option<u64>,
    /// The provider's mark of what ran.
    pub fingerprint: Option<String>,
    /// Until the first piece of a stream.
    pub first_chunk: Option<Duration>,
    /// From each piece of a stream to the next; for metrics only.
    pub chunk_gaps: Vec<Duration>,
    /// What it cost.
    pub cost_usd: Option<f64>,
    /// Physical requests made.
    pub attempts: u32,
}

/// A call of a model.
pub fn chat(call: &Chat<'_>) -> Span {
    server(Draft::new(format!("chat {}", call.model), SpanKind::Client), call.server)
        .with(gen_ai::OPERATION, "chat")
        .with(gen_ai::PROVIDER, call.provider.to_owned())
        .with(gen_ai::REQUEST_MODEL, call.model.to_owned())
        .with_some(gen_ai::REQUEST_MAX_TOKENS, call.max_tokens.map(i64::from))
        .with_some(gen_ai::REQUEST_TEMPERATURE, call.temperature)
        .with_some(gen_ai::REQUEST_STREAM, call.stream.then_some(true))
        .with_some(gen_ai::REQUEST_SEED, call.seed)
        .with_some(gen_ai::REASONING_LEVEL, call.reasoning_effort.map(str::to_owned))
        .with(gen_ai::OUTPUT_TYPE, if call.json { "json" } else { "text" })
        .with_some(gen_ai::CONVERSATION_ID, call.conversation.map(str::to_owned))
        .with_some(belfry::STEP, call.step.map(str::to_owned))
        .with_some(belfry::LLM_CALL_ID, call.call_id.map(str::to_owned))
        .with(belfry::LLM_WAIT_MS, i64::try_from(call.waited.as_millis()).unwrap_or(i64::MAX))
        .start(&Parent::Scope)
}

/// A tool that a model asked for, about to run.
#[derive(Clone, Copy, Debug)]
pub struct ExecuteTool<'a> {
    /// What the model calls it.
    pub name: &'a str,
    /// Id of the call in the model's answer.
    pub call_id: &'a str,
    /// The agent session.
    pub conversation: &'a str,
    /// Its step.
    pub step: &'a str,
}

/// A tool of an agent session.
pub fn execute_tool(call: &ExecuteTool<'_>) -> Span {
    Draft::new(format!("execute_tool {}", call.name), SpanKind::Internal)
        .with(gen_ai::OPERATION, "execute_tool")
        .with(gen_ai::TOOL_NAME, call.name.to_owned())
        .with(gen_ai::TOOL_TYPE, "function")
        .with(gen_ai::TOOL_CALL_ID, call.call_id.to_owned())
        .with(gen_ai::CONVERSATION_ID, call.conversation.to_owned())
        .with(belfry::STEP, call.step.to_owned())
        .start(&Parent::Scope)
}

/// The wait for a quota before a call of so many tokens at most.
pub fn admit(model: &str, tokens: i64) -> Span {
    Draft::new(format!("admit {model}"), SpanKind::Internal)
        .with(gen_ai::REQUEST_MODEL, model.to_owned())
        .with(belfry::QUOTA_EST_TOKENS, tokens)
        .start(&Parent::Scope)
}

/// One physical HTTP request. `resend` counts repeats, from 1; 0 is the first.
pub fn http(method: &str, url: &Url, resend: u32) -> Span {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    // The method alone: a raw path would make a name of every id.
    server(Draft::new(method.to_owned(), SpanKind::Client), Some(Server { host, port }))
        .with(names::http::METHOD, method.to_owned())
        .with(names::http::URL, public_url(url))
        .with_some(names::http::RESEND_COUNT, (resend > 0).then_some(i64::from(resend)))
        .start(&Parent::Scope)
}

/// A query of a named source; `summary` is low in variety, such as `SELECT orders`.
pub fn db_query(source: &str, summary: &str, text: &str) -> Span {
    let operation = summary.split_whitespace().next().unwrap_or_default().to_owned();
    let name = if summary.is_empty() { db::POSTGRESQL } else { summary };
    Draft::new(name.to_owned(), SpanKind::Client)
        .with(db::SYSTEM, db::POSTGRESQL)
        .with(db::NAMESPACE, source.to_owned())
        .with(db::OPERATION, operation)
        .with(db::QUERY_SUMMARY, summary.to_owned())
        .with(db::QUERY_TEXT, text.to_owned())
        .start(&Parent::Scope)
}

impl Span {
    /// Sets the answer's status; 4xx and 5xx fail a client's span.
    pub fn http_status(&self, status: u16) {
        self.set(names::http::STATUS, i64::from(status));
        if status >= 400 {
            self.fail(&status.to_string(), "");
        }
    }

    /// Sets prompt and answer, in the conventions' message form, if and only if it was asked for by
    /// `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`.
    pub fn chat_content(&self, input: &Json, output: &Json) {
        if captures_content() {
            self.set(gen_ai::INPUT_MESSAGES, shortened(input).to_string());
            self.set(gen_ai::OUTPUT_MESSAGES, shortened(output).to_string());
        }
    }

    /// Sets a tool's arguments and what it answered, under the same condition.
    pub fn tool_content(&self, arguments: &str, result: &str) {
        if captures_content() {
            let shown = |text: &str| match shortened(&Json::String(text.to_owned())) {
                Json::String(text) => text,
                other => other.to_string(),
            };
            self.set(gen_ai::TOOL_ARGUMENTS, shown(arguments));
            self.set(gen_ai::TOOL_RESULT, shown(result));
        }
    }

    /// Sets what is known of a model's answer.
    pub fn chat_answer(&self, answer: &ChatAnswer) {
        let texts = [
            (gen_ai::RESPONSE_ID, &answer.id),
            (gen_ai::RESPONSE_MODEL, &answer.model),
            (gen_ai::FINGERPRINT, &answer.fingerprint),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                self.set(name, value.clone());
            }
        }
        let counts = [
            (gen_ai::INPUT_TOKENS, answer.input_tokens),
            (gen_ai::OUTPUT_TOKENS, answer.output_tokens),
            (gen_ai::CACHE_READ_TOKENS, answer.cache_read_tokens),
            (gen_ai::CACHE_WRITE_TOKENS, answer.cache_write_tokens),
            (gen_ai::REASONING_TOKENS, answer.reasoning_tokens),
        ];
        for (name, value) in counts {
            if let Some(value) = value {
                self.set(name, i64::try_from(value).unwrap_or(i64::MAX));
            }
        }
        if !answer.finish_reasons.is_empty() {
            let reasons = answer.finish_reasons.iter().cloned().map(StringValue::from).collect();
            self.set(gen_ai::FINISH_REASONS, Value::Array(Array::String(reasons)));
        }
        if let Some(first) = answer.first_chunk {
            self.set(gen_ai::TIME_TO_FIRST_CHUNK, first.as_secs_f64());
        }
        if let Some(cost) = answer.cost_usd {
            self.set(belfry::LLM_COST_USD, cost);
        }
        if answer.attempts > 0 {
            self.set(belfry::LLM_ATTEMPTS, i64::from(answer.attempts));
        }
    }
}

/// A copy of messages in which no text is longer than [`MAX_CONTENT_CHARS`], so that the JSON stays
/// whole and a batch of spans stays below the exporters' limit.
fn shortened(messages: &Json) -> Json {
    match messages {
        Json::String(text) => match text.char_indices().nth(MAX_CONTENT_CHARS) {
            Some((cut, _)) => Json::String(format!("{}…", &text[..cut])),
            None => messages.clone(),
        },
        Json::Array(items) => items.iter().map(shortened).collect(),
        Json::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), shortened(value))).collect()
        }
        other => other.clone(),
    }
}

/// Adds the other side.
fn server(draft: Draft, server: Option<Server<'_>>) -> Draft {
    draft
        .with_some(names::SERVER_ADDRESS, server.map(|server| server.host.to_owned()))
        .with_some(names::SERVER_PORT, server.map(|server| i64::from(server.port)))
}

/// A URL without what may be secret: user, password, query, fragment.
fn public_url(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs that carry no user part at all.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_in_a_span_holds_no_secret() {
        let url =
            Url::parse("https://user:pass@api.example:8443/v1/x?key=secret#frag").expect("url");
        assert_eq!(public_url(&url), "https://api.example:8443/v1/x");
    }

    #[test]
    fn long_content_is_cut_inside_its_json() {
        let long = "ü".repeat(MAX_CONTENT_CHARS + 1);
        let messages = serde_json::json!([{"role": "user", "parts": [{"content": long, "n": 1}]}]);
        let cut = shortened(&messages);
        let text = cut[0]["parts"][0]["content"].as_str().expect("text");
        assert_eq!(text.chars().count(), MAX_CONTENT_CHARS + 1);
        assert!(text.ends_with("ü…") && cut[0]["role"] == "user" && cut[0]["parts"][0]["n"] == 1);
    }
}
