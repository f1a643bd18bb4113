//! The completing transaction: a handler's own writes, its follow-up tasks and the end of its task,
//! committed together or not at all.
//!
//! It has a connection of its own and the house's limits on statements, locks and idleness. The
//! completion is its last statement; when that finds another's claim, everything is rolled back.
//! Dropped unfinished, it closes its connection, so that nothing half-done returns to the pool.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::artifacts::{self, NewArtifact};
use super::connect::Store;
use super::enqueue::{self, EnqueueError};
use super::error::Error;
use super::record::{Recorded, without_nul};
use super::session::Session;
use super::settlement::Settlement;
use crate::domain::attempt::ClaimToken;
use crate::domain::task::{Enqueued, NewTask, TaskId, TaskState};

/// An open transaction of a running attempt. Clones are the same transaction.
#[derive(Clone)]
pub struct Tx(Arc<Inner>);

struct Inner {
    /// `None` once the transaction has ended: a clone kept too long writes nothing.
    session: Mutex<Option<Session>>,
    task: TaskId,
    token: ClaimToken,
    key_retention: Duration,
    notes: std::sync::Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    follow_ups: Vec<TaskId>,
    trouble: Option<Error>,
}

/// How a completing transaction ended.
#[derive(Debug)]
pub enum TxEnd {
    /// Everything is committed, and the task is completed.
    Committed(Recorded),
    /// Another has the task: everything was rolled back.
    Fenced(Recorded),
    /// The answer to the commit was lost: [`Store::standing`] knows.
    Unknown(Error),
}

/// What the database says of a claim whose last answer was lost.
#[derive(Debug)]
pub enum Standing {
    /// It still runs under this claim: nothing was committed, and nothing is under way.
    Open,
    /// This claim completed it.
    Completed(Recorded),
    /// Another has it, or it ended otherwise.
    Fenced(Recorded),
}

impl Store {
    /// Begins the completing transaction of a claim.
    pub async fn begin(&self, task: TaskId, token: ClaimToken) -> Result<Tx, Error> {
        let tx = Tx(Arc::new(Inner {
            session: Mutex::new(Some(self.session().await?)),
            task,
            token,
            key_retention: self.key_retention,
            notes: std::sync::Mutex::default(),
        }));
        tx.say("BEGIN").await?;
        Ok(tx)
    }

    /// Where a claim stands. Waits for a commit that is still under way: that holds the row's lock.
    pub async fn standing(&self, task: TaskId, token: ClaimToken) -> Result<Standing, Error> {
        let session = self.session().await?;
        let rows = session.query(include_str!("sql/standing.sql"), &[&task.0, &token.0]).await?;
        if rows.first().is_some_and(|row| row.get("open")) {
            return Ok(Standing::Open);
        }
        // A statement of its own: the one above may have waited longer than its snapshot knows.
        let ours =
            session.query(include_str!("sql/completed_by.sql"), &[&task.0, &token.0]).await?;
        Ok(if ours.is_empty() { Standing::Fenced(fenced()) } else { Standing::Completed(done()) })
    }
}

impl Tx {
    /// Runs a statement; answers how many rows it touched.
    pub async fn execute(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64, Error> {
        let open = self.0.session.lock().await;
        let session = open.as_ref().ok_or_else(ended)?;
        self.noted(session.bounded(session.client().execute(sql, params)).await)
    }

    /// Runs a statement; answers its rows.
    pub async fn query(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let open = self.0.session.lock().await;
        let session = open.as_ref().ok_or_else(ended)?;
        self.noted(session.bounded(session.client().query(sql, params)).await)
    }

    /// Enqueues follow-up tasks: they exist if and only if this transaction commits.
    ///
    /// Their keys are locked until it ends; others who enqueue the same ones wait.
    pub async fn enqueue(&self, tasks: &[NewTask]) -> Result<Vec<Enqueued>, EnqueueError> {
        let open = self.0.session.lock().await;
        let session = open.as_ref().ok_or_else(ended)?;
        let answers = self.noted(enqueue::all_in(session, self.0.key_retention, tasks).await)?;
        let enqueued = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        let fresh = enqueued.iter().filter(|e| !e.deduplicated).map(|e| e.task_id);
        self.notes().follow_ups.extend(fresh);
        Ok(enqueued)
    }

    /// Keeps a report; as [`Store::keep_artifact`].
    pub async fn keep_artifact(
        &self,
        artifact: &NewArtifact,
    ) -> Result<Option<(i64, TaskId)>, Error> {
        let open = self.0.session.lock().await;
        let session = open.as_ref().ok_or_else(ended)?;
        self.noted(artifacts::keep_in(session, self.0.task, self.0.token, artifact).await)
    }

    /// Tasks that the commit brings into the world, for whoever publishes.
    pub fn follow_ups(&self) -> Vec<TaskId> {
        self.notes().follow_ups.clone()
    }

    /// The first statement that failed: after it the server refuses all others.
    pub fn trouble(&self) -> Option<Error> {
        self.notes().trouble.clone()
    }

    /// Completes the task as the last statement, and commits.
    ///
    /// # Errors
    /// Before the commit: nothing was written, and all of it may be tried again.
    pub async fn complete(self, result: &Value, traceparent: Option<&str>) -> Result<TxEnd, Error> {
        if let Some(error) = self.trouble() {
            return Err(error);
        }
        // Not "recorded": an earlier completion by this claim does not commit these writes.
        if !self.is_completed_now(result, traceparent).await? {
            self.rollback().await;
            return Ok(TxEnd::Fenced(fenced()));
        }
        match self.say("COMMIT").await {
            Ok(()) => {
                // The connection is clean: back to the pool.
                drop(self.0.session.lock().await.take());
                Ok(TxEnd::Committed(done()))
            }
            Err(error) => Ok(TxEnd::Unknown(error)),
        }
    }

    async fn is_completed_now(
        &self,
        result: &Value,
        traceparent: Option<&str>,
    ) -> Result<bool, Error> {
        let (id, token) = (vec![self.0.task.0], vec![self.0.token.0]);
        let result = without_nul(result);
        let open = self.0.session.lock().await;
        let session = open.as_ref().ok_or_else(ended)?;
        let params: [&(dyn ToSql + Sync); 4] = [&id, &token, &vec![&result], &vec![traceparent]];
        let rows = session.query(include_str!("sql/complete.sql"), &params).await;
        Ok(self.noted(rows)?.first().is_some_and(|row| row.get("now")))
    }

    /// Undoes everything.
    pub async fn rollback(self) {
        if self.trouble().is_some_and(|error| error.is_away()) {
            // Its connection ends with it.
            return;
        }
        if self.say("ROLLBACK").await.is_ok() {
            drop(self.0.session.lock().await.take());
        }
    }

    async fn say(&self, word: &str) -> Result<(), Error> {
        let open = self.0.session.lock().await;
        let session = open.as_ref().ok_or_else(ended)?;
        self.noted(session.bounded(session.client().batch_execute(word)).await)
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn noted<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &answer {
            self.notes().trouble.get_or_insert_with(|| error.clone());
        }
        answer
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(session) = self.session.get_mut().take() {
            // Closed, not returned: the server rolls back what a connection leaves open.
            session.close();
        }
    }
}

fn ended() -> Error {
    Error::row("the transaction has ended")
}

fn done() -> Recorded {
    Recorded { state: Some(TaskState::Completed), settlement: Settlement::ack() }
}

fn fenced() -> Recorded {
    Recorded { state: None, settlement: Settlement::fenced() }
}
