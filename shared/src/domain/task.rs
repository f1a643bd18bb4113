//! A task: one unit of work, its row's vocabulary and what a caller says to create one.
//!
//! It never decides a transition: `store` does, by statements whose WHERE repeats the state.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::execution_key::ExecutionKey;
use super::retry::RetryPolicy;

/// How long a handler may run when neither the task nor its type says so.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// Largest payload, in bytes of JSON text: what is bigger belongs in a store of its own.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;

/// Longest name, in bytes (schedule names and task types).
pub const MAX_NAME_BYTES: usize = 128;

/// Identity of a task: a UUIDv7, made by the enqueuer so that a repeated statement is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub Uuid);

impl TaskId {
    /// A fresh identity, ordered by time of creation.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl Default for TaskId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TaskId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.trim().parse().map(Self)
    }
}

/// Where a task stands. Stored as its lower-case name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Due in more than an hour: held by Postgres, no message yet.
    Scheduled,
    /// Behind an overlapping run of its schedule.
    Waiting,
    /// Its message is, or soon will be, on the broker.
    Queued,
    /// Claimed by an incarnation.
    Running,
    /// Failed and due again later.
    Retrying,
    /// Finished with a result.
    Completed,
    /// Given up; its dead letter says why.
    Dead,
    /// Cancelled by hand or by policy.
    Cancelled,
}

impl TaskState {
    /// Every state, in the order of a task's life.
    pub const ALL: [Self; 8] = [
        Self::Scheduled,
        Self::Waiting,
        Self::Queued,
        Self::Running,
        Self::Retrying,
        Self::Completed,
        Self::Dead,
        Self::Cancelled,
    ];

    /// The name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Waiting => "waiting",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Completed => "completed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// True when nothing but a replay by hand can move the task again.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Dead | Self::Cancelled)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TaskState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("unknown task state {text:?}; one of: {names}")
        })
    }
}

/// What may happen when an attempt's outcome is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Semantics {
    /// The handler may run again after a crash (the default).
    #[default]
    AtLeastOnce,
    /// The handler never reruns; an unknown outcome goes to the dead letters.
    AtMostOnce,
}

/// Which tasks of a pool go first. It orders what waits; it never stops what runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// After the others, where the broker can tell (RabbitMQ 4.3 and later).
    Low,
    /// The default.
    #[default]
    Normal,
    /// Published before all others; delivered before them where the broker can tell (4.0 and later).
    High,
}

impl Priority {
    /// The number in the database: above 0 the relay publishes first.
    pub fn level(self) -> i16 {
        match self {
            Self::Low => -1,
            Self::Normal => 0,
            Self::High => 1,
        }
    }

    /// The priority of a number in the database.
    pub fn from_level(level: i16) -> Self {
        match level {
            ..0 => Self::Low,
            0 => Self::Normal,
            1.. => Self::High,
        }
    }
}

/// When a new task may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// After a delay from the database's present.
    In(Duration),
    /// At an instant.
    At(DateTime<Utc>),
}

/// Everything that is said to create a task.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// Chosen by the caller, so that a repeat after a lost answer creates nothing twice.
    pub id: TaskId,
    /// Schedule's name, or the task type of an ad-hoc task: the scope of the key.
    pub name: String,
    /// Business identity; `None` means the id itself.
    pub execution_key: Option<ExecutionKey>,
    /// Which handler runs it.
    pub task_type: String,
    /// Which pool's queue it takes; from configuration.
    pub pool: String,
    /// The handler's input.
    pub payload: Value,
    /// When it may start.
    pub due: Due,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// Retries and their delays.
    pub retry: RetryPolicy,
    /// Whether it may rerun after an unknown outcome.
    pub semantics: Semantics,
    /// W3C trace context of the creation, to be injected in every message of the task.
    pub traceparent: Option<String>,
}

impl NewTask {
    /// An ad-hoc task with the house's defaults, due now, keyed by its own id.
    pub fn ad_hoc(task_type: &str, pool: &str, payload: Value) -> Self {
        Self {
            id: TaskId::new(),
            name: task_type.to_owned(),
            execution_key: None,
            task_type: task_type.to_owned(),
            pool: pool.to_owned(),
            payload,
            due: Due::Now,
            timeout: DEFAULT_TIMEOUT,
            retry: RetryPolicy::default(),
            semantics: Semantics::AtLeastOnce,
            traceparent: None,
        }
    }

    /// The key that is stored: the given one, or the id.
    pub fn key(&self) -> String {
        self.execution_key.as_ref().map_or_else(|| self.id.to_string(), ToString::to_string)
    }
}

/// Deepest nesting of a payload; serde_json reads no deeper than 128.
pub const MAX_PAYLOAD_DEPTH: usize = 100;

/// Why a payload cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Over [`MAX_PAYLOAD_BYTES`].
    #[error(
        "the payload has {0} bytes of JSON, at most {MAX_PAYLOAD_BYTES} are kept; put the data elsewhere and send a reference"
    )]
    TooLarge(usize),
    /// PostgreSQL's jsonb has no NUL.
    #[error("the payload contains a NUL character (\\u0000), which cannot be stored")]
    Nul,
    /// Over [`MAX_PAYLOAD_DEPTH`].
    #[error("the payload is nested deeper than {MAX_PAYLOAD_DEPTH} levels")]
    TooDeep,
}

/// Refuses at the door what the database would refuse later.
pub fn check_payload(payload: &Value) -> Result<(), PayloadError> {
    walk(payload, MAX_PAYLOAD_DEPTH)?;
    match payload.to_string().len() {
        n if n > MAX_PAYLOAD_BYTES => Err(PayloadError::TooLarge(n)),
        _ => Ok(()),
    }
}

fn walk(value: &Value, depth: usize) -> Result<(), PayloadError> {
    let deeper = depth.checked_sub(1).ok_or(PayloadError::TooDeep)?;
    match value {
        Value::String(text) if text.contains('\0') => Err(PayloadError::Nul),
        Value::Array(items) => items.iter().try_for_each(|item| walk(item, deeper)),
        Value::Object(map) => map.iter().try_for_each(|(key, item)| {
            if key.contains('\0') { Err(PayloadError::Nul) } else { walk(item, deeper) }
        }),
        _ => Ok(()),
    }
}

/// What enqueueing answered. JSON: `{"task_id","name","execution_key","state","deduplicated"}`.
#[derive(Clone, Debug, Serialize)]
pub struct Enqueued {
    /// The task that now stands for the key: the new one, or the one that was there.
    pub task_id: TaskId,
    /// Scope of the key.
    pub name: String,
    /// The key.
    pub execution_key: String,
    /// Its state now.
    pub state: TaskState,
    /// True when the key existed with the same payload and nothing was created.
    pub deduplicated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_back_from_its_name() {
        for state in TaskState::ALL {
            assert_eq!(state.as_str().parse::<TaskState>(), Ok(state));
        }
        assert!("done".parse::<TaskState>().expect_err("no such state").contains("completed"));
    }
}
