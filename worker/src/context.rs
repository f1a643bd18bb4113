//! What a handler gets besides its payload: steps, progress, secrets, model calls, cancellation.
//!
//! Every write through it repeats the claim token; a context whose claim is over writes nothing.

use std::collections::BTreeMap;
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
use shared::store::Store;
use tokio_util::sync::CancellationToken;

use crate::completion::Ending;
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
        if let Some(kept) = self.house.store.step(self.task_id, name).await.map_err(store_error)?
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
        let kept = self
            .house
            .store
            .keep_step(self.task_id, self.token, name, &hash, &json, took)
            .await
            .map_err(store_error)?;
        if kept { Ok(value) } else { Err(claim_lost()) }
    }

    /// Tells how far the work is; shown by `producer tasks show`.
    pub async fn progress(&self, done: u64, failed: u64) -> Result<(), TaskError> {
        let ours = self
            .house
            .store
            .progress(self.task_id, self.token, done, failed)
            .await
            .map_err(store_error)?;
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

    /// Replaces every known secret in a text that leaves the handler (results, errors).
    pub fn redact(&self, text: &str) -> String {
        redact(&self.house.config.secrets, text)
    }
}

/// Shortest secret that is looked for in texts: shorter ones would blot out ordinary words.
const SHORTEST_REDACTED: usize = 6;

fn redact(secrets: &BTreeMap<String, Option<SecretString>>, text: &str) -> String {
    let mut text = text.to_owned();
    for secret in secrets.values().flatten() {
        let secret = secret.expose_secret();
        if secret.len() >= SHORTEST_REDACTED && text.contains(secret) {
            text = text.replace(secret, "…");
        }
    }
    text
}

/// A store that does not answer is no failure of the work: try again.
pub fn store_error(error: shared::store::Error) -> TaskError {
    TaskError::retry(error)
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
