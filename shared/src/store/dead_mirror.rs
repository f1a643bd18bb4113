//! What the dead queue's mirror reads and marks: which copies should no longer be there, and which
//! should and are not.

use std::collections::HashSet;
use std::time::Duration;

use tokio_postgres::Row;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;

/// Most letters of one walk; more are left to the next.
const MOST: i64 = 100_000;

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
    pub async fn copies_expected(&self) -> Result<u64, Error> {
        let row = self.query_opt(include_str!("sql/copies_expected.sql"), &[]).await?;
        let count = row.map_or(0, |row| row.get::<_, i64>("copies"));
        Ok(count.max(0).unsigned_abs())
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
