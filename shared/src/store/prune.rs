//! Pruning: what is finished leaves after its time, a chunk of each kind at a time.
//!
//! Any process may prune at any time; `SKIP LOCKED` keeps them out of each other's way. A task that lives
//! or waits for a person is never touched, and a key outlives its task by its own expiry.

use std::ops::AddAssign;
use std::time::Duration;

use serde::Serialize;
use tokio_postgres::types::ToSql;

use super::connect::Store;
use super::error::Error;
use crate::config::Retention;

/// Most rows of a kind in one statement: some ten milliseconds, and few locks at once.
pub const CHUNK: i64 = 1000;
/// Incarnations are kept at least this long after their end, whatever the tasks are: a claim in flight
/// may still name one.
pub const INCARNATIONS: Duration = Duration::from_hours(24);

/// Rows deleted, or to be deleted. JSON: one object with these keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Tasks, each with input, result, attempts, steps and model calls.
    pub tasks: i64,
    /// Ticks.
    pub ticks: i64,
    /// Closed dead letters, each with its alerts.
    pub dead_letters: i64,
    /// Alerts of episodes, or ended episodes where these are more.
    pub alerts: i64,
    /// Execution keys.
    pub execution_keys: i64,
    /// Ended processes.
    pub incarnations: i64,
    /// Reports.
    pub artifacts: i64,
}

impl Pruned {
    fn kinds(&self) -> [i64; 7] {
        let Self { tasks, ticks, dead_letters, alerts, execution_keys, incarnations, artifacts } =
            *self;
        [tasks, ticks, dead_letters, alerts, execution_keys, incarnations, artifacts]
    }

    /// Rows of all kinds.
    pub fn total(&self) -> i64 {
        self.kinds().iter().sum()
    }

    /// True when some kind filled its chunk: there may be more.
    pub fn is_full(&self) -> bool {
        self.kinds().contains(&CHUNK)
    }
}

impl AddAssign for Pruned {
    fn add_assign(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.ticks += other.ticks;
        self.dead_letters += other.dead_letters;
        self.alerts += other.alerts;
        self.execution_keys += other.execution_keys;
        self.incarnations += other.incarnations;
        self.artifacts += other.artifacts;
    }
}

impl Store {
    /// Deletes at most a [`CHUNK`] of each kind; tasks first, since others leave after theirs.
    pub async fn prune(&self, keep: &Retention) -> Result<Pruned, Error> {
        let (completed, dead) = (keep.completed.as_secs_f64(), keep.dead.as_secs_f64());
        let keys = keep.execution_keys.as_secs_f64();
        let ended = incarnations(keep);
        let tasks = include_str!("sql/prune_tasks.sql");
        let mut pruned = Pruned {
            tasks: self.chunk(tasks, &[&completed, &dead, &CHUNK]).await?,
            ticks: self.chunk(include_str!("sql/prune_ticks.sql"), &[&completed, &CHUNK]).await?,
            dead_letters: self
                .chunk(include_str!("sql/prune_letters.sql"), &[&dead, &CHUNK])
                .await?,
            alerts: self.chunk(include_str!("sql/prune_alerts.sql"), &[&dead, &CHUNK]).await?,
            execution_keys: self
                .chunk(include_str!("sql/prune_keys.sql"), &[&keys, &CHUNK])
                .await?,
            incarnations: self
                .chunk(include_str!("sql/prune_incarnations.sql"), &[&ended, &CHUNK])
                .await?,
            artifacts: 0,
        };
        if let Some(artifacts) = keep.artifacts {
            let params: [&(dyn ToSql + Sync); 2] = [&artifacts.as_secs_f64(), &CHUNK];
            pruned.artifacts = self.chunk(include_str!("sql/prune_artifacts.sql"), &params).await?;
        }
        Ok(pruned)
    }

    /// Counts what pruning would delete now.
    pub async fn prunable(&self, keep: &Retention) -> Result<Pruned, Error> {
        let params: [&(dyn ToSql + Sync); 5] = [
            &keep.completed.as_secs_f64(),
            &keep.dead.as_secs_f64(),
            &keep.execution_keys.as_secs_f64(),
            &incarnations(keep),
            &keep.artifacts.map(|artifacts| artifacts.as_secs_f64()),
        ];
        let row = self.query_opt(include_str!("sql/prunable.sql"), &params).await?;
        let row = row.ok_or_else(|| Error::row("prunable answered no row"))?;
        Ok(Pruned {
            tasks: row.get("tasks"),
            ticks: row.get("ticks"),
            dead_letters: row.get("dead_letters"),
            alerts: row.get("alerts"),
            execution_keys: row.get("execution_keys"),
            incarnations: row.get("incarnations"),
            artifacts: row.get("artifacts"),
        })
    }

    async fn chunk(&self, sql: &'static str, params: &[&(dyn ToSql + Sync)]) -> Result<i64, Error> {
        let row = self.query_opt(sql, params).await?;
        Ok(row.map_or(0, |row| row.get("rows")))
    }
}

fn incarnations(keep: &Retention) -> f64 {
    keep.completed.max(INCARNATIONS).as_secs_f64()
}
