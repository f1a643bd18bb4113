//! What a handler gets besides its payload: steps, progress, secrets, model calls, cancellation.
//!
//! Every write through it repeats the claim token; a context whose claim is over writes nothing.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use shared::config::Config;
use shared::domain::attempt::{Attempt, ClaimToken};
use shared::domain::outcome::{ErrorClass, Failure, TaskError};
use shared::domain::task::TaskId;
use shared::retry::Pauses;
use shared::store::{self, Store};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::completion::Ending;
use crate::handler::Handlers;
use crate::llm::Models;

/// Prefix of a payload's reference to a secret.
pub const SECRET_PREFIX: &str = "secret:";

/// What handlers of one worker share.
#[derive(Clone)]
pub struct House {
    /// The database.
    pub store: Store,
    /// The configuration.
    pub config: Arc<Config>,
    /// Model endpoints.
    pub models: Models,
}

/// One attempt's context.
#[derive(Clone)]
pub struct Context {
    /// The shared part.
    pub house: House,
    /// The task.
    pub task_id: TaskId,
    /// Its claim.
    pub token: ClaimToken,
    /// Number of the attempt.
    pub run: u32,
    /// Name of schedule or task type.
    pub name: String,
    /// Business identity.
    pub execution_key: String,
    /// Schedule it came from.
    pub schedule: Option<String>,
    /// Planned instant of its tick.
    pub scheduled_for: Option<DateTime<Utc>>,
    /// Time that an attempt may take.
    pub timeout: Duration,
    pub(crate) ending: Ending,
    pub(crate) traceparent: Option<String>,
    cancelled: CancellationToken,
    draining: CancellationToken,
    handlers: Arc<Handlers>,
    /// The step of a session that this is the inside of.
    within: Option<String>,
    idempotency_key: String,
    started: Instant,
    last_attempt: bool,
}

impl Context {
    /// The context of an attempt.
    pub fn new(house: House, attempt: &Attempt, cancelled: CancellationToken) -> Self {
        Self {
            house,
            task_id: attempt.task_id,
            token: attempt.token,
            run: attempt.run,
            name: attempt.name.clone(),
            execution_key: attempt.execution_key.clone(),
            schedule: attempt.schedule.clone(),
            scheduled_for: attempt.scheduled_for,
            timeout: attempt.timeout,
            ending: Ending::default(),
            traceparent: None,
            cancelled,
            draining: CancellationToken::new(),
            handlers: Arc::default(),
            within: None,
            idempotency_key: attempt.idempotency_key(),
            started: Instant::now(),
            last_attempt: attempt.retry.delay_after(attempt.failures + 1, 0.0).is_none(),
        }
    }

    /// The same, with the attempt's span for what it writes.
    #[must_use]
    pub fn traced(mut self, traceparent: Option<String>) -> Self {
        self.traceparent = traceparent;
        self
    }

    /// The same, among the handlers of its worker, and told when that drains.
    #[must_use]
    pub fn among(mut self, handlers: Arc<Handlers>, draining: CancellationToken) -> Self {
        self.handlers = handlers;
        self.draining = draining;
        self
    }

    /// The same for another handler, which runs as a step of this one: what it does outside has a key
    /// of the step, its own steps and calls are named after it, and it cannot complete the task.
    #[must_use]
    pub fn inside(&self, step: &str) -> Self {
        let mut inner = self.clone();
        inner.idempotency_key = format!("{}:{step}", self.idempotency_key);
        inner.within = Some(self.step_name(step));
        inner
    }

    /// The handlers of this worker, for those that use others.
    pub fn handlers(&self) -> &Handlers {
        &self.handlers
    }

    /// True once the worker has been told to stop: a long task hands over at its next step.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// True in a handler that is a step of another one.
    pub(crate) fn is_inside(&self) -> bool {
        self.within.is_some()
    }

    /// A step's name in the task's rows.
    pub(crate) fn step_name(&self, step: &str) -> String {
        match &self.within {
            Some(outer) => format!("{outer}/{step}"),
            None => step.to_owned(),
        }
    }

    /// What is left of the attempt's time.
    pub fn time_left(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed())
    }

    /// True when a failure of this attempt would be the task's last: no retry is left.
    pub fn is_last_attempt(&self) -> bool {
        self.last_attempt
    }

    /// The same in every attempt of the task: send it along with effects elsewhere.
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// True once somebody asked to end the task, or its claim is lost.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Resolves when [`Self::is_cancelled`] becomes true.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Runs a step once per task: a kept result of the same input is returned instead.
    pub async fn step<T, F>(&self, name: &str, input: &Value, work: F) -> Result<T, TaskError>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, TaskError>>,
    {
        let hash = Sha256::digest(input.to_string().as_bytes()).to_vec();
        let (store, name) = (&self.house.store, &self.step_name(name));
        if let Some(kept) = answered(|| store.step(self.task_id, name)).await?
            && kept.input_hash == hash
            && let Ok(value) = serde_json::from_value(kept.result)
        {
            return Ok(value);
        }
        let started = Instant::now();
        let value = work.await?;
        let json = serde_json::to_value(&value)
            .map_err(|e| TaskError::permanent(format!("step {name} returned no JSON: {e}")))?;
        let took = started.elapsed();
        let keep = || store.keep_step(self.task_id, self.token, name, &hash, &json, took);
        let kept = answered(keep).await?;
        if kept { Ok(value) } else { Err(claim_lost()) }
    }

    /// Tells how far the work is; shown by `producer tasks show`.
    pub async fn progress(&self, done: u64, failed: u64) -> Result<(), TaskError> {
        if self.is_inside() {
            return Ok(()); // the outer handler's to tell
        }
        let store = &self.house.store;
        let ours = answered(|| store.progress(self.task_id, self.token, done, failed)).await?;
        if ours { Ok(()) } else { Err(claim_lost()) }
    }

    /// A secret by its name in `secrets:`.
    pub fn secret(&self, name: &str) -> Result<&SecretString, TaskError> {
        match self.house.config.secrets.get(name) {
            Some(Some(secret)) => Ok(secret),
            Some(None) => Err(TaskError::permanent(format!(
                "secret {name:?} is empty: the variable that it names in belfry.yaml is not set for this worker"
            ))),
            None => Err(TaskError::permanent(format!(
                "there is no secret {name:?}; add it under secrets: in belfry.yaml"
            ))),
        }
    }

    /// A text from a payload: itself, or the secret that it names as `secret:NAME`.
    pub fn reveal(&self, text: &str) -> Result<String, TaskError> {
        match text.strip_prefix(SECRET_PREFIX) {
            Some(name) => Ok(self.secret(name)?.expose_secret().to_owned()),
            None => Ok(text.to_owned()),
        }
    }

    /// A copy of a value whose texts, names of fields included, hold no known secret.
    pub fn redacted(&self, value: Value) -> Value {
        self.house.models.secrets().out_of_value(value)
    }

    /// Replaces every known secret in a text that leaves the handler (results, errors).
    pub fn redact(&self, text: &str) -> String {
        self.house.models.secrets().out_of(text)
    }
}

/// Asks the store until it answers: that it is away is no failure of the work. What bounds the wait
/// is the attempt itself: its timeout, its lease, a cancel.
pub(crate) async fn answered<T, F, Fut>(ask: F) -> Result<T, TaskError>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, store::Error>>,
{
    let mut pauses = Pauses::new();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_outage() => {
                debug!(%error, "a handler waits for the database");
                tokio::time::sleep(pauses.next_pause()).await;
            }
            Err(error) => return Err(TaskError::retry(error)),
        }
    }
}

/// Zero rows: another attempt has the task.
pub(crate) fn claim_lost() -> TaskError {
    TaskError::Retry {
        failure: Failure::new(
            ErrorClass::Interrupted,
            "the claim was lost; another attempt has the task",
        ),
        after: None,
    }
}
