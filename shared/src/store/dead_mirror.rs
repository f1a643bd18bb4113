//! What the dead queue's mirror reads and marks: which copies should no longer be there, and which
//! should and are not.

use std::collections::HashSet;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connect::Store;
use super::dead_letters::start;
use super::enqueue::millis;
use super::error::Error;
use crate::domain::outcome::Failure;

/// Most letters of one walk; more are left to the next.
const MOST: i64 = 100_000;

/// Copies that the dead queue should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Of tasks' letters, which can be written again.
    pub tasks: u64,
    /// Of all letters.
    pub letters: u64,
}

/// The letter of a message that the broker itself has moved to the dead queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// A new one.
    Kept(i64),
    /// An open one.
    Known(i64),
    /// One that somebody has closed.
    Closed(i64),
}

impl Store {
    /// Resolved letters whose copy may still be in the dead queue.
    pub async fn stale_letters(&self) -> Result<Vec<i64>, Error> {
        let rows = self.query(include_str!("sql/stale_letters.sql"), &[&MOST]).await?;
        Ok(ids(&rows).collect())
    }

    /// Which of these letters are closed; unknown ones are not.
    pub async fn resolved_letters(&self, letters: &[i64]) -> Result<HashSet<i64>, Error> {
        let rows = self.query(include_str!("sql/resolved_letters.sql"), &[&letters]).await?;
        Ok(ids(&rows).collect())
    }

    /// Marks stale letters as gone from the dead queue, after a walk that took so long.
    pub async fn letters_removed(&self, letters: &[i64], took: Duration) -> Result<(), Error> {
        let took = millis(took);
        self.query(include_str!("sql/letters_removed.sql"), &[&letters, &took]).await.map(drop)
    }

    /// How many copies of open letters the dead queue holds, if nobody has taken one away.
    pub async fn copies_expected(&self) -> Result<Copies, Error> {
        let row = self.query_opt(include_str!("sql/copies_expected.sql"), &[]).await?;
        let count = |name: &str| row.as_ref().map_or(0, |row| row.get::<_, i64>(name));
        Ok(Copies {
            tasks: count("tasks").unsigned_abs(),
            letters: count("letters").unsigned_abs(),
        })
    }

    /// Keeps the start of a message that the broker itself has moved to the dead queue.
    pub async fn keep_moved(&self, why: &Failure, body: &[u8]) -> Result<Moved, Error> {
        let (class, body) = (why.class.as_str(), start(body));
        let params: [&(dyn ToSql + Sync); 3] = [&class, &why.message, &body];
        let row = self.query_opt(include_str!("sql/moved.sql"), &params).await?;
        let row = row.ok_or_else(|| Error::row("moved answered no row"))?;
        let letter = row.get("id");
        Ok(match (row.get("closed"), row.get("fresh")) {
            (true, _) => Moved::Closed(letter),
            (false, true) => Moved::Kept(letter),
            (false, false) => Moved::Known(letter),
        })
    }

    /// Asks the relay for copies of the open letters that a walk which took so long has not seen.
    /// Answers how many.
    pub async fn copies_lost(&self, seen: &[i64], took: Duration) -> Result<usize, Error> {
        let took = millis(took);
        Ok(self.query(include_str!("sql/copies_lost.sql"), &[&seen, &took]).await?.len())
    }
}

fn ids(rows: &[Row]) -> impl Iterator<Item = i64> {
    rows.iter().map(|row| row.get("id"))
}
