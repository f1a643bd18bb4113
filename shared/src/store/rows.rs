//! How rows become values, once.

use std::time::Duration;

use tokio_postgres::Row;

use super::error::Error;
use crate::domain::message::Message;
use crate::domain::outcome::Failure;
use crate::domain::task::{Priority, TaskId};

/// Reads that the driver does not have.
pub(super) trait Get {
    /// An `integer` that is never negative.
    fn count(&self, column: &str) -> Result<u32, Error>;
    /// A `bigint` of milliseconds.
    fn millis(&self, column: &str) -> Duration;
    /// `error_class` with `error_message`.
    fn failure(&self) -> Result<Option<Failure>, Error>;
}

impl Get for Row {
    fn count(&self, column: &str) -> Result<u32, Error> {
        let value: i32 = self.get(column);
        u32::try_from(value).map_err(|_| Error::row(format!("{column} is {value}")))
    }

    fn millis(&self, column: &str) -> Duration {
        Duration::from_millis(self.get::<_, i64>(column).max(0) as u64)
    }

    fn failure(&self) -> Result<Option<Failure>, Error> {
        let Some(class) = self.get::<_, Option<String>>("error_class") else { return Ok(None) };
        let message: Option<String> = self.get("error_message");
        let class = class.parse().map_err(Error::row)?;
        Ok(Some(Failure { class, message: message.unwrap_or_default() }))
    }
}

/// The message of a task, from a statement that returns the columns of one.
pub(super) fn message_of(row: &Row) -> Result<Message, Error> {
    Ok(Message {
        task_id: TaskId(row.get("id")),
        task_type: row.get("task_type"),
        pool: row.get("pool"),
        name: row.get("name"),
        execution_key: row.get("execution_key"),
        run: row.count("run")?,
        failures: row.count("failures")?,
        max_retry: row.count("max_retry")?,
        schedule: row.get("schedule"),
        scheduled_for: row.get("scheduled_for"),
        traceparent: row.get("traceparent"),
        previous_attempt: row.get("previous_attempt"),
        failure: row.failure()?,
        worker: row.get("last_worker"),
        dead_letter: None,
        priority: Priority::from_level(row.get("priority")),
    })
}
