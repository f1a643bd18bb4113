//! The chat endpoint: log the call, take the next fault, answer accordingly.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::answer::Question;
use super::fault::Fault;
use super::journal::Call;
use super::render::{Rendered, Sent, render};
use super::session;

/// A request's own fault, in place of a script: a JSON step.
const FAULT_HEADER: &str = "x-stub-step";

/// `POST …/chat/completions` below any prefix; 404 for anything else, in words.
pub(super) async fn any_path(
    state: State<Arc<super::State>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path();
    let well_formed = !path.contains("//") && !path.contains("/v1/v1");
    if method == Method::POST && path.ends_with("/chat/completions") && well_formed {
        return completions(state, uri, headers, body).await;
    }
    (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
}

/// `POST /chat/completions`.
pub(super) async fn completions(
    State(state): State<Arc<super::State>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body: Value = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(error) => return refuse(400, &format!("the request is not JSON: {error}")),
    };
    let question = Question::of(&body);
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let call = Call {
        time: shared::domain::clock::now(),
        path: uri.to_string(),
        model: question.model.clone(),
        question: question.hash().to_owned(),
        idempotency_key: text("idempotency-key"),
        traceparent: text("traceparent"),
        stream: question.stream,
        max_tokens: question.max_tokens,
        messages: question.messages,
        ending: question.ending.clone(),
        status: None,
        input_tokens: question.input_tokens,
        output_tokens: 0,
    };
    let at = state.journal.arrived(call.clone());

    if !is_admitted(&state, &headers) {
        state.journal.answered(at, &call, 401, 0);
        return unauthorized();
    }
    let fault = match text(FAULT_HEADER).map(|step| serde_json::from_str::<Fault>(&step)) {
        None => state.scripts.next(&question.model, question.hash()),
        Some(Ok(fault)) => fault,
        Some(Err(error)) => return refuse(400, &format!("{FAULT_HEADER}: {error}")),
    };
    let fault = session::play(fault, &body);
    tokio::time::sleep(state.options.latency + Duration::from_millis(fault.hang_ms)).await;
    let rendered = render(&fault, &question);
    state.journal.answered(at, &call, rendered.status, rendered.output_tokens);
    respond(&fault, rendered)
}

fn is_admitted(state: &super::State, headers: &HeaderMap) -> bool {
    let Some(key) = &state.options.api_key else { return true };
    let given = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = given("authorization").and_then(|value| value.strip_prefix("Bearer "));
    bearer.or_else(|| given("api-key")) == Some(key)
}

fn unauthorized() -> Response {
    let body = json!({"error": {
        "message": "Incorrect API key provided", "type": "invalid_request_error",
        "param": null, "code": "invalid_api_key",
    }});
    (StatusCode::UNAUTHORIZED, Json(body)).into_response()
}

fn respond(fault: &Fault, rendered: Rendered) -> Response {
    let mut builder = Response::builder()
        .status(rendered.status)
        .header(header::CONTENT_TYPE, &rendered.content_type);
    if let Some(after) = &fault.retry_after {
        let text = after.as_str().map_or_else(|| after.to_string(), str::to_owned);
        builder = builder.header(header::RETRY_AFTER, text);
    }
    for (name, value) in &fault.headers {
        builder = builder.header(name, value);
    }
    let body = match (rendered.body, fault.cut_after) {
        (Sent::Events(events), _) => streamed(fault, events),
        (Sent::Whole(body), Some(bytes)) => {
            builder = builder.header(header::CONTENT_LENGTH, body.len() + 1);
            cut(&body, bytes)
        }
        (Sent::Whole(body), None) if fault.drip_ms > 0 => {
            dripping(body, Duration::from_millis(fault.drip_ms))
        }
        (Sent::Whole(body), None) => Body::from(body),
    };
    builder.body(body).unwrap_or_else(|error| refuse(500, &format!("the step is wrong: {error}")))
}

/// Events one by one, up to where the fault says.
fn streamed(fault: &Fault, mut events: Vec<String>) -> Body {
    let stream = fault.stream.clone();
    let pause = Duration::from_millis(stream.pause_ms.max(1));
    let cut = stream.cut_after.filter(|at| *at < events.len());
    events.truncate(cut.unwrap_or(events.len()));
    let sent = futures::stream::iter(events).then(move |event| async move {
        tokio::time::sleep(pause).await;
        Ok::<_, std::io::Error>(Bytes::from(event))
    });
    let end = futures::stream::once(async move {
        // What was said goes out before the connection breaks.
        tokio::time::sleep(pause).await;
        if stream.stay_open {
            std::future::pending::<()>().await;
        }
        let broken = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "cut by the stub");
        if cut.is_some() { Err(broken) } else { Ok(Bytes::new()) }
    });
    Body::from_stream(sent.chain(end))
}

/// A body byte by byte.
fn dripping(body: String, pause: Duration) -> Body {
    let bytes = futures::stream::iter(body.into_bytes()).then(move |byte| async move {
        tokio::time::sleep(pause).await;
        Ok::<_, Infallible>(Bytes::from(vec![byte]))
    });
    Body::from_stream(bytes)
}

/// A body that breaks off: its connection is closed before the promised length.
fn cut(body: &str, bytes: usize) -> Body {
    let part = Bytes::copy_from_slice(&body.as_bytes()[..bytes.min(body.len())]);
    let broken = futures::stream::iter([
        Ok(part),
        Err(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "cut by the stub")),
    ]);
    // Without a pause the headers would never leave, and a cut would look like a refusal.
    Body::from_stream(broken.then(|piece| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        piece
    }))
}

fn refuse(status: u16, message: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(json!({"error": {"message": message, "type": "invalid_request_error"}})))
        .into_response()
}

/// `GET /v1/models`: one that answers and a few that do not.
pub(super) async fn models() -> Result<Json<Value>, Infallible> {
    let names = ["stub-mini", "stub-429x1", "stub-500x1", "stub-hang", "stub-empty"];
    let models: Vec<Value> =
        names.iter().map(|id| json!({"id": id, "object": "model", "owned_by": "stub"})).collect();
    Ok(Json(json!({"object": "list", "data": models})))
}
