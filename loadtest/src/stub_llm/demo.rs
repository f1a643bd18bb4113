//! The plain endpoints that `http_call` meets: echoes, failures on demand, a sink for alerts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Most alerts and effects that are kept.
const KEPT: usize = 10_000;

/// Counters of these endpoints.
#[derive(Debug, Default)]
pub(super) struct Demo(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    flaky: BTreeMap<String, u32>,
    alerts: Vec<Value>,
    effects: Effects,
}

/// What `/effects` has seen: requests by idempotency key.
#[derive(Clone, Debug, Default, Serialize)]
struct Effects {
    requests: u64,
    /// Requests of each key: the keys are the effects.
    keys: BTreeMap<String, u64>,
}

impl Demo {
    /// Requests to `/effects` by their idempotency key.
    pub fn effects(&self) -> BTreeMap<String, u64> {
        self.lock().effects.keys.clone()
    }

    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    pub fn alerts(&self) -> usize {
        self.lock().alerts.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn router() -> Router<Arc<super::State>> {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/echo", any(echo))
        .route("/flaky", any(flaky))
        .route("/always/{status}", any(status))
        .route("/status/{status}", any(status))
        .route("/slow", any(slow))
        .route("/bytes", get(bytes))
        .route("/redirect", any(redirect))
        .route("/alerts", get(alerts).post(alert))
        .route("/effects", get(effects).post(effect))
}

/// Says what arrived.
async fn echo(
    method: Method,
    uri: Uri,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Json<Value> {
    let headers: BTreeMap<&str, String> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into()))
        .collect();
    let text = String::from_utf8_lossy(&body);
    let body = serde_json::from_slice(&body).unwrap_or_else(|_| Value::String(text.into()));
    Json(json!({
        "method": method.as_str(), "path": uri.path(), "query": query, "headers": headers, "body": body,
    }))
}

#[derive(Debug, Deserialize)]
struct Flaky {
    #[serde(default)]
    key: String,
    #[serde(default = "once")]
    fail: u32,
}

fn once() -> u32 {
    1
}

/// 503 for the first `fail` requests of a key, then 200.
async fn flaky(State(state): State<Arc<super::State>>, Query(asked): Query<Flaky>) -> Response {
    let mut demo = state.demo.lock();
    let seen = demo.flaky.entry(asked.key.clone()).or_default();
    *seen += 1;
    let body = json!({"key": asked.key, "request": *seen, "fails": asked.fail});
    let status = if *seen <= asked.fail { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, Json(body)).into_response()
}

/// That status, whatever is asked.
async fn status(Path(status): Path<u16>) -> Response {
    match StatusCode::from_u16(status).ok().filter(|_| status >= 200) {
        Some(code) => (code, format!("status {status}\n")).into_response(),
        None => (StatusCode::BAD_REQUEST, "no such status\n").into_response(),
    }
}

#[derive(Debug, Deserialize)]
struct Number {
    #[serde(default)]
    ms: u64,
    #[serde(default)]
    n: usize,
}

/// Answers after `ms` milliseconds.
async fn slow(Query(Number { ms, .. }): Query<Number>) -> Json<Value> {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Json(json!({ "slept_ms": ms }))
}

/// `n` bytes of text.
async fn bytes(Query(Number { n, .. }): Query<Number>) -> String {
    "x".repeat(n.min(64 << 20))
}

#[derive(Debug, Deserialize)]
struct Target {
    to: String,
}

/// Sends the caller elsewhere.
async fn redirect(Query(Target { to }): Query<Target>) -> Response {
    (StatusCode::FOUND, [("location", to)]).into_response()
}

/// Takes an alert, as a webhook does.
async fn alert(State(state): State<Arc<super::State>>, body: Bytes) -> StatusCode {
    let text = || Value::String(String::from_utf8_lossy(&body).into());
    let alert = serde_json::from_slice(&body).unwrap_or_else(|_| text());
    let entry = json!({"time": shared::domain::clock::now(), "body": alert});
    let mut demo = state.demo.lock();
    if demo.alerts.len() < KEPT {
        demo.alerts.push(entry);
    }
    StatusCode::OK
}

/// The alerts so far.
async fn alerts(State(state): State<Arc<super::State>>) -> Json<Vec<Value>> {
    Json(state.demo.lock().alerts.clone())
}

#[derive(Debug, Deserialize)]
struct Manner {
    /// Milliseconds between the effect and its answer.
    #[serde(default)]
    ms: u64,
    /// The same answer to every request, first or not.
    #[serde(default)]
    quiet: bool,
}

/// An effect that happens once per `Idempotency-Key`, as a careful service does it.
async fn effect(
    state: State<Arc<super::State>>,
    Query(manner): Query<Manner>,
    headers: HeaderMap,
) -> Response {
    let answer = count_effect(&state, &headers);
    tokio::time::sleep(Duration::from_millis(manner.ms)).await;
    if manner.quiet && answer.status().is_success() {
        return Json(json!({"done": true})).into_response();
    }
    answer
}

fn count_effect(state: &super::State, headers: &HeaderMap) -> Response {
    let Some(key) = headers.get("idempotency-key").and_then(|value| value.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "no Idempotency-Key\n").into_response();
    };
    let mut demo = state.demo.lock();
    demo.effects.requests += 1;
    if demo.effects.keys.len() >= KEPT && !demo.effects.keys.contains_key(key) {
        return (StatusCode::INSUFFICIENT_STORAGE, "too many keys; POST /reset\n").into_response();
    }
    let requests = demo.effects.keys.entry(key.to_owned()).or_default();
    *requests += 1;
    Json(json!({"key": key, "first": *requests == 1})).into_response()
}

/// The effects so far.
async fn effects(State(state): State<Arc<super::State>>) -> Json<Value> {
    let effects = state.demo.lock().effects.clone();
    Json(json!({"effects": effects.keys.len(), "requests": effects.requests, "keys": effects.keys}))
}
