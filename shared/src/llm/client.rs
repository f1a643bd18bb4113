//! The client: which endpoint a model has, one request, and what its answer is.
//!
//! It keeps no journal; `worker::llm` does, around it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::answer::ChatAnswer;
use super::endpoint::{Endpoint, Said, Settings};
use super::error::{LlmError, Part};
use super::reading::{Reading, network};
use super::request::{ChatRequest, LimitName, MAX_REQUEST_BYTES};
use super::usage::TokenUsage;
use crate::config::{Config, Price};
use crate::http::{self, Client};
use crate::redact::Secrets;

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
    /// By model: who stands in for it.
    fallback: BTreeMap<String, Vec<String>>,
    timeout: Duration,
    /// Models that want `max_completion_tokens`.
    renamed_limit: Mutex<BTreeSet<String>>,
    secrets: Secrets,
}

/// A question with its place.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The question.
    pub request: &'a ChatRequest,
    /// Model that is asked.
    pub model: String,
    /// Where.
    pub endpoint: &'a Endpoint,
    /// SHA-256 of place and question: by it an answer is found again.
    pub hash: Vec<u8>,
    /// What nobody may repeat.
    pub secrets: &'a Secrets,
}

impl Prepared<'_> {
    /// Everything that is taken out of what the other side says, at once.
    pub(super) fn hidden(&self, said: Said) -> Secrets {
        self.secrets.and(self.endpoint.secrets(said))
    }
}

impl Models {
    /// The endpoints of a configuration. What is missing or wrong is an error where it is used: a
    /// worker without models serves all other tasks.
    pub fn from_config(config: &Config) -> Self {
        let model = &config.model;
        let settings = Settings::default_endpoint();
        let default_endpoint = match &model.base_url {
            Some(base) => Endpoint::new(base, model.api_key.as_ref(), settings),
            None => Err(LlmError::Config {
                part: Part::BaseUrl,
                message: "no model endpoint is configured; set model.base_url in belfry.yaml or \
                          MODEL_BASE_URL"
                    .to_owned(),
            }),
        };
        let endpoints = model.endpoints.iter().flat_map(|(name, endpoint)| {
            let settings = Settings::named(name);
            let place = Endpoint::new(&endpoint.base_url, endpoint.api_key.as_ref(), settings);
            endpoint.models.iter().map(move |model| (model.clone(), place.clone()))
        });
        let endpoints: BTreeMap<_, _> = endpoints.collect();
        let places = endpoints.values().chain([&default_endpoint]).flatten();
        let shown = places.flat_map(|place| place.secrets(Said::InAnswer));
        let secrets = Secrets::of(config.secrets.values().flatten().cloned().chain(shown));
        let client = http::model_client();
        Self(Arc::new(Inner {
            client: client
                .map_err(|error| LlmError::Config { part: Part::Host, message: error.to_string() }),
            default_model: model.default_model.clone(),
            default_endpoint,
            endpoints,
            prices: model.prices.clone(),
            fallback: model.fallback.clone(),
            timeout: model.timeout,
            renamed_limit: Mutex::default(),
            secrets,
        }))
    }

    /// The model of a question and where it is asked.
    pub fn prepare<'a>(&'a self, request: &'a ChatRequest) -> Result<Prepared<'a>, LlmError> {
        let model = self.model_of(request)?;
        let place = self.0.endpoints.get(model).unwrap_or(&self.0.default_endpoint);
        let endpoint = place.as_ref().map_err(Clone::clone)?;
        let hash = request.hash(model, &endpoint.url);
        Ok(Prepared { request, model: model.to_owned(), endpoint, hash, secrets: self.secrets() })
    }

    /// The model that a question is for.
    pub fn model_of<'a>(&'a self, request: &'a ChatRequest) -> Result<&'a str, LlmError> {
        let model = request.model.as_deref().or(self.0.default_model.as_deref());
        model.ok_or_else(|| LlmError::Config {
            part: Part::Model,
            message: "no model is named; say one in the payload, or set model.default_model in \
                      belfry.yaml or MODEL_NAME"
                .to_owned(),
        })
    }

    /// What nobody may repeat: the configured secrets, and what any endpoint is shown.
    pub fn secrets(&self) -> &Secrets {
        &self.0.secrets
    }

    /// Who stands in for a model, by the configuration.
    pub fn fallback_of(&self, model: &str) -> &[String] {
        self.0.fallback.get(model).map_or(&[], Vec::as_slice)
    }

    /// Longest time of one call.
    pub fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// What tokens cost in millionths of a US dollar; `None` without a price.
    pub fn cost_micro(&self, model: &str, usage: &TokenUsage) -> Option<i64> {
        self.0.prices.get(model).map(|price| usage.cost_micro(price))
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
        let limit = self.limit_name(&call.model);
        let wire = call.request.wire(&call.model, limit).to_string();
        if wire.len() > MAX_REQUEST_BYTES {
            let message = format!("{} bytes, and at most {MAX_REQUEST_BYTES} are sent", wire.len());
            return Err(LlmError::TooLarge { message });
        }
        let accept = if call.request.stream { "text/event-stream" } else { "application/json" };
        let mut request = client
            .post(call.endpoint.url.clone())
            .header("idempotency-key", id.to_string())
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, accept)
            .body(wire);
        request = call.endpoint.authorized(request);
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        let asked = Instant::now();
        let response = http::send(request, deadline).await;
        let response = response.map_err(|error| network(call, error))?;
        match Reading::of(call, asked, deadline, response).await {
            Err(LlmError::LimitName { target, message }) if limit == LimitName::MaxTokens => {
                self.renamed().insert(call.model.clone());
                Err(LlmError::LimitName { target, message })
            }
            // The other name is the one that was just refused.
            Err(LlmError::LimitName { target, message }) => Err(LlmError::Refused {
                target,
                status: 400,
                param: String::new(),
                message: format!(
                    "{message}; it takes neither max_tokens nor max_completion_tokens"
                ),
            }),
            answer => answer,
        }
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
