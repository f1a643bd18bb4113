//! Tasks as people read them, and their cancellation.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connect::Store;
use super::error::Error;
use crate::domain::attempt::ClaimToken;
use crate::domain::outcome::ErrorClass;
use crate::domain::task::{Priority, TaskId, TaskState};

/// Which tasks are listed.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    /// In one state.
    pub state: Option<TaskState>,
    /// Of one type.
    pub task_type: Option<String>,
    /// Of one name.
    pub name: Option<String>,
    /// Of one key.
    pub execution_key: Option<String>,
}

/// A task as listed. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct TaskSummary {
    /// Identity.
    pub task_id: Uuid,
    /// Scope of the key.
    pub name: String,
    /// Key.
    pub execution_key: String,
    /// Type.
    pub task_type: String,
    /// Pool.
    pub pool: String,
    /// Schedule.
    pub schedule: Option<String>,
    /// State.
    pub state: TaskState,
    /// Attempts.
    pub run: i32,
    /// Failures.
    pub failures: i32,
    /// Crashes.
    pub crashes: i32,
    /// Due.
    pub due_at: DateTime<Utc>,
    /// Enqueued.
    pub created_at: DateTime<Utc>,
    /// Finished.
    pub finished_at: Option<DateTime<Utc>>,
    /// Who ran it last.
    pub worker: Option<String>,
    /// Class of the last attempt's failure.
    pub error_class: Option<String>,
    /// Its message.
    pub error_message: Option<String>,
}

/// One attempt as shown.
pub type AttemptRow = Value;

/// A task with everything that is known of it.
#[derive(Clone, Debug, Serialize)]
pub struct TaskRow {
    /// The listed part.
    #[serde(flatten)]
    pub summary: TaskSummary,
    /// Planned instant.
    pub scheduled_for: Option<DateTime<Utc>>,
    /// Input.
    pub payload: Value,
    /// Milliseconds an attempt may take.
    pub timeout_ms: i64,
    /// Retries allowed.
    pub max_retry: i32,
    /// Never reruns.
    pub at_most_once: bool,
    /// Context of its creation.
    pub traceparent: Option<String>,
    /// Its message was confirmed at.
    pub published_at: Option<DateTime<Utc>>,
    /// The running attempt is given back at.
    pub deadline_at: Option<DateTime<Utc>>,
    /// It must start by then.
    pub start_by: Option<DateTime<Utc>>,
    /// Place in the queue.
    pub priority: Priority,
    /// Somebody asked to end it at.
    pub cancel_requested_at: Option<DateTime<Utc>>,
    /// `{done, failed}`, once the handler said so.
    pub progress: Option<Progress>,
    /// Result.
    pub result: Option<Value>,
    /// Attempts, oldest first.
    pub attempts: Vec<AttemptRow>,
    /// Steps, oldest first.
    pub steps: Value,
    /// Model calls, oldest first.
    pub llm_calls: Value,
    /// Its tick.
    pub tick: Option<Value>,
}

/// Progress of a running task.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Progress {
    /// Items done.
    pub done: i64,
    /// Items failed.
    pub failed: i64,
}

/// Tasks of one pool, type and state. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct TaskCount {
    /// Pool.
    pub pool: String,
    /// Type.
    pub task_type: String,
    /// State.
    pub state: TaskState,
    /// How many.
    pub tasks: i64,
}

impl Store {
    /// Tasks, newest first.
    pub async fn tasks(&self, filter: &TaskFilter, limit: i64) -> Result<Vec<TaskSummary>, Error> {
        let state = filter.state.map(TaskState::as_str);
        let rows = self
            .query(
                include_str!("sql/tasks.sql"),
                &[&state, &filter.task_type, &filter.name, &filter.execution_key, &limit],
            )
            .await?;
        rows.iter().map(summary_of).collect()
    }

    /// One task with everything that is known of it.
    pub async fn task(&self, id: TaskId) -> Result<Option<TaskRow>, Error> {
        let row = self.query_opt(include_str!("sql/task.sql"), &[&id.0]).await?;
        row.as_ref().map(task_of).transpose()
    }

    /// Tasks by pool, type and state.
    pub async fn counts(&self) -> Result<Vec<TaskCount>, Error> {
        let rows = self.query(include_str!("sql/counts.sql"), &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(TaskCount {
                    pool: row.get("pool"),
                    task_type: row.get("task_type"),
                    state: row.get::<_, &str>("state").parse().map_err(Error::row)?,
                    tasks: row.get("tasks"),
                })
            })
            .collect()
    }

    /// Cancels a task that is not finished; answers its state now, `None` when it had finished.
    pub async fn cancel(&self, id: TaskId) -> Result<Option<TaskState>, Error> {
        let row = self.query_opt(include_str!("sql/cancel.sql"), &[&id.0]).await?;
        row.map(|row| row.get::<_, &str>("state").parse().map_err(Error::row)).transpose()
    }

    /// Which of these running tasks somebody wants to end, with the claims meant.
    pub async fn cancelling(&self, running: &[TaskId]) -> Result<Vec<(TaskId, ClaimToken)>, Error> {
        let ids: Vec<Uuid> = running.iter().map(|id| id.0).collect();
        let rows = self.query(include_str!("sql/cancelling.sql"), &[&ids]).await?;
        Ok(rows
            .iter()
            .map(|row| (TaskId(row.get("id")), ClaimToken(row.get("claim_token"))))
            .collect())
    }
}

fn summary_of(row: &Row) -> Result<TaskSummary, Error> {
    let mut summary = TaskSummary {
        task_id: row.get("id"),
        name: row.get("name"),
        execution_key: row.get("execution_key"),
        task_type: row.get("task_type"),
        pool: row.get("pool"),
        schedule: row.get("schedule"),
        state: row.get::<_, &str>("state").parse().map_err(Error::row)?,
        run: row.get("run"),
        failures: row.get("failures"),
        crashes: row.get("crashes"),
        due_at: row.get("due_at"),
        created_at: row.get("created_at"),
        finished_at: row.get("finished_at"),
        worker: row.get("worker"),
        error_class: row.get("error_class"),
        error_message: row.get("error_message"),
    };
    let start_by: Option<DateTime<Utc>> = row.get("start_by");
    let asked: Option<DateTime<Utc>> = row.get("cancel_requested_at");
    if let (TaskState::Cancelled, 0, Some(by), None) = (summary.state, summary.run, start_by, asked)
    {
        // Nobody ran it, so no attempt tells why it ended.
        summary.error_class = Some(ErrorClass::Timeout.as_str().to_owned());
        summary.error_message = Some(format!(
            "it had not started by {}, its schedule's `deadline` after the tick",
            by.to_rfc3339_opts(SecondsFormat::Millis, true)
        ));
    }
    Ok(summary)
}

fn task_of(row: &Row) -> Result<TaskRow, Error> {
    let done: Option<i64> = row.get("progress_done");
    let failed: Option<i64> = row.get("progress_failed");
    let attempts: Value = row.get("attempts");
    Ok(TaskRow {
        summary: summary_of(row)?,
        scheduled_for: row.get("scheduled_for"),
        payload: row.get("payload"),
        timeout_ms: row.get("timeout_ms"),
        max_retry: row.get("max_retry"),
        at_most_once: row.get("at_most_once"),
        traceparent: row.get("traceparent"),
        published_at: row.get("published_at"),
        deadline_at: row.get("deadline_at"),
        start_by: row.get("start_by"),
        priority: Priority::from_level(row.get("priority")),
        cancel_requested_at: row.get("cancel_requested_at"),
        progress: done.map(|done| Progress { done, failed: failed.unwrap_or(0) }),
        result: row.get("result"),
        attempts: attempts.as_array().cloned().unwrap_or_default(),
        steps: row.get("steps"),
        llm_calls: row.get("llm_calls"),
        tick: row.get("tick"),
    })
}
