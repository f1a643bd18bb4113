//! Enqueueing: tasks, their inputs and their keys in one statement.
//!
//! It never publishes; the relay does, after the commit, and may be told at once.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::batch::MAX_BATCH;
use super::connect::Store;
use super::error::Error;
use super::session::Session;
use crate::domain::execution_key::payload_hash;
use crate::domain::outcome::TaskError;
use crate::domain::task::{Due, Enqueued, NewTask, PayloadError, Semantics, TaskId, check_payload};
use crate::failpoint;

/// Why a task was not enqueued.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EnqueueError {
    /// The same key with another payload: exit code 3.
    #[error(
        "key_reused_with_other_payload: {name:?} already has the key {execution_key:?} with another payload (task {existing}); use another key, or send the same payload"
    )]
    KeyReused {
        /// Scope.
        name: String,
        /// Key.
        execution_key: String,
        /// The task that owns it.
        existing: TaskId,
    },
    /// The payload cannot be kept.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The database.
    #[error(transparent)]
    Store(#[from] Error),
}

impl From<EnqueueError> for TaskError {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Store(error) => error.into(),
            EnqueueError::KeyReused { .. } | EnqueueError::Payload(_) => Self::permanent(error),
        }
    }
}

impl Store {
    /// Enqueues one task.
    pub async fn enqueue(&self, task: NewTask) -> Result<Enqueued, EnqueueError> {
        let mut answers = self.enqueue_all(&[task]).await?;
        answers.pop().unwrap_or_else(|| Err(Error::row("enqueue answered no row").into()))
    }

    /// Enqueues many tasks, at most [`MAX_BATCH`] a statement, and answers for each in order.
    ///
    /// Rows that share a key within the list are enqueued one after another.
    pub async fn enqueue_all(
        &self,
        tasks: &[NewTask],
    ) -> Result<Vec<Result<Enqueued, EnqueueError>>, Error> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let answers = all_in(&self.session().await?, self.key_retention, tasks).await?;
        failpoint::hit("after_enqueue_commit").await;
        Ok(answers)
    }
}

/// As [`Store::enqueue_all`], on a given connection, so that a transaction may.
pub(super) async fn all_in(
    session: &Session,
    key_retention: Duration,
    tasks: &[NewTask],
) -> Result<Vec<Result<Enqueued, EnqueueError>>, Error> {
    let mut answers: BTreeMap<usize, Result<Enqueued, EnqueueError>> = BTreeMap::new();
    let mut left: Vec<usize> = Vec::with_capacity(tasks.len());
    for (n, task) in tasks.iter().enumerate() {
        match check_payload(&task.payload) {
            Ok(()) => left.push(n),
            Err(error) => {
                answers.insert(n, Err(error.into()));
            }
        }
    }
    while !left.is_empty() {
        let mut keys = HashSet::new();
        let (mut now, mut later) = (Vec::new(), Vec::new());
        for n in left {
            let fits = now.len() < MAX_BATCH && keys.insert((&tasks[n].name, tasks[n].key()));
            if fits { now.push(n) } else { later.push(n) }
        }
        let batch: Vec<&NewTask> = now.iter().map(|&n| &tasks[n]).collect();
        for (n, answer) in now.into_iter().zip(batch_in(session, key_retention, &batch).await?) {
            answers.insert(n, answer);
        }
        left = later;
    }
    Ok(answers.into_values().collect())
}

async fn batch_in(
    session: &Session,
    key_retention: Duration,
    tasks: &[&NewTask],
) -> Result<Vec<Result<Enqueued, EnqueueError>>, Error> {
    let ids: Vec<Uuid> = tasks.iter().map(|t| t.id.0).collect();
    let names: Vec<&str> = tasks.iter().map(|t| t.name.as_str()).collect();
    let keys: Vec<String> = tasks.iter().map(|t| t.key()).collect();
    let hashes: Vec<Vec<u8>> = tasks.iter().map(|t| payload_hash(&t.payload)).collect();
    let types: Vec<&str> = tasks.iter().map(|t| t.task_type.as_str()).collect();
    let pools: Vec<&str> = tasks.iter().map(|t| t.pool.as_str()).collect();
    let payloads: Vec<&Value> = tasks.iter().map(|t| &t.payload).collect();
    let (delays, dues): (Vec<i64>, Vec<Option<DateTime<Utc>>>) =
        tasks.iter().map(|t| due_columns(t.due)).unzip();
    let timeouts: Vec<i64> = tasks.iter().map(|t| millis(t.timeout)).collect();
    let retries: Vec<i32> = tasks.iter().map(|t| t.retry.max_retry as i32).collect();
    let bases: Vec<i64> = tasks.iter().map(|t| millis(t.retry.base)).collect();
    let maxes: Vec<i64> = tasks.iter().map(|t| millis(t.retry.max)).collect();
    let once: Vec<bool> = tasks.iter().map(|t| t.semantics == Semantics::AtMostOnce).collect();
    let traces: Vec<Option<&str>> = tasks.iter().map(|t| t.traceparent.as_deref()).collect();
    let keep = key_retention.as_secs_f64();
    let rows = session
        .query(
            include_str!("sql/enqueue.sql"),
            &[
                &ids, &names, &keys, &hashes, &types, &pools, &payloads, &delays, &dues, &timeouts,
                &retries, &bases, &maxes, &once, &traces, &keep,
            ],
        )
        .await?;
    if rows.len() != tasks.len() {
        return Err(Error::row("enqueue answered another number of rows than it was asked"));
    }
    rows.iter().zip(tasks).map(|(row, task)| enqueued_of(row, task)).collect()
}

fn enqueued_of(row: &Row, task: &NewTask) -> Result<Result<Enqueued, EnqueueError>, Error> {
    let state: String = row.get("state");
    let task_id = TaskId(row.get("task_id"));
    let enqueued = Enqueued {
        task_id,
        name: task.name.clone(),
        execution_key: task.key(),
        state: state.parse().map_err(Error::row)?,
        deduplicated: row.get("deduplicated"),
    };
    if enqueued.deduplicated && !row.get::<_, bool>("same_payload") {
        return Ok(Err(EnqueueError::KeyReused {
            name: enqueued.name,
            execution_key: enqueued.execution_key,
            existing: task_id,
        }));
    }
    Ok(Ok(enqueued))
}

fn due_columns(due: Due) -> (i64, Option<DateTime<Utc>>) {
    match due {
        Due::Now => (0, None),
        Due::In(delay) => (millis(delay), None),
        Due::At(at) => (0, Some(at)),
    }
}

/// Milliseconds as `bigint`; a duration beyond it is the largest one.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
