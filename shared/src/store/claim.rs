//! The claim: the atomic taking of a task by a living incarnation.
//!
//! It never takes over a running task and never reads a message's content; a claim that does not
//! succeed says how to settle the delivery.

use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use super::batch::Batcher;
use super::connect::{DEADLINE_GRACE, Store};
use super::error::Error;
use super::rows::{Get, message_of};
use super::settlement::Settlement;
use crate::domain::attempt::{Attempt, ClaimToken, Incarnation};
use crate::domain::retry::RetryPolicy;
use crate::domain::task::{Semantics, TaskId, TaskState};

/// Repeats of a claim whose row moved between its read and its write.
const RACES: usize = 5;

/// What a claim answered.
#[derive(Debug)]
pub enum Claim {
    /// The task is ours: run it.
    Run(Box<Attempt>),
    /// It is not, and this is how to settle the delivery.
    Skip(Settlement),
    /// Our own identity is no longer alive: take a new one and claim again with a new token.
    LostIdentity,
}

/// One claim in a batch.
#[derive(Clone, Copy)]
pub struct Asked {
    task: TaskId,
    token: ClaimToken,
    by: Incarnation,
}

enum Answer {
    Claim(Claim),
    /// It has not started by its deadline, and must not any more.
    TooLate,
    /// The row was claimable when we read and was not when we wrote, or another copy of the same
    /// task is in this batch.
    Again,
}

pub(super) type ClaimBatcher = BatcherOf;

/// The batcher of claims.
#[derive(Clone, Default)]
pub struct BatcherOf(Batcher<Asked, Result<Answer, Error>>);

impl BatcherOf {
    pub(super) fn new() -> Self {
        Self::default()
    }
}

impl Store {
    /// Claims a task for an incarnation under a token made by the caller.
    ///
    /// Repeating it with the same token gives the same answer.
    pub async fn claim(
        &self,
        task: TaskId,
        token: ClaimToken,
        by: Incarnation,
    ) -> Result<Claim, Error> {
        for _ in 0..RACES {
            let asked = Asked { task, token, by };
            match self.claims.0.ask(asked, |batch| self.claim_batch(batch)).await {
                Some(Ok(Answer::Claim(claim))) => return Ok(claim),
                Some(Ok(Answer::TooLate)) => {
                    self.end_late_starts().await?;
                    return Ok(Claim::Skip(Settlement::ack()));
                }
                Some(Err(error)) => return Err(error),
                // `None`: the carrier of our batch was dropped; its statement may have gone through.
                Some(Ok(Answer::Again)) | None => {}
            }
        }
        // It moves under our eyes, so somebody has it in hand, and the sweeps cover it.
        Ok(Claim::Skip(Settlement::ack()))
    }

    /// Lets the deadline of a claim run from now; false when the claim is no longer ours.
    pub async fn restart_deadline(&self, task: TaskId, token: ClaimToken) -> Result<bool, Error> {
        let grace = DEADLINE_GRACE.as_millis() as i64;
        let sql = include_str!("sql/restart_deadline.sql");
        Ok(self.query_opt(sql, &[&task.0, &token.0, &grace]).await?.is_some())
    }

    async fn claim_batch(&self, batch: Vec<Asked>) -> Vec<Result<Answer, Error>> {
        let mut answers: Vec<Option<Result<Answer, Error>>> = batch.iter().map(|_| None).collect();
        let mut rounds: Vec<(Incarnation, Vec<usize>)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (n, asked) in batch.iter().enumerate() {
            // One row cannot be updated twice in a statement.
            if !seen.insert(asked.task) {
                answers[n] = Some(Ok(Answer::Again));
                continue;
            }
            match rounds.iter_mut().find(|(by, _)| *by == asked.by) {
                Some((_, members)) => members.push(n),
                None => rounds.push((asked.by, vec![n])),
            }
        }
        for (by, members) in rounds {
            let ids: Vec<Uuid> = members.iter().map(|&n| batch[n].task.0).collect();
            let tokens: Vec<Uuid> = members.iter().map(|&n| batch[n].token.0).collect();
            let grace = DEADLINE_GRACE.as_millis() as i64;
            let rows =
                self.query(include_str!("sql/claim.sql"), &[&ids, &tokens, &by.0, &grace]).await;
            match rows {
                Err(error) => {
                    for &n in &members {
                        answers[n] = Some(Err(error.clone()));
                    }
                }
                Ok(rows) => {
                    for row in rows {
                        let id = TaskId(row.get("id"));
                        let Some(&n) = members.iter().find(|&&n| batch[n].task == id) else {
                            continue;
                        };
                        answers[n] = Some(answer_of(&row, batch[n].token));
                    }
                }
            }
        }
        answers.into_iter().map(|answer| answer.unwrap_or(Ok(Answer::Again))).collect()
    }
}

fn answer_of(row: &Row, token: ClaimToken) -> Result<Answer, Error> {
    let Some(state) = row.get::<_, Option<String>>("state") else {
        // Unknown id: an honest orphan after a failover, or forged.
        return Ok(Answer::Claim(Claim::Skip(Settlement::orphan())));
    };
    let state: TaskState = state.parse().map_err(Error::row)?;
    if row.get("mine") {
        return Ok(Answer::Claim(Claim::Run(Box::new(attempt_of(row, token)?))));
    }
    if !row.get::<_, bool>("alive") {
        return Ok(Answer::Claim(Claim::LostIdentity));
    }
    let skip = |settlement| Ok(Answer::Claim(Claim::Skip(settlement)));
    match state {
        // Running, whatever its lease: the sweeps cover it. Scheduled and waiting: Postgres holds
        // it and the relay publishes when it is due.
        TaskState::Completed
        | TaskState::Dead
        | TaskState::Cancelled
        | TaskState::Running
        | TaskState::Scheduled
        | TaskState::Waiting => skip(Settlement::ack()),
        TaskState::Queued | TaskState::Retrying => {
            let due_in: i64 = row.get("due_in_ms");
            if row.get("cancelling") {
                skip(Settlement::ack())
            } else if row.get("too_late") {
                Ok(Answer::TooLate)
            } else if due_in > 0 {
                let remaining = Duration::from_millis(due_in as u64);
                skip(Settlement::early(remaining, message_of(row)?))
            } else {
                Ok(Answer::Again)
            }
        }
    }
}

fn attempt_of(row: &Row, token: ClaimToken) -> Result<Attempt, Error> {
    let due_in: i64 = row.get("due_in_ms");
    Ok(Attempt {
        task_id: TaskId(row.get("id")),
        token,
        run: row.count("run")?,
        failures: row.count("failures")?,
        crashes: row.count("crashes")?,
        task_type: row.get("task_type"),
        pool: row.get("pool"),
        name: row.get("name"),
        execution_key: row.get("execution_key"),
        payload: row.get("payload"),
        timeout: row.millis("timeout_ms"),
        retry: RetryPolicy {
            max_retry: row.count("max_retry")?,
            base: row.millis("backoff_base_ms"),
            max: row.millis("backoff_max_ms"),
        },
        semantics: if row.get("at_most_once") {
            Semantics::AtMostOnce
        } else {
            Semantics::AtLeastOnce
        },
        schedule: row.get("schedule"),
        scheduled_for: row.get("scheduled_for"),
        traceparent: row.get("traceparent"),
        previous_attempt: row.get("previous_attempt"),
        waited: Duration::from_millis((-due_in).max(0) as u64),
    })
}
