//! A schedule: a named cron line with a zone, a task and policies.
//!
//! It computes which instants are due and which were missed; the tick statement decides what becomes
//! of each. It never reads a clock: both ends of the stretch that is planned are given.

mod diff;
mod payload;
mod plan;
mod spec;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::cron::Cron;
use super::retry::RetryPolicy;
use super::task::{DEFAULT_TIMEOUT, Priority, Semantics};
use super::template::DEFAULT_KEY_TEMPLATE;

pub use diff::{Diff, FieldChange, Rename, Standing, changes};
pub use payload::Payload;
pub use plan::{MissedSpan, Plan, PlannedTick};
pub use spec::Digest;

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
pub const DEFAULT_CATCH_UP_WINDOW: Duration = Duration::from_hours(1);

/// Most missed ticks that get a row each; what is older shares one row (first, last, count).
pub const MISSED_ROWS: usize = 100;

/// An instant is missed, not merely due, when it is older than this at planning.
///
/// Above what a busy database delays a tick by, so that one that is just due always runs; below
/// the time that another leader takes to notice a death, so that an outage is an outage.
pub const LATE_AFTER: TimeDelta = TimeDelta::seconds(5);

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
    pub payload: Payload,
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
    /// Bound of its tasks' delay behind their instants; each schedule has one delay of its own.
    pub jitter: Duration,
    /// No instant before this one.
    pub start_at: Option<DateTime<Utc>>,
    /// No instant after this one.
    pub end_at: Option<DateTime<Utc>>,
    /// A task that has not started this long after its instant never does.
    pub deadline: Option<Duration>,
    /// Which of its pool's tasks go first.
    pub priority: Priority,
    /// What it was called before: a word of the file to whoever applies it, no part of the spec.
    pub renamed_from: Option<String>,
}

impl Schedule {
    /// A schedule of which nothing more is said: no payload, UTC, the house's defaults.
    pub fn new(name: &str, cron: Cron, task_type: &str, pool: &str) -> Self {
        Self {
            name: name.to_owned(),
            cron,
            timezone: chrono_tz::UTC,
            task_type: task_type.to_owned(),
            pool: pool.to_owned(),
            payload: Value::Object(serde_json::Map::new()).into(),
            execution_key_template: DEFAULT_KEY_TEMPLATE.to_owned(),
            timeout: DEFAULT_TIMEOUT,
            retry: RetryPolicy::default(),
            semantics: Semantics::default(),
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            catch_up_window: DEFAULT_CATCH_UP_WINDOW,
            paused: false,
            jitter: Duration::ZERO,
            start_at: None,
            end_at: None,
            deadline: None,
            priority: Priority::default(),
            renamed_from: None,
        }
    }

    /// How long its tasks are held behind their instants: below `jitter`, and the same for every
    /// tick, on every host and in every version.
    pub fn delay(&self) -> Duration {
        let bound = self.jitter.as_millis() as u64;
        if bound == 0 {
            return Duration::ZERO;
        }
        let hash = Sha256::digest(self.name.as_bytes());
        let number = hash[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Duration::from_millis(number % bound)
    }

    /// The first instant after a given one.
    pub fn next_due(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let after = self.begin().map_or(after, |begin| after.max(begin));
        let next = self.cron.next_after(after, self.timezone)?;
        self.end_at.is_none_or(|end| next <= end).then_some(next)
    }

    /// The last instant before a given one, looking back no further than `since`.
    pub fn previous(&self, at: DateTime<Utc>, since: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let before = at - TimeDelta::nanoseconds(1);
        let before = self.end_at.map_or(before, |end| before.min(end));
        let since = self.begin().map_or(since, |begin| since.max(begin));
        self.cron.newest(since, before, 1, self.timezone).pop()
    }

    /// True when no instant is left after a given one because `end_at` says so.
    pub fn has_ended(&self, at: DateTime<Utc>) -> bool {
        self.end_at.is_some() && self.next_due(at).is_none()
    }

    /// True when its key or payload names the instant before: finding that one takes a while.
    pub fn names_previous(&self) -> bool {
        fn named(text: &str) -> bool {
            text.contains("previous_at") || text.contains("PreviousAt")
        }
        named(&self.execution_key_template) || named(self.payload.as_str())
    }

    /// Just before `start_at`: instants are always later than what they are asked after.
    fn begin(&self) -> Option<DateTime<Utc>> {
        self.start_at.map(|start| start - TimeDelta::nanoseconds(1))
    }
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

impl TickOutcome {
    /// The name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enqueued => "enqueued",
            Self::Deduplicated => "deduplicated",
            Self::SkippedOverlap => "skipped_overlap",
            Self::Paused => "paused",
            Self::Missed => "missed",
        }
    }
}

#[cfg(test)]
mod tests;
