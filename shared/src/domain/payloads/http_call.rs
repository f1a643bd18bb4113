//! `http_call`: one HTTP request.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{Payload, duration, given, is_unrendered};

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Headers that the client sets itself: a payload that sets them could split one request into two.
const NOT_SETTABLE: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "proxy-authorization",
];

/// One HTTP request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpCall {
    /// Target.
    pub url: String,
    /// Method.
    #[serde(default = "get")]
    pub method: String,
    /// Headers; a value may be, or end with, `secret:NAME`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Added to the URL's query.
    #[serde(default)]
    pub query: BTreeMap<String, Value>,
    /// A text is sent as it is, anything else as JSON.
    #[serde(default, deserialize_with = "given")]
    pub body: Option<Value>,
    /// Status that counts as success; without it, any 2xx.
    #[serde(default)]
    pub expect_status: Option<Expected>,
    /// Longest time of the request.
    #[serde(default, deserialize_with = "duration")]
    pub timeout: Option<Duration>,
}

/// One status or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Expected {
    /// One.
    One(u16),
    /// Any of these.
    Any(Vec<u16>),
}

impl Expected {
    /// True for a status that counts as success.
    pub fn contains(&self, status: u16) -> bool {
        self.all().contains(&status)
    }

    fn all(&self) -> &[u16] {
        match self {
            Self::One(status) => std::slice::from_ref(status),
            Self::Any(all) => all,
        }
    }
}

fn get() -> String {
    "GET".to_owned()
}

impl HttpCall {
    /// True when repeating the request may repeat an effect.
    pub fn has_effect(&self) -> bool {
        !matches!(self.method.to_ascii_uppercase().as_str(), "GET" | "HEAD" | "OPTIONS")
    }
}

impl Payload for HttpCall {
    const TYPE: &'static str = "http_call";

    fn schema() -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "http_call",
            "description": "One HTTP request. 2xx completes the task; 408, 425, 429, 5xx and lost connections are tried again; other answers are final.",
            "type": "object",
            "required": ["url"],
            "additionalProperties": false,
            "properties": {
                "url": {"type": "string", "format": "uri", "description": "http:// or https://; private addresses need http.allow_hosts"},
                "method": {"type": "string", "enum": METHODS, "default": "GET", "description": "HTTP method"},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": "headers; a value may be secret:NAME or end with it, as in \"Bearer secret:NAME\""},
                "query": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}, "description": "added to the URL's query"},
                "body": {"description": "a text is sent as it is, anything else as JSON; texts may be secret:NAME"},
                "expect_status": {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}], "description": "status that counts as success; without it any 2xx"},
                "timeout": {"type": ["string", "number"], "description": "longest time of the request, such as 30s; at most the task's timeout"},
            },
            "examples": [
                {"url": "https://internal.example/order/sync"},
                {
                    "url": "https://api.example/v1/orders",
                    "method": "POST",
                    "headers": {"Authorization": "Bearer secret:orders_token"},
                    "body": {"date": "{{ scheduled_date }}"},
                    "expect_status": [200, 201],
                    "timeout": "30s",
                },
            ],
        })
    }

    fn judge(&self) -> Result<(), String> {
        if !is_unrendered(&self.url) {
            judge_url(&self.url)?;
        }
        let method = self.method.to_ascii_uppercase();
        if !METHODS.contains(&method.as_str()) {
            return Err(format!("method {:?} is none of {}", self.method, METHODS.join(", ")));
        }
        if self.body.is_some() && matches!(method.as_str(), "GET" | "HEAD") {
            return Err(format!("{method} carries no body; say \"method\": \"POST\", or drop it"));
        }
        self.headers.iter().try_for_each(|(name, value)| judge_header(name, value))?;
        for (name, value) in &self.query {
            if value.is_object() || value.is_array() || value.is_null() {
                return Err(format!("query.{name} is not a text, number or true/false"));
            }
        }
        // No request ends in no time: each attempt would fail.
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err("timeout must be longer than 0; drop it to have the task's".to_owned());
        }
        let statuses = self.expect_status.iter().flat_map(Expected::all);
        match statuses.copied().find(|status| !(100..600).contains(status)) {
            Some(status) => Err(format!("expect_status {status} is no HTTP status")),
            None => Ok(()),
        }
    }
}

fn judge_url(text: &str) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("url {text:?} is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("url has the scheme {}, not http or https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("url holds credentials, and payloads are kept and shown; put them under \
                    secrets: and say \"headers\": {\"Authorization\": \"secret:NAME\"}"
            .to_owned());
    }
    Ok(())
}

fn judge_header(name: &str, value: &str) -> Result<(), String> {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(token) {
        return Err(format!("header {name:?} is not a valid name"));
    }
    if NOT_SETTABLE.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("header {name:?} is set by the client itself; drop it"));
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(format!("header {name:?} has a value with line breaks or control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(payload: &Value, expected: &str) {
        let seen = HttpCall::read(payload).map_or_else(|error| error, |_| "ok".to_owned());
        assert!(seen.contains(expected), "{payload}: {seen}");
    }

    #[test]
    fn what_no_server_would_understand_is_refused_at_publish() {
        let with = |field: &str, value: Value| json!({"url": "https://a.example", field: value});
        check(&json!({"url": "https://a.example"}), "ok");
        check(&json!({}), "missing field `url`");
        check(&json!({"url": "a.example"}), "is no URL");
        check(&json!({"url": "file:///etc/passwd"}), "scheme file");
        check(&json!({"url": "https://u:p@a.example"}), "secret:NAME");
        check(&json!({"url": "https://{{ schedule }}.example:port"}), "ok");
        check(&json!({"url": "${BASE}/sync"}), "ok");
        check(&with("method", json!("post")), "ok");
        check(&with("method", json!("FETCH")), "none of GET");
        check(&with("body", json!({"a": 1})), "carries no body");
        check(&with("headers", json!({"Host": "b"})), "set by the client");
        check(&with("headers", json!({"transfer-encoding": "chunked"})), "set by the client");
        check(&with("headers", json!({"X-A": "a\r\nX-B: c"})), "line breaks");
        check(&with("headers", json!({"X A": "a"})), "not a valid name");
        check(&with("query", json!({"a": [1]})), "query.a");
        check(&with("expect_status", json!(204)), "ok");
        check(&with("expect_status", json!([200, 700])), "700");
        check(&with("timeout", json!("500ms")), "ok");
        check(&with("timeout", json!(2.5)), "ok");
        check(&with("timeout", json!("0s")), "timeout must be longer than 0");
        check(&with("timeout", json!(0)), "timeout must be longer than 0");
        check(&with("timeout", json!("soon")), "expected seconds");
    }
}
