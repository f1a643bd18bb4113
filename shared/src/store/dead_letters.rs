//! Dead letters: tasks given up, until somebody replays or discards them.
//!
//! The table is the truth; the dead queue mirrors the open ones for eyes and hands.

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connect::Store;
use super::error::Error;
use crate::domain::task::TaskId;

/// Who closed a letter whose copy was moved to a work queue: the broker does not say which person.
pub const MOVED_BY_HAND: &str = "moved by hand in RabbitMQ";
/// Characters of an unreadable message that are kept in its row.
const UNREADABLE_CHARS: usize = 2000;

/// Which letters are listed.
#[derive(Clone, Debug, Default)]
pub struct DeadFilter {
    /// Resolved ones too.
    pub all: bool,
    /// One letter.
    pub id: Option<i64>,
    /// Of one task type.
    pub task_type: Option<String>,
    /// Of one name.
    pub name: Option<String>,
}

/// A letter as listed. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct DeadLetter {
    /// Number.
    pub id: i64,
    /// Task; none for an unreadable message.
    pub task_id: Option<Uuid>,
    /// Attempt that ended it.
    pub run: Option<i32>,
    /// Name.
    pub name: Option<String>,
    /// Task type.
    pub task_type: Option<String>,
    /// Key.
    pub execution_key: Option<String>,
    /// Failures of the task.
    pub failures: Option<i32>,
    /// Crashes of the task.
    pub crashes: Option<i32>,
    /// Class of the last failure.
    pub error_class: String,
    /// Its message.
    pub error_message: String,
    /// Start of an unreadable message.
    pub body: Option<String>,
    /// When it died.
    pub created_at: DateTime<Utc>,
    /// Who looks after it.
    pub claimed_by: Option<String>,
    /// Since when.
    pub claimed_at: Option<DateTime<Utc>>,
    /// Closed at.
    pub resolved_at: Option<DateTime<Utc>>,
    /// Closed by.
    pub resolved_by: Option<String>,
    /// `replayed` or `discarded`.
    pub resolution: Option<String>,
}

/// What a replay answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// The task is queued again.
    Queued(TaskId),
    /// The letter is closed already, or its task is not dead.
    NotOpen,
    /// There is no such letter.
    Unknown,
}

impl Store {
    /// Letters, newest first.
    pub async fn dead_letters(
        &self,
        filter: &DeadFilter,
        limit: i64,
    ) -> Result<Vec<DeadLetter>, Error> {
        let rows = self
            .query(
                include_str!("sql/dead_letters.sql"),
                &[&filter.all, &filter.id, &filter.task_type, &filter.name, &limit],
            )
            .await?;
        Ok(rows.iter().map(letter_of).collect())
    }

    /// Sends a dead task again, once.
    pub async fn replay(&self, letter: i64, by: &str) -> Result<Replayed, Error> {
        let any_task = None::<Uuid>;
        let row =
            self.query_opt(include_str!("sql/replay.sql"), &[&letter, &by, &any_task]).await?;
        if let Some(row) = row {
            crate::failpoint::hit("in_replay").await;
            return Ok(Replayed::Queued(TaskId(row.get("id"))));
        }
        let filter = DeadFilter { all: true, id: Some(letter), ..DeadFilter::default() };
        let known = !self.dead_letters(&filter, 1).await?.is_empty();
        Ok(if known { Replayed::NotOpen } else { Replayed::Unknown })
    }

    /// Sends a dead task again because a copy of this letter was moved to a work queue; false when
    /// the letter is closed, or is not this task's, or the task is not dead.
    pub async fn replay_moved(&self, letter: i64, task: TaskId) -> Result<bool, Error> {
        let row = self
            .query_opt(include_str!("sql/replay.sql"), &[&letter, &MOVED_BY_HAND, &Some(task.0)])
            .await?;
        if row.is_some() {
            crate::failpoint::hit("in_replay").await;
        }
        Ok(row.is_some())
    }

    /// Says who looks after an open letter; false when it is closed, unknown, or another's.
    pub async fn claim_letter(&self, letter: i64, by: &str) -> Result<bool, Error> {
        Ok(self.query_opt(include_str!("sql/claim_letter.sql"), &[&letter, &by]).await?.is_some())
    }

    /// Gives an open letter up, whoever had claimed it; false when it is closed or unknown.
    pub async fn unclaim_letter(&self, letter: i64) -> Result<bool, Error> {
        Ok(self.query_opt(include_str!("sql/unclaim_letter.sql"), &[&letter]).await?.is_some())
    }

    /// Closes a letter without another run; false when there is no open one.
    pub async fn discard(&self, letter: i64, by: &str) -> Result<bool, Error> {
        Ok(self.query_opt(include_str!("sql/discard.sql"), &[&letter, &by]).await?.is_some())
    }

    /// Keeps the start of a message that could not be read; answers the letter's number.
    pub async fn keep_unreadable(&self, reason: &str, body: &[u8]) -> Result<i64, Error> {
        let (reason, body) = (start(reason.as_bytes()), start(body));
        let row = self.query_opt(include_str!("sql/unreadable.sql"), &[&reason, &body]).await?;
        row.map(|row| row.get("id")).ok_or_else(|| Error::row("unreadable answered no row"))
    }
}

/// As much of a text as a row keeps, without NUL.
pub(super) fn start(bytes: &[u8]) -> String {
    // No character has more than four bytes; the rest may be many megabytes.
    let most = &bytes[..bytes.len().min(UNREADABLE_CHARS * 4)];
    let plain = |c| if c == '\0' { '\u{fffd}' } else { c };
    String::from_utf8_lossy(most).chars().take(UNREADABLE_CHARS).map(plain).collect()
}

fn letter_of(row: &Row) -> DeadLetter {
    DeadLetter {
        id: row.get("id"),
        task_id: row.get("task_id"),
        run: row.get("run"),
        name: row.get("name"),
        task_type: row.get("task_type"),
        execution_key: row.get("execution_key"),
        failures: row.get("failures"),
        crashes: row.get("crashes"),
        error_class: row.get("error_class"),
        error_message: row.get("error_message"),
        body: row.get("body"),
        created_at: row.get("created_at"),
        claimed_by: row.get("claimed_by"),
        claimed_at: row.get("claimed_at"),
        resolved_at: row.get("resolved_at"),
        resolved_by: row.get("resolved_by"),
        resolution: row.get("resolution"),
    }
}
