//! The tick statement: what becomes of planned instants, decided once, by the leader.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;
use super::leadership::Term;
use super::session::Session;
use crate::domain::execution_key::payload_hash;
use crate::domain::retry::RetryPolicy;
use crate::domain::schedule::{Overlap, TickOutcome};
use crate::domain::task::{Priority, Semantics, TaskId};

/// A planned instant with the task that it would make.
#[derive(Clone, Debug)]
pub struct TickInput {
    /// Schedule.
    pub schedule: String,
    /// Instant; the last one of a span.
    pub planned_at: DateTime<Utc>,
    /// False: recorded as `missed`, unless it lies in a pause.
    pub run: bool,
    /// First instant of a span of ones that do not run.
    pub first_at: Option<DateTime<Utc>>,
    /// Instants in the span; 1 otherwise.
    pub count: u64,
    /// Identity of the task to be, so that a repeat makes no second one.
    pub task_id: TaskId,
    /// Rendered key.
    pub execution_key: String,
    /// Task type.
    pub task_type: String,
    /// Pool.
    pub pool: String,
    /// Rendered payload.
    pub payload: Value,
    /// Timeout of an attempt.
    pub timeout: Duration,
    /// Retries.
    pub retry: RetryPolicy,
    /// Reruns.
    pub semantics: Semantics,
    /// Overlap policy.
    pub overlap: Overlap,
    /// Span of the tick.
    pub traceparent: Option<String>,
    /// Paused by the file: recorded as `paused`.
    pub paused: bool,
    /// The task is held this long behind its instant.
    pub delay: Duration,
    /// The task must have started this long after its instant.
    pub deadline: Option<Duration>,
    /// Place in the queue.
    pub priority: Priority,
}

/// What became of a planned instant.
#[derive(Clone, Debug)]
pub struct DecidedTick {
    /// Its place among those that were asked for.
    pub index: usize,
    /// Schedule.
    pub schedule: String,
    /// Instant.
    pub planned_at: DateTime<Utc>,
    /// `None` when the schedule is gone.
    pub outcome: Option<TickOutcome>,
    /// The task, where there is one.
    pub task_id: Option<TaskId>,
    /// False when another decided it before.
    pub fresh: bool,
    /// True when its key belongs to a task with another payload: that one stands, and nothing new runs.
    pub conflict: bool,
}

/// A tick as listed. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct TickRow {
    /// Schedule.
    pub schedule: String,
    /// Instant; the last one of a span.
    pub planned_at: DateTime<Utc>,
    /// Outcome.
    pub outcome: String,
    /// Task.
    pub task_id: Option<Uuid>,
    /// When it was decided.
    pub decided_at: DateTime<Utc>,
    /// First instant of a span.
    pub first_at: Option<DateTime<Utc>>,
    /// Instants in the span.
    pub count: i64,
    /// When its task was ended, not having started by its deadline.
    pub not_started_at: Option<DateTime<Utc>>,
    /// True when its key belongs to a task with another payload: what it wanted has not run.
    pub other_payload: bool,
}

impl Store {
    /// Decides ticks under a term, of entries that were read at a revision. `None` when the term is
    /// over, other entries are in force by now ([`Store::revision`] tells), or the database's clock
    /// has gone back behind an instant of theirs.
    ///
    /// The caller passes at most one running tick per schedule (see `tick.sql`).
    pub async fn tick(
        &self,
        term: &Term,
        revision: i64,
        ticks: &[TickInput],
    ) -> Result<Option<Vec<DecidedTick>>, Error> {
        let session = self.session().await?;
        let decided = tick_in(&session, Some((term, revision)), ticks, self.key_retention).await?;
        if decided.is_empty() && !ticks.is_empty() {
            return Ok(None);
        }
        crate::failpoint::hit("in_tick").await;
        Ok(Some(decided))
    }

    /// The newest ticks of a schedule, or of all.
    pub async fn ticks(&self, schedule: Option<&str>, limit: i64) -> Result<Vec<TickRow>, Error> {
        let rows = self.query(include_str!("sql/ticks.sql"), &[&schedule, &limit]).await?;
        Ok(rows
            .iter()
            .map(|row| TickRow {
                schedule: row.get("schedule"),
                planned_at: row.get("planned_at"),
                outcome: row.get("outcome"),
                task_id: row.get("task_id"),
                decided_at: row.get("decided_at"),
                first_at: row.get("first_at"),
                count: row.get("count"),
                not_started_at: row.get("not_started_at"),
                other_payload: row.get("other_payload"),
            })
            .collect())
    }
}

/// The tick statement: of a leader in its term, or of an apply that holds the file (`None`).
pub(super) async fn tick_in(
    session: &Session,
    leader: Option<(&Term, i64)>,
    ticks: &[TickInput],
    key_retention: Duration,
) -> Result<Vec<DecidedTick>, Error> {
    let token = leader.map(|(term, _)| term.token);
    let revision = leader.map(|(_, revision)| revision);
    let schedules: Vec<&str> = ticks.iter().map(|t| t.schedule.as_str()).collect();
    let planned: Vec<DateTime<Utc>> = ticks.iter().map(|t| t.planned_at).collect();
    let run: Vec<bool> = ticks.iter().map(|t| t.run).collect();
    let first: Vec<Option<DateTime<Utc>>> = ticks.iter().map(|t| t.first_at).collect();
    let count: Vec<i64> = ticks.iter().map(|t| t.count as i64).collect();
    let ids: Vec<Uuid> = ticks.iter().map(|t| t.task_id.0).collect();
    let keys: Vec<&str> = ticks.iter().map(|t| t.execution_key.as_str()).collect();
    let hashes: Vec<Vec<u8>> = ticks.iter().map(|t| payload_hash(&t.payload)).collect();
    let types: Vec<&str> = ticks.iter().map(|t| t.task_type.as_str()).collect();
    let pools: Vec<&str> = ticks.iter().map(|t| t.pool.as_str()).collect();
    let payloads: Vec<&Value> = ticks.iter().map(|t| &t.payload).collect();
    let timeouts: Vec<i64> = ticks.iter().map(|t| millis(t.timeout)).collect();
    let retries: Vec<i32> = ticks.iter().map(|t| t.retry.max_retry as i32).collect();
    let bases: Vec<i64> = ticks.iter().map(|t| millis(t.retry.base)).collect();
    let maxes: Vec<i64> = ticks.iter().map(|t| millis(t.retry.max)).collect();
    let once: Vec<bool> = ticks.iter().map(|t| t.semantics == Semantics::AtMostOnce).collect();
    let overlaps: Vec<&str> = ticks.iter().map(|t| overlap_name(t.overlap)).collect();
    let traces: Vec<Option<&str>> = ticks.iter().map(|t| t.traceparent.as_deref()).collect();
    let paused: Vec<bool> = ticks.iter().map(|t| t.paused).collect();
    let delays: Vec<i64> = ticks.iter().map(|t| millis(t.delay)).collect();
    let deadlines: Vec<Option<i64>> = ticks.iter().map(|t| t.deadline.map(millis)).collect();
    let priorities: Vec<i16> = ticks.iter().map(|t| t.priority.level()).collect();
    let keep = key_retention.as_secs_f64();
    let rows = session
        .query(
            include_str!("sql/tick.sql"),
            &[
                &token,
                &revision,
                &schedules,
                &planned,
                &run,
                &first,
                &count,
                &ids,
                &keys,
                &hashes,
                &types,
                &pools,
                &payloads,
                &timeouts,
                &retries,
                &bases,
                &maxes,
                &once,
                &overlaps,
                &traces,
                &paused,
                &delays,
                &deadlines,
                &priorities,
                &keep,
            ],
        )
        .await?;
    let asked = ticks.iter().enumerate().map(|(n, t)| ((t.schedule.as_str(), t.planned_at), n));
    let asked: HashMap<(&str, DateTime<Utc>), usize> = asked.collect();
    let decided = rows.iter().map(|row| {
        let (schedule, planned_at): (&str, DateTime<Utc>) =
            (row.get("schedule"), row.get("planned_at"));
        Ok(DecidedTick {
            index: asked.get(&(schedule, planned_at)).copied().unwrap_or_default(),
            schedule: schedule.to_owned(),
            planned_at,
            outcome: row.get::<_, Option<&str>>("outcome").map(outcome_of).transpose()?,
            task_id: row.get::<_, Option<Uuid>>("task_id").map(TaskId),
            fresh: row.get("fresh"),
            conflict: row.get("conflict"),
        })
    });
    let mut decided = decided.collect::<Result<Vec<_>, Error>>()?;
    decided.sort_by_key(|tick| tick.index);
    Ok(decided)
}

/// The name in the database.
pub(super) fn overlap_name(overlap: Overlap) -> &'static str {
    match overlap {
        Overlap::Skip => "skip",
        Overlap::Queue => "queue",
        Overlap::QueueAll => "queue_all",
        Overlap::Replace => "replace",
        Overlap::Allow => "allow",
    }
}

fn outcome_of(name: &str) -> Result<TickOutcome, Error> {
    match name {
        "enqueued" => Ok(TickOutcome::Enqueued),
        "deduplicated" => Ok(TickOutcome::Deduplicated),
        "skipped_overlap" => Ok(TickOutcome::SkippedOverlap),
        "paused" => Ok(TickOutcome::Paused),
        "missed" => Ok(TickOutcome::Missed),
        other => Err(Error::row(format!("unknown tick outcome {other:?}"))),
    }
}
