//! A schedule: a named cron line with a zone, a task and policies.
//!
//! It computes which instants are due and which were missed; the tick statement decides what becomes
//! of each. It never reads a clock: both ends of the stretch that is planned are given.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
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

/// A planned instant, ready for the tick statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTick {
    /// Its instant.
    pub at: DateTime<Utc>,
    /// False when the catch-up policy lets it pass: it is recorded as `missed`.
    pub run: bool,
}

/// Missed instants that share one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedSpan {
    /// The oldest.
    pub first: DateTime<Utc>,
    /// The newest.
    pub last: DateTime<Utc>,
    /// How many, both ends included.
    pub count: u64,
}

/// What is due of a schedule: every instant of a stretch of time, each exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Instants with a row of their own, oldest first.
    pub ticks: Vec<PlannedTick>,
    /// Missed instants before them.
    pub older: Option<MissedSpan>,
    /// Where the next plan begins. Never before the old mark, so a clock set back repeats nothing.
    pub new_mark: DateTime<Utc>,
}

impl Schedule {
    /// Plans the instants in `(mark, now]`.
    ///
    /// Those of the last [`LATE_AFTER`] run, whatever `catch_up` says; older ones are missed, and
    /// the policy says which of them run. `latest` runs the newest missed one only when nothing
    /// newer runs anyway. At most [`MISSED_ROWS`] missed ones are listed; the rest is counted by
    /// arithmetic, so that an outage of years costs no more than one of minutes.
    pub fn plan(&self, mark: DateTime<Utc>, now: DateTime<Utc>) -> Plan {
        if now <= mark {
            return Plan { ticks: Vec::new(), older: None, new_mark: mark };
        }
        // Clamped, because a stretch shorter than LATE_AFTER has no missed part.
        let late = (now - LATE_AFTER).max(mark);
        let missed = self.cron.newest(mark, late, MISSED_ROWS, self.timezone);
        let older = missed.first().and_then(|oldest| self.missed_before(mark, *oldest));
        let young = self.instants(late, now);

        let newest = missed.last().copied().filter(|_| young.is_empty());
        let caught_up = |at: DateTime<Utc>| match self.catch_up {
            CatchUp::None => false,
            CatchUp::Latest => Some(at) == newest,
            CatchUp::All => true,
        };
        let window = TimeDelta::from_std(self.catch_up_window).unwrap_or(TimeDelta::MAX);
        let judged = missed
            .into_iter()
            .map(|at| PlannedTick { at, run: caught_up(at) && now - at <= window });
        let normal = young.into_iter().map(|at| PlannedTick { at, run: true });
        Plan { ticks: judged.chain(normal).collect(), older, new_mark: now }
    }

    /// The first instant after a given one.
    pub fn next_due(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.cron.next_after(after, self.timezone)
    }

    /// The last instant before a given one, looking back no further than `since`.
    pub fn previous(&self, at: DateTime<Utc>, since: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let before = at - TimeDelta::nanoseconds(1);
        self.cron.newest(since, before, 1, self.timezone).pop()
    }

    fn instants(&self, after: DateTime<Utc>, until: DateTime<Utc>) -> Vec<DateTime<Utc>> {
        std::iter::successors(self.next_due(after), |at| self.next_due(*at))
            .take_while(|at| *at <= until)
            .collect()
    }

    /// The instants after `mark` that are older than the oldest listed one.
    fn missed_before(&self, mark: DateTime<Utc>, listed: DateTime<Utc>) -> Option<MissedSpan> {
        let last = self.previous(listed, mark)?;
        let first = self.next_due(mark)?;
        Some(MissedSpan { first, last, count: self.cron.count(mark, last, self.timezone) })
    }
}

#[cfg(test)]
mod tests;
