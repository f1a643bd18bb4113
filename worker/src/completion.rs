//! `context.complete_in`: a handler's own writes and the end of its task in one transaction.
//!
//! What became of it is kept here for the processor, whatever the handler returns afterwards: the
//! truth is what was committed, and it is recorded once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use shared::domain::outcome::TaskError;
use shared::domain::task::TaskId;
use shared::retry::Pauses;
use shared::store::{Error, Recorded, Standing, Tx, TxEnd};
use tracing::warn;

use crate::context::{Context, claim_lost};

/// Longest time between begin and completion: an open transaction holds locks, and holds up the
/// cleaning of every table. Network calls come before it.
pub const LONGEST_TRANSACTION: Duration = Duration::from_secs(30);
/// Times that the closure is run when its locks cannot be had, or others deadlock with it.
pub const TRIES: u32 = 5;

/// What a completing transaction came to.
#[derive(Debug)]
pub struct Ended {
    /// How to settle, and whether it was fenced.
    pub recorded: Recorded,
    /// Tasks that were enqueued with it, to be published.
    pub follow_ups: Vec<TaskId>,
}

/// Shared by an attempt's context and its processor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending(Arc<Mutex<Option<Ended>>>);

impl Ending {
    fn keep(&self, recorded: Recorded, follow_ups: Vec<TaskId>) {
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert(Ended { recorded, follow_ups });
    }

    /// What there is, once.
    pub(crate) fn take(&self) -> Option<Ended> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How one round of the closure ended.
enum Round {
    Ended(Result<Value, TaskError>),
    /// Nothing was written; another round may do better.
    Again(Error),
}

impl Context {
    /// Runs `work` in a transaction and completes the task with its answer as the last statement:
    /// the handler's writes, its follow-up tasks and the completion are committed together.
    ///
    /// The transaction is rolled back when `work` fails and when another attempt has the task.
    /// `work` runs again when its connection was lost before the commit, so it does nothing but
    /// write through its [`Tx`]. What the handler returns after a commit changes nothing.
    pub async fn complete_in<F, Fut>(&self, mut work: F) -> Result<Value, TaskError>
    where
        F: FnMut(Tx) -> Fut,
        Fut: Future<Output = Result<Value, TaskError>>,
    {
        if self.is_inside() {
            return Err(TaskError::permanent(
                "it completes its task together with its writes, and cannot run as a tool in another",
            ));
        }
        let mut pauses = Pauses::new();
        let mut round = 1;
        loop {
            // The store being away is no failure of the task: the attempt's own time bounds this.
            let tx = match self.house.store.begin(self.task_id, self.token).await {
                Ok(tx) => tx,
                Err(error) => {
                    warn!(%error, task.id = %self.task_id, "cannot begin a transaction; trying again");
                    tokio::time::sleep(pauses.next_pause()).await;
                    continue;
                }
            };
            match self.round(tx.clone(), work(tx)).await {
                Round::Ended(result) => return result,
                Round::Again(error) if error.is_away() || round < TRIES => {
                    // The store being away is no try, here as at the beginning.
                    round += u32::from(!error.is_away());
                    warn!(%error, task.id = %self.task_id, "rolled back; trying again");
                    tokio::time::sleep(pauses.next_pause()).await;
                }
                Round::Again(error) => return Err(error.into()),
            }
        }
    }

    async fn round<Fut>(&self, tx: Tx, work: Fut) -> Round
    where
        Fut: Future<Output = Result<Value, TaskError>>,
    {
        let worked = tokio::time::timeout(LONGEST_TRANSACTION, work).await;
        let result = match (worked, tx.trouble()) {
            (_, Some(error)) if error.is_passing() => {
                tx.rollback().await;
                return Round::Again(error);
            }
            (Ok(Ok(result)), _) => result,
            (Ok(Err(error)), _) => {
                tx.rollback().await;
                return Round::Ended(Err(error));
            }
            (Err(_), _) => {
                tx.rollback().await;
                return Round::Ended(Err(TaskError::retry(format!(
                    "the completing transaction was open for more than {LONGEST_TRANSACTION:?}; \
                     keep calls to other systems out of complete_in"
                ))));
            }
        };
        let follow_ups = tx.follow_ups();
        match tx.complete(&result, self.traceparent.as_deref()).await {
            Ok(TxEnd::Committed(recorded)) => self.committed(recorded, follow_ups, result),
            Ok(TxEnd::Fenced(recorded)) => self.fenced(recorded),
            Ok(TxEnd::Unknown(error)) => {
                warn!(%error, task.id = %self.task_id, "the answer to a commit was lost; asking");
                match self.standing().await {
                    Standing::Open => Round::Again(error),
                    Standing::Completed(recorded) => self.committed(recorded, follow_ups, result),
                    Standing::Fenced(recorded) => self.fenced(recorded),
                }
            }
            Err(error) if error.is_passing() => Round::Again(error),
            Err(error) => Round::Ended(Err(error.into())),
        }
    }

    /// Where our claim stands; asks until there is an answer or the attempt's time is over.
    async fn standing(&self) -> Standing {
        let mut pauses = Pauses::new();
        loop {
            match self.house.store.standing(self.task_id, self.token).await {
                Ok(standing) => return standing,
                Err(_) => tokio::time::sleep(pauses.next_pause()).await,
            }
        }
    }

    fn committed(&self, recorded: Recorded, follow_ups: Vec<TaskId>, result: Value) -> Round {
        self.ending.keep(recorded, follow_ups);
        Round::Ended(Ok(result))
    }

    fn fenced(&self, recorded: Recorded) -> Round {
        self.ending.keep(recorded, Vec::new());
        Round::Ended(Err(claim_lost()))
    }
}
