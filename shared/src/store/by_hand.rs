//! Runs of schedules that people ask for: triggers and backfills.
//!
//! They make tasks of the schedule, so that overlap is judged on them too, and never tick rows: those
//! are the leader's. It knows no cron line: the instants come with the caller.

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;
use super::ticks::overlap_name;
use crate::domain::execution_key::payload_hash;
use crate::domain::schedule::Overlap;
use crate::domain::task::{NewTask, Priority, Semantics, TaskId, TaskState};

/// Who asks for what.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The schedule.
    pub schedule: &'a str,
    /// `trigger` or `backfill`.
    pub kind: &'a str,
    /// What an unfinished run means; with `allow`, nothing.
    pub overlap: Overlap,
    /// The policy was put aside.
    pub forced: bool,
    /// Who, for the record.
    pub by: &'a str,
}

/// One run: the task and the instant that it was rendered for. All runs of a call share type, pool,
/// timeout, retries and semantics.
#[derive(Clone, Debug)]
pub struct HandRun {
    /// The task to be.
    pub task: NewTask,
    /// The instant.
    pub scheduled_for: DateTime<Utc>,
    /// Its place before or behind others; of its schedule.
    pub priority: Priority,
}

/// What became of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandRunEnd {
    /// The task was made and stands so.
    Made(TaskState),
    /// Its key was known; `same_payload` tells whether that task has the same payload.
    Known {
        /// The task that has the key.
        task: TaskId,
        /// Where it stands.
        state: TaskState,
        /// True when the payload is the same.
        same_payload: bool,
    },
    /// The overlap policy refuses it while this task is unfinished.
    Refused {
        /// The oldest unfinished task.
        behind: Option<TaskId>,
    },
}

/// A run by hand as listed. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct ByHandRow {
    /// Its task.
    pub task_id: Uuid,
    /// `trigger` or `backfill`.
    pub kind: String,
    /// The instant that it was rendered for.
    pub scheduled_for: DateTime<Utc>,
    /// The overlap policy was put aside.
    pub forced: bool,
    /// By whom.
    pub asked_by: String,
    /// When.
    pub asked_at: DateTime<Utc>,
    /// Where its task stands; `None` when it was pruned.
    pub state: Option<String>,
}

/// What the tick of an instant came to.
#[derive(Clone, Debug)]
pub struct InstantRow {
    /// The instant.
    pub at: DateTime<Utc>,
    /// Its outcome.
    pub outcome: String,
    /// The task that it made or found.
    pub task_id: Option<Uuid>,
    /// Where that stands; `None` when it was pruned.
    pub state: Option<String>,
}

/// A key that is taken.
#[derive(Clone, Debug)]
pub struct KnownKey {
    /// The key.
    pub execution_key: String,
    /// Whose it is.
    pub task_id: Uuid,
    /// Where that stands; `None` when it was pruned.
    pub state: Option<String>,
}

impl Store {
    /// The database's present.
    pub async fn now(&self) -> Result<DateTime<Utc>, Error> {
        let row = self.query_opt(include_str!("sql/now.sql"), &[]).await?;
        row.map(|row| row.get("now")).ok_or_else(|| Error::row("now answered no row"))
    }

    /// Makes the runs that somebody asked for, and answers for each in order. `None` when no such
    /// schedule is applied.
    ///
    /// Runs that may not overlap begin one after another, in the order given: their ids must rise.
    pub async fn run_by_hand(
        &self,
        asked: &Asked<'_>,
        runs: &[HandRun],
    ) -> Result<Option<Vec<HandRunEnd>>, Error> {
        let Some(first) = runs.first().map(|run| &run.task) else { return Ok(Some(Vec::new())) };
        let ids: Vec<Uuid> = runs.iter().map(|r| r.task.id.0).collect();
        let keys: Vec<String> = runs.iter().map(|r| r.task.key()).collect();
        let hashes: Vec<Vec<u8>> = runs.iter().map(|r| payload_hash(&r.task.payload)).collect();
        let payloads: Vec<_> = runs.iter().map(|r| &r.task.payload).collect();
        let instants: Vec<DateTime<Utc>> = runs.iter().map(|r| r.scheduled_for).collect();
        let priorities: Vec<i16> = runs.iter().map(|r| r.priority.level()).collect();
        let traces: Vec<_> = runs.iter().map(|r| r.task.traceparent.as_deref()).collect();
        let (timeout, keep) = (millis(first.timeout), self.key_retention.as_secs_f64());
        let (base, max) = (millis(first.retry.base), millis(first.retry.max));
        let once = first.semantics == Semantics::AtMostOnce;

        let transaction = self.transaction().await?;
        let held =
            transaction.query(include_str!("sql/lock_schedule.sql"), &[&asked.schedule]).await?;
        if held.is_empty() {
            return Ok(None);
        }
        // A statement of its own: it must see what whoever held the lock before has written.
        let rows = transaction
            .query(
                include_str!("sql/run_by_hand.sql"),
                &[
                    &asked.schedule,
                    &ids,
                    &keys,
                    &hashes,
                    &payloads,
                    &instants,
                    &traces,
                    &first.task_type,
                    &first.pool,
                    &overlap_name(asked.overlap),
                    &timeout,
                    &(first.retry.max_retry as i32),
                    &base,
                    &max,
                    &once,
                    &asked.kind,
                    &asked.forced,
                    &asked.by,
                    &keep,
                    &priorities,
                ],
            )
            .await?;
        if rows.len() != runs.len() {
            return Err(Error::row("runs by hand: another number of rows than was asked"));
        }
        let ends = rows.iter().map(end_of).collect::<Result<Vec<_>, _>>()?;
        transaction.commit().await?;
        Ok(Some(ends))
    }

    /// The newest runs by hand of a schedule.
    pub async fn runs_by_hand(&self, schedule: &str, limit: i64) -> Result<Vec<ByHandRow>, Error> {
        let rows = self.query(include_str!("sql/runs_by_hand.sql"), &[&schedule, &limit]).await?;
        Ok(rows
            .iter()
            .map(|row| ByHandRow {
                task_id: row.get("task_id"),
                kind: row.get("kind"),
                scheduled_for: row.get("scheduled_for"),
                forced: row.get("forced"),
                asked_by: row.get("asked_by"),
                asked_at: row.get("asked_at"),
                state: row.get("state"),
            })
            .collect())
    }

    /// What the ticks of these instants came to; those without one are left out.
    pub async fn ticks_at(
        &self,
        schedule: &str,
        instants: &[DateTime<Utc>],
    ) -> Result<Vec<InstantRow>, Error> {
        let rows = self.query(include_str!("sql/ticks_at.sql"), &[&schedule, &instants]).await?;
        Ok(rows
            .iter()
            .map(|row| InstantRow {
                at: row.get("at"),
                outcome: row.get("outcome"),
                task_id: row.get("task_id"),
                state: row.get("state"),
            })
            .collect())
    }

    /// Which of these keys are taken.
    pub async fn known_keys(&self, name: &str, keys: &[String]) -> Result<Vec<KnownKey>, Error> {
        let rows = self.query(include_str!("sql/known_keys.sql"), &[&name, &keys]).await?;
        Ok(rows
            .iter()
            .map(|row| KnownKey {
                execution_key: row.get("execution_key"),
                task_id: row.get("task_id"),
                state: row.get("state"),
            })
            .collect())
    }
}

fn end_of(row: &Row) -> Result<HandRunEnd, Error> {
    // A key whose task was pruned: that task had finished.
    let state: Option<String> = row.get("state");
    let state = state.map_or(Ok(TaskState::Completed), |state| state.parse().map_err(Error::row));
    let task: Option<Uuid> = row.get("task_id");
    Ok(match (row.get("made"), task) {
        (true, _) => HandRunEnd::Made(state?),
        (false, Some(task)) => HandRunEnd::Known {
            task: TaskId(task),
            state: state?,
            same_payload: row.get("same_payload"),
        },
        (false, None) => {
            HandRunEnd::Refused { behind: row.get::<_, Option<Uuid>>("behind").map(TaskId) }
        }
    })
}
