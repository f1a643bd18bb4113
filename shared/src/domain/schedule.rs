//! A schedule: a named cron line with a zone, a task and policies.
//!
//! It computes which instants are due; the tick statement decides what becomes of each.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cron::Cron;
use super::retry::RetryPolicy;
use super::task::Semantics;

/// What happens when a tick is due while an earlier run of the schedule is unfinished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The tick is recorded as `skipped_overlap` (the default).
    #[default]
    Skip,
    /// One run waits.
    Queue,
    /// All wait, in order.
    QueueAll,
    /// The running one is cancelled, then this one runs.
    Replace,
    /// They run side by side.
    Allow,
}

/// What happens to ticks that no producer was there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// The newest missed tick runs once (the default).
    #[default]
    Latest,
    /// All within the window run, capped.
    All,
    /// None runs.
    None,
}

/// Default of `catch_up_window`.
pub const DEFAULT_CATCH_UP_WINDOW: Duration = Duration::from_secs(3600);

/// Most missed ticks that get a row each; what is older shares one row (first, last, count).
pub const MISSED_ROWS: usize = 100;

/// One entry of `tasks:` in `belfry.yaml`.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Unique name.
    pub name: String,
    /// When.
    pub cron: Cron,
    /// In which zone the cron line is read.
    pub timezone: chrono_tz::Tz,
    /// What runs.
    pub task_type: String,
    /// Its pool, from `task_pools`.
    pub pool: String,
    /// Its input; strings may be templates.
    pub payload: Value,
    /// Key of each tick's task.
    pub execution_key_template: String,
    /// Timeout of an attempt.
    pub timeout: Duration,
    /// Retries.
    pub retry: RetryPolicy,
    /// Reruns.
    pub semantics: Semantics,
    /// Overlap policy.
    pub overlap: Overlap,
    /// Missed ticks.
    pub catch_up: CatchUp,
    /// How far back missed ticks may still run.
    pub catch_up_window: Duration,
    /// Paused by the file.
    pub paused: bool,
}

/// What became of a planned instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TickOutcome {
    /// A task was created.
    Enqueued,
    /// Its execution key existed: the tick points to that task.
    Deduplicated,
    /// An earlier run was unfinished.
    SkippedOverlap,
    /// The schedule was paused.
    Paused,
    /// Nobody was there for it and the policy did not run it.
    Missed,
}

/// A planned instant, ready for the tick statement.
#[derive(Clone, Debug)]
pub struct PlannedTick {
    /// Its instant.
    pub at: DateTime<Utc>,
    /// False when the catch-up policy lets it pass: it is recorded as `missed`.
    pub run: bool,
}
