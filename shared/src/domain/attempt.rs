//! An attempt: one run of a task, from its claim to its record.
//!
//! It is owned by exactly one slot and consumed by `store::record`, so no code path can finish it
//! twice; it carries the claim token that every later write repeats.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::retry::RetryPolicy;
use super::task::{Semantics, TaskId};

/// The random identity of one claim, made by the claimer before it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClaimToken(pub Uuid);

impl ClaimToken {
    /// A fresh one.
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }
}

impl Default for ClaimToken {
    fn default() -> Self {
        Self::new()
    }
}

/// The random identity of one start of a process; the host's name is only a label beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incarnation(pub Uuid);

impl Incarnation {
    /// A fresh one.
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }
}

impl Default for Incarnation {
    fn default() -> Self {
        Self::new()
    }
}

/// A claimed task with all that its handler and its record need.
#[derive(Debug)]
#[must_use = "an attempt is running until it is recorded"]
pub struct Attempt {
    /// The task.
    pub task_id: TaskId,
    /// This claim.
    pub token: ClaimToken,
    /// Number of this attempt's row, from 1.
    pub run: u32,
    /// Failures before this attempt.
    pub failures: u32,
    /// Crashes before this attempt.
    pub crashes: u32,
    /// Which handler.
    pub task_type: String,
    /// Which pool.
    pub pool: String,
    /// Scope of the key.
    pub name: String,
    /// Business identity.
    pub execution_key: String,
    /// Input.
    pub payload: Value,
    /// The handler is stopped after this; the row's deadline is later by a grace.
    pub timeout: Duration,
    /// Retries.
    pub retry: RetryPolicy,
    /// Reruns.
    pub semantics: Semantics,
    /// Schedule it came from.
    pub schedule: Option<String>,
    /// Planned instant of its tick.
    pub scheduled_for: Option<DateTime<Utc>>,
    /// Context of the creation.
    pub traceparent: Option<String>,
    /// Context of the previous attempt.
    pub previous_attempt: Option<String>,
    /// Seconds that the task was due before this claim.
    pub waited: Duration,
}

impl Attempt {
    /// What a handler sends along with effects elsewhere, the same in every attempt of the task.
    pub fn idempotency_key(&self) -> String {
        self.task_id.to_string()
    }
}
