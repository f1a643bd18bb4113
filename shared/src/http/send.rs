//! One physical request: its deadline, its span, its measurement.

use std::time::Instant as Clock;

use reqwest::header::HeaderValue;
use reqwest::{Client, Request, RequestBuilder, Response, Version};
use tokio::time::{Instant, timeout_at};

use super::error::{Error, authority};
use super::proxy::proxy_of;
use crate::telemetry::names::network;
use crate::telemetry::{metrics, spans};

/// Sends a request of a trusted client and waits for the answer's headers, until the deadline. Where
/// a proxy is on the way, an error of connecting names it.
pub async fn send(request: RequestBuilder, deadline: Instant) -> Result<Response, Error> {
    let (client, request) = split(request)?;
    let url = request.url().clone();
    let answer = observed(&client, request, deadline, Trace::Kept).await;
    answer.map_err(|error| match proxy_of(&url) {
        Some(proxy) => error.through(&proxy),
        None => error,
    })
}

/// The same without span and measurement: a probe of ourselves is nobody's work.
pub(crate) async fn send_unseen(
    request: RequestBuilder,
    deadline: Instant,
) -> Result<Response, Error> {
    let (client, request) = split(request)?;
    execute(&client, request, deadline).await
}

/// Whether the other side learns which trace it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trace {
    /// It does, unless the payload sends a `traceparent` of its own.
    Told,
    /// It does not: a model provider has no use for our ids.
    Kept,
}

/// Sends a request inside a span of its own, and measures it.
pub(super) async fn observed(
    client: &Client,
    mut request: Request,
    deadline: Instant,
    trace: Trace,
) -> Result<Response, Error> {
    let method = request.method().clone();
    let span = spans::http(method.as_str(), request.url(), 0);
    if trace == Trace::Told
        && !request.headers().contains_key("traceparent")
        && let Some(value) = span.traceparent().and_then(|it| HeaderValue::try_from(it).ok())
    {
        request.headers_mut().insert("traceparent", value);
    }

    let started = Clock::now();
    let answer = span.in_scope(execute(client, request, deadline)).await;
    let error_type = match &answer {
        Ok(response) => {
            let status = response.status();
            span.http_status(status.as_u16());
            span.set(network::PROTOCOL_VERSION, version(response.version()));
            (status.as_u16() >= 400).then(|| status.as_str().to_owned())
        }
        Err(error) => {
            span.fail(error.error_type(), error.to_string());
            Some(error.error_type().to_owned())
        }
    };
    metrics::http_request(method.as_str(), started.elapsed(), error_type.as_deref());
    answer
}

/// The protocol's version as the conventions write it.
fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

async fn execute(client: &Client, request: Request, deadline: Instant) -> Result<Response, Error> {
    let target = authority(request.url());
    match timeout_at(deadline, client.execute(request)).await {
        Ok(answer) => answer.map_err(|error| Error::of(error, &target)),
        Err(_) => Err(Error::Timeout { target, sent: true }),
    }
}

fn split(request: RequestBuilder) -> Result<(Client, Request), Error> {
    let (client, request) = request.build_split();
    Ok((client, request.map_err(|error| Error::of(error, "the host"))?))
}
