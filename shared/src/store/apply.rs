//! Applying a file: one transaction that ticks what was due under the old entries and puts the new
//! ones in force.
//!
//! It holds the row of `schedule_file`, which every tick statement shares: while it is open nothing
//! ticks, and what ticks afterwards knows the new entries. It decides nothing: it is told what
//! differs.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio_postgres::Row;

use super::connect::Store;
use super::error::Error;
use super::schedules::{Kept, PauseEdges, pause_edges_in, specs_in};
use super::session::Session;
use super::ticks::{DecidedTick, TickInput, tick_in};
use crate::domain::schedule::{Digest, Schedule};

/// Entries of one statement: as JSON, each is many times its size at rest.
const CHUNK: usize = 500;

/// Statements that are on their way at once.
const IN_FLIGHT: usize = 4;

/// An apply in its transaction. Dropped unfinished, it leaves nothing.
pub struct Apply {
    /// `None` once it is committed.
    session: Option<Session>,
    now: DateTime<Utc>,
    revision: i64,
    key_retention: Duration,
    changes: bool,
}

impl Store {
    /// Begins to apply onto a revision; `None` when another revision is in force by now.
    pub async fn begin_apply(&self, revision: i64) -> Result<Option<Apply>, Error> {
        let session = self.session().await?;
        session.bounded(session.client().batch_execute("BEGIN")).await?;
        let mut apply = Apply {
            session: Some(session),
            now: DateTime::UNIX_EPOCH,
            revision,
            key_retention: self.key_retention,
            changes: false,
        };
        let rows =
            apply.session()?.query(include_str!("sql/begin_apply.sql"), &[&revision]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        apply.now = row.get("now");
        Ok(Some(apply))
    }
}

impl Apply {
    /// The moment of the change: what was due until now is ticked under the old entries, and the new
    /// ones begin here.
    pub fn now(&self) -> DateTime<Utc> {
        self.now
    }

    /// The entries in force under these names.
    pub async fn old(&self, names: &[&str]) -> Result<Vec<Kept>, Error> {
        specs_in(self.session()?, names).await
    }

    /// As [`Store::pause_edges`].
    pub async fn pause_edges(&self, names: &[&str]) -> Result<PauseEdges, Error> {
        pause_edges_in(self.session()?, names).await
    }

    /// Decides ticks that were due under old entries; at most one running tick per schedule.
    pub async fn tick(&self, ticks: &[TickInput]) -> Result<Vec<DecidedTick>, Error> {
        tick_in(self.session()?, None, ticks, self.key_retention).await
    }

    /// Puts entries in force from now on: each begins at [`now`](Self::now), but for those answered,
    /// which have a later mark of their own from before the database's clock went back.
    ///
    /// While the server takes one chunk, the next is written.
    pub async fn put(
        &mut self,
        entries: &[&Schedule],
    ) -> Result<HashMap<String, DateTime<Utc>>, Error> {
        self.changes |= !entries.is_empty();
        let chunks: Vec<_> = entries.chunks(CHUNK).map(|chunk| self.put_chunk(chunk)).collect();
        let answers = stream::iter(chunks).buffered(IN_FLIGHT);
        let ahead: Vec<Vec<Row>> = answers.try_collect().await?;
        Ok(ahead.iter().flatten().map(|row| (row.get("name"), row.get("mark"))).collect())
    }

    async fn put_chunk(&self, entries: &[&Schedule]) -> Result<Vec<Row>, Error> {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let (specs, digests): (Vec<String>, Vec<Digest>) =
            entries.iter().map(|entry| entry.written()).unzip();
        let digests: Vec<&[u8]> = digests.iter().map(Digest::as_slice).collect();
        let lines: Vec<&str> = entries.iter().map(|entry| entry.cron.as_str()).collect();
        let zones: Vec<&str> = entries.iter().map(|entry| entry.timezone.name()).collect();
        let types: Vec<&str> = entries.iter().map(|entry| entry.task_type.as_str()).collect();
        let revision = self.revision + 1;
        self.session()?
            .query(
                include_str!("sql/put_schedules.sql"),
                &[&names, &specs, &lines, &zones, &types, &digests, &self.now, &revision],
            )
            .await
    }

    /// Lets a schedule that was put go on for one that is about to be removed.
    pub async fn rename(&mut self, from: &str, to: &str) -> Result<(), Error> {
        self.changes = true;
        self.session()?
            .query(include_str!("sql/rename_schedule.sql"), &[&from, &to])
            .await
            .map(drop)
    }

    /// Stops schedules; their rows stay.
    pub async fn remove(&mut self, names: &[&str]) -> Result<(), Error> {
        self.changes |= !names.is_empty();
        let revision = self.revision + 1;
        for chunk in names.chunks(CHUNK) {
            self.session()?
                .query(include_str!("sql/remove_schedules.sql"), &[&chunk, &self.now, &revision])
                .await?;
        }
        Ok(())
    }

    /// Commits: the file that was read then, by this process or person, is in force. Answers its
    /// revision.
    pub async fn commit(mut self, read_at: DateTime<Utc>, by: &str) -> Result<i64, Error> {
        let step = i64::from(self.changes);
        let session = self.session()?;
        let rows = session.query(include_str!("sql/applied.sql"), &[&step, &read_at, &by]).await?;
        let row = rows.first().ok_or_else(|| Error::row("schedule_file is empty"))?;
        session.bounded(session.client().batch_execute("COMMIT")).await?;
        // The connection is clean: back to the pool.
        drop(self.session.take());
        Ok(row.get("revision"))
    }

    fn session(&self) -> Result<&Session, Error> {
        self.session.as_ref().ok_or_else(|| Error::row("the apply has ended"))
    }
}

impl Drop for Apply {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // Not returned: the server rolls back what a connection leaves open.
            session.close();
        }
    }
}
