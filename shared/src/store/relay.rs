//! What the relay reads and marks: committed rows whose message no broker has confirmed yet.

use std::time::Duration;

use uuid::Uuid;

use super::batch::MAX_BATCH;
use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;
use super::rows::message_of;
use crate::domain::message::Message;
use crate::domain::task::TaskId;

/// A task that asks for a message.
#[derive(Clone, Debug)]
pub struct Unpublished {
    /// The pointer to publish.
    pub message: Message,
    /// What remains until it is due.
    pub remaining: Duration,
}

impl Store {
    /// Tasks without a confirmed message, urgent ones first: those named; or, of all, at most 500,
    /// and only those that were due `grace` ago, if it is not zero.
    pub async fn unpublished(
        &self,
        named: Option<&[TaskId]>,
        grace: Duration,
    ) -> Result<Vec<Unpublished>, Error> {
        const NAMED: &str =
            concat!(include_str!("sql/named.sql"), include_str!("sql/unpublished.sql"));
        const LOOK: &str =
            concat!(include_str!("sql/look.sql"), include_str!("sql/unpublished.sql"));
        let rows = match named {
            Some(ids) => {
                let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
                self.query(NAMED, &[&ids]).await?
            }
            None => self.query(LOOK, &[&(MAX_BATCH as i64), &millis(grace)]).await?,
        };
        rows.iter()
            .map(|row| {
                let due_in: i64 = row.get("due_in_ms");
                let remaining = Duration::from_millis(due_in.max(0) as u64);
                Ok(Unpublished { message: message_of(row)?, remaining })
            })
            .collect()
    }

    /// Marks tasks as published: each with the run that was read. Answers how many were.
    pub async fn mark_published(&self, tasks: &[(TaskId, u32)]) -> Result<usize, Error> {
        let ids: Vec<Uuid> = tasks.iter().map(|(id, _)| id.0).collect();
        let runs: Vec<i32> = tasks.iter().map(|(_, run)| *run as i32).collect();
        Ok(self.query(include_str!("sql/publish_mark.sql"), &[&ids, &runs]).await?.len())
    }

    /// Gives scheduled tasks that are due within the hour, and waiting ones whose turn it is, to the
    /// relay. Answers how many.
    pub async fn release(&self) -> Result<usize, Error> {
        Ok(self.query(include_str!("sql/release.sql"), &[]).await?.len())
    }

    /// Open dead letters without a confirmed copy that are older than `grace`, oldest first.
    pub async fn unpublished_letters(&self, grace: Duration) -> Result<Vec<Message>, Error> {
        let rows = self
            .query(
                include_str!("sql/unpublished_letters.sql"),
                &[&(MAX_BATCH as i64), &millis(grace)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let mut message = message_of(row)?;
                message.dead_letter = Some(row.get("dead_letter"));
                Ok(message)
            })
            .collect()
    }

    /// Marks the copies of dead letters as published.
    pub async fn mark_letters(&self, letters: &[i64]) -> Result<(), Error> {
        self.query(include_str!("sql/letter_mark.sql"), &[&letters]).await.map(drop)
    }
}
