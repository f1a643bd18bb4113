//! The record: an attempt's outcome, written once, by the holder of its token alone.
//!
//! Zero rows mean that another took the task over (fenced): nothing is written and the late worker
//! is told. A record repeated with the same token is answered from the attempt's row.

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::batch::Batcher;
use super::connect::Store;
use super::error::Error;
use super::rows::message_of;
use super::settlement::Settlement;
use crate::domain::attempt::ClaimToken;
use crate::domain::outcome::{ErrorClass, Failure, Outcome};
use crate::domain::task::{TaskId, TaskState};

/// What is needed to end an attempt, kept apart from it so that a record can be repeated.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The task.
    pub task: TaskId,
    /// The claim that ends.
    pub token: ClaimToken,
    /// Span of the attempt.
    pub traceparent: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
}

/// What a record answered.
#[derive(Debug)]
pub struct Recorded {
    /// The task's state now.
    pub state: Option<TaskState>,
    /// How to settle the delivery.
    pub settlement: Settlement,
}

struct Done {
    task: TaskId,
    token: ClaimToken,
    result: Value,
    traceparent: Option<String>,
}

/// The batcher of completions.
#[derive(Clone, Default)]
pub struct CompleteBatcher(Batcher<Done, Result<bool, Error>>);

impl CompleteBatcher {
    pub(super) fn new() -> Self {
        Self::default()
    }
}

impl Store {
    /// Writes how an attempt ended. Safe to repeat with the same completion until it answers.
    pub async fn record(&self, completion: &Completion) -> Result<Recorded, Error> {
        match &completion.outcome {
            Outcome::Completed { result } => self.complete(completion, result).await,
            Outcome::Retry { delay, failure } => {
                self.end(completion, "retry", Some(*delay), Some(failure)).await
            }
            Outcome::Snooze { delay, failure } => {
                let name =
                    if failure.class == ErrorClass::Interrupted { "released" } else { "snooze" };
                self.end(completion, name, Some(*delay), Some(failure)).await
            }
            Outcome::Dead { failure } => self.end(completion, "dead", None, Some(failure)).await,
            Outcome::Cancelled => self.end(completion, "cancelled", None, None).await,
        }
    }

    async fn complete(&self, completion: &Completion, result: &Value) -> Result<Recorded, Error> {
        let result = without_nul(result);
        loop {
            let done = Done {
                task: completion.task,
                token: completion.token,
                result: result.clone(),
                traceparent: completion.traceparent.clone(),
            };
            match self.completions.0.ask(done, |batch| self.complete_batch(batch)).await {
                Some(Ok(true)) => {
                    return Ok(Recorded {
                        state: Some(TaskState::Completed),
                        settlement: Settlement::ack(),
                    });
                }
                Some(Ok(false)) => {
                    return Ok(Recorded { state: None, settlement: Settlement::fenced() });
                }
                Some(Err(error)) => return Err(error),
                // The carrier of our batch was dropped: ask again, the answer is the same.
                None => {}
            }
        }
    }

    async fn complete_batch(&self, batch: Vec<Done>) -> Vec<Result<bool, Error>> {
        let ids: Vec<Uuid> = batch.iter().map(|d| d.task.0).collect();
        let tokens: Vec<Uuid> = batch.iter().map(|d| d.token.0).collect();
        let results: Vec<&Value> = batch.iter().map(|d| &d.result).collect();
        let traces: Vec<Option<&str>> = batch.iter().map(|d| d.traceparent.as_deref()).collect();
        let rows =
            self.query(include_str!("sql/complete.sql"), &[&ids, &tokens, &results, &traces]).await;
        match rows {
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            Ok(rows) => {
                let recorded: std::collections::HashSet<Uuid> =
                    rows.iter().filter(|r| r.get("recorded")).map(|r| r.get("id")).collect();
                ids.iter().map(|id| Ok(recorded.contains(id))).collect()
            }
        }
    }

    async fn end(
        &self,
        completion: &Completion,
        outcome: &str,
        delay: Option<Duration>,
        failure: Option<&Failure>,
    ) -> Result<Recorded, Error> {
        let delay = delay.map(|d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
        let row = self
            .query_opt(
                include_str!("sql/end.sql"),
                &[
                    &vec![completion.task.0],
                    &vec![completion.token.0],
                    &vec![outcome],
                    &vec![delay],
                    &vec![failure.map(|f| f.class.as_str())],
                    &vec![failure.map(|f| f.message.as_str())],
                    &vec![completion.traceparent.as_deref()],
                ],
            )
            .await?
            .ok_or_else(|| Error::row("end.sql answered no row"))?;
        settle_end(&row)
    }
}

fn settle_end(row: &Row) -> Result<Recorded, Error> {
    let ours: bool = row.get("recorded");
    let earlier: Option<String> = row.get("earlier");
    let state: Option<String> = row.get("state");
    let state: Option<TaskState> = state.map(|s| s.parse()).transpose().map_err(Error::row)?;
    if !ours && earlier.is_none() {
        return Ok(Recorded { state, settlement: Settlement::fenced() });
    }
    let settlement = match state {
        Some(TaskState::Queued | TaskState::Retrying) => {
            let due_in: i64 = row.get("due_in_ms");
            Settlement::again(Duration::from_millis(due_in.max(0) as u64), message_of(row)?)
        }
        Some(TaskState::Dead) => match row.get::<_, Option<i64>>("dead_letter") {
            Some(letter) => {
                let mut message = message_of(row)?;
                message.dead_letter = Some(letter);
                Settlement::dead(message)
            }
            None => Settlement::ack(),
        },
        _ => Settlement::ack(),
    };
    Ok(Recorded { state, settlement })
}

/// `jsonb` has no NUL: it becomes U+FFFD, rather than an endless retry of the record.
pub(super) fn without_nul(value: &Value) -> Value {
    match value {
        Value::String(text) if text.contains('\0') => Value::String(text.replace('\0', "\u{fffd}")),
        Value::Array(items) => Value::Array(items.iter().map(without_nul).collect()),
        Value::Object(map) => Value::Object(
            map.iter().map(|(k, v)| (k.replace('\0', "\u{fffd}"), without_nul(v))).collect(),
        ),
        other => other.clone(),
    }
}
