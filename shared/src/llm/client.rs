//! The client: which endpoint a model has, one request, and what its answer is.
//!
//! It keeps no journal; [`super::chat`] does, around it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use crate::config::{Config, Price};
use crate::domain::clock;
use crate::http::{self, Client, Response};
use tokio::time::Instant;
use uuid::Uuid;

use super::answer::ChatAnswer;
use super::body::{self, ErrorBody};
use super::classify::{self, Seen};
use super::endpoint::Endpoint;
use super::error::LlmError;
use super::hint::wait_hint;
use super::request::{ChatRequest, LimitName};

/// Longest answer that is read: a megabyte of text and its frame many times over.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// Longest error body that is read.
const MAX_ERROR_BYTES: usize = 256 * 1024;

/// The configured endpoints. Clones share connections and what was learnt.
#[derive(Clone, Debug)]
pub struct Models(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Result<Client, LlmError>,
    default_model: Option<String>,
    default_endpoint: Result<Endpoint, LlmError>,
    /// By model.
    endpoints: BTreeMap<String, Result<Endpoint, LlmError>>,
    prices: BTreeMap<String, Price>,
    timeout: Duration,
    /// Models that want `max_completion_tokens`.
    renamed_limit: Mutex<BTreeSet<String>>,
}

/// A question with its place.
#[derive(Debug)]
pub struct Prepared<'a> {
    pub request: &'a ChatRequest,
    pub model: String,
    pub endpoint: &'a Endpoint,
    pub hash: Vec<u8>,
}

impl Models {
    /// The endpoints of a configuration. What is missing or wrong is an error where it is used: a
    /// worker without models serves all other tasks.
    pub fn from_config(config: &Config) -> Self {
        let model = &config.model;
        let default_endpoint = match &model.base_url {
            Some(base) => Endpoint::new(base, model.api_key.as_ref()),
            None => Err(LlmError::Config(
                "no model endpoint is configured; set model.base_url in belfry.yaml or MODEL_BASE_URL"
                    .to_owned(),
            )),
        };
        let endpoints = model.endpoints.values().flat_map(|endpoint| {
            let place = Endpoint::new(&endpoint.base_url, endpoint.api_key.as_ref());
            endpoint.models.iter().map(move |model| (model.clone(), place.clone()))
        });
        Self(Arc::new(Inner {
            client: http::trusted_client().map_err(|error| LlmError::Config(error.to_string())),
            default_model: model.default_model.clone(),
            default_endpoint,
            endpoints: endpoints.collect(),
            prices: model.prices.clone(),
            timeout: model.timeout,
            renamed_limit: Mutex::default(),
        }))
    }

    /// The model of a question and where it is asked.
    pub fn prepare<'a>(
        &'a self,
        request: &'a ChatRequest,
    ) -> Result<Prepared<'a>, LlmError> {
        let model = request.model.as_ref().or(self.0.default_model.as_ref()).ok_or_else(|| {
            LlmError::Config(
                "no model is named; say one in the payload, or set model.default_model in \
                 belfry.yaml or MODEL_NAME"
                    .to_owned(),
            )
        })?;
        let place = self.0.endpoints.get(model).unwrap_or(&self.0.default_endpoint);
        let endpoint = place.as_ref().map_err(Clone::clone)?;
        let hash = request.hash(model, &endpoint.url);
        Ok(Prepared { request, model: model.clone(), endpoint, hash })
    }

    /// Longest time of one call.
    pub fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// What tokens cost in millionths of a US dollar; `None` without a price.
    pub fn cost_micro(&self, model: &str, input: i64, output: i64) -> Option<i64> {
        let price = self.0.prices.get(model)?;
        Some((input as f64 * price.input + output as f64 * price.output).round() as i64)
    }

    /// Sends one request and reads its answer. Nothing is repeated here.
    pub async fn ask(
        &self,
        call: &Prepared<'_>,
        id: Uuid,
        traceparent: Option<&str>,
        deadline: Instant,
    ) -> Result<ChatAnswer, LlmError> {
        let client = self.0.client.as_ref().map_err(Clone::clone)?;
        let wire = call.request.wire(&call.model, self.limit_name(&call.model));
        let mut request = client
            .post(call.endpoint.url.clone())
            .header("idempotency-key", id.to_string())
            .json(&wire);
        if let Some((name, value)) = call.endpoint.auth()? {
            request = request.header(name, value);
        }
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        let response = http::send(request, deadline).await.map_err(network)?;
        let answer = self.read(call, response, deadline).await;
        if let Err(LlmError::LimitName { .. }) = &answer {
            self.renamed().insert(call.model.clone());
        }
        answer
    }

    async fn read(
        &self,
        call: &Prepared<'_>,
        response: Response,
        deadline: Instant,
    ) -> Result<ChatAnswer, LlmError> {
        let status = response.status().as_u16();
        let (target, url) = (call.endpoint.target(), call.endpoint.shown());
        let after = wait_hint(response.headers(), clock::now());
        let seen = Seen { target: &target, url: &url, status, after };
        let kind = response.headers().get(http::header::CONTENT_TYPE);
        let html =
            kind.and_then(|kind| kind.to_str().ok()).is_some_and(|k| k.contains("text/html"));

        if status >= 300 {
            // The status says enough, should the body break off.
            let bytes = http::read_limited(response, MAX_ERROR_BYTES, deadline).await;
            let mut error = ErrorBody::of(&bytes.unwrap_or_default());
            error.message = call.endpoint.redact(&error.message);
            return Err(classify::error_of(&seen, &error));
        }
        let bytes =
            http::read_limited(response, MAX_ANSWER_BYTES, deadline).await.map_err(network)?;
        let said = || call.endpoint.redact(&body::quote(&bytes));
        let Some(value) = body::json(&bytes) else {
            let html = html || body::looks_like_html(&String::from_utf8_lossy(&bytes));
            return Err(classify::unreadable(&seen, html, said()));
        };
        if let Some(error) = error_inside(&value) {
            let mut error = ErrorBody::of_value(error);
            error.message = call.endpoint.redact(&error.message);
            return Err(classify::error_in_200(&seen, &error));
        }
        ChatAnswer::of(&value, &call.model, call.request).ok_or_else(|| LlmError::Malformed {
            target: target.clone(),
            message: format!("no choices: {}", said()),
        })
    }

    fn limit_name(&self, model: &str) -> LimitName {
        if self.renamed().contains(model) {
            return LimitName::MaxCompletionTokens;
        }
        LimitName::MaxTokens
    }

    fn renamed(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.renamed_limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a 200 that answers nothing: at the top, or in the place of a message.
fn error_inside(value: &Value) -> Option<&Value> {
    let choice = &value["choices"][0];
    if choice["message"]["content"].is_string() {
        return None;
    }
    if value["error"].is_object() || value["error"].is_string() {
        return Some(value);
    }
    let flat = value["object"] == "error" || value["type"] == "error";
    if flat { Some(value) } else { Some(choice).filter(|choice| choice["error"].is_object()) }
}

/// From the network: was anything sent?
fn network(error: http::Error) -> LlmError {
    let cause = error.to_string();
    match error {
        http::Error::Setup(_)
        | http::Error::Url(_)
        | http::Error::Header { .. }
        | http::Error::Blocked(_)
        | http::Error::Redirect { .. }
        | http::Error::TooLarge { .. } => LlmError::Config(cause),
        error if error.outcome_unknown() => LlmError::Unknown { cause },
        _ => LlmError::Unreachable { cause },
    }
}
