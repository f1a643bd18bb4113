//! The sweeps: rescue of what dead processes held, release of what runs past its deadline, a
//! worker's audit of its own rows, and the search for lost messages.
//!
//! Any process may run them at any time; `SKIP LOCKED` keeps them out of each other's way.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connect::{ANSWER_TIMEOUT, Store};
use super::enqueue::millis;
use super::error::Error;
use crate::domain::attempt::{ClaimToken, Incarnation};
use crate::domain::task::{TaskId, TaskState};

/// Claims younger than this are left out of a worker's audit: its list of tokens was made before
/// the statement, and a claim takes at most [`ANSWER_TIMEOUT`].
pub const AUDIT_AGE: Duration = ANSWER_TIMEOUT.saturating_add(Duration::from_secs(2));

/// What a sweep gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenBack {
    /// The task.
    pub task: TaskId,
    /// `queued`, `dead` or `cancelled`.
    pub state: TaskState,
}

/// Ready messages of a pool's queue, as the broker says.
#[derive(Clone, Debug)]
pub struct Lost {
    /// Pool.
    pub pool: String,
    /// Ready messages.
    pub ready: u64,
}

impl Store {
    /// Fences incarnations whose lease is over; gives back what every fenced one held.
    pub async fn rescue(&self) -> Result<Vec<GivenBack>, Error> {
        const SQL: &str =
            concat!(include_str!("sql/rescue.sql"), include_str!("sql/give_back.sql"));
        let message = "the worker stopped answering and its lease ended";
        let back = self.give_back(SQL, "lease_expired", message, &[]).await?;
        if !back.is_empty() {
            crate::failpoint::hit("in_rescue").await;
        }
        Ok(back)
    }

    /// Gives back what runs past its deadline.
    pub async fn release_overdue(&self) -> Result<Vec<GivenBack>, Error> {
        const SQL: &str =
            concat!(include_str!("sql/deadline.sql"), include_str!("sql/give_back.sql"));
        self.give_back(SQL, "deadline", "the attempt ran past its deadline", &[]).await
    }

    /// Gives back rows of our own identity that none of `held` stands for.
    pub async fn audit(
        &self,
        by: Incarnation,
        held: &[ClaimToken],
    ) -> Result<Vec<GivenBack>, Error> {
        const SQL: &str = concat!(include_str!("sql/audit.sql"), include_str!("sql/give_back.sql"));
        let held: Vec<Uuid> = held.iter().map(|token| token.0).collect();
        let message = "no slot of the worker held the claim any more";
        self.give_back(SQL, "abandoned", message, &[&by.0, &held, &millis(AUDIT_AGE)]).await
    }

    /// Ends calls whose attempt has ended without a word about them, as of unknown outcome, and
    /// forgets who waited for a quota and has ended. Answers how many calls.
    pub async fn end_lost_calls(&self) -> Result<usize, Error> {
        Ok(self.query(include_str!("sql/calls_lost.sql"), &[]).await?.len())
    }

    /// Ends tasks that have not started by their deadline; answers which.
    pub async fn end_late_starts(&self) -> Result<Vec<TaskId>, Error> {
        let rows = self.query(include_str!("sql/late_starts.sql"), &[]).await?;
        Ok(rows.iter().map(|row| TaskId(row.get("id"))).collect())
    }

    /// Clears the marks of tasks whose message is gone; answers which.
    pub async fn find_lost(&self, grace: Duration, depths: &[Lost]) -> Result<Vec<TaskId>, Error> {
        let pools: Vec<&str> = depths.iter().map(|d| d.pool.as_str()).collect();
        let ready: Vec<i64> = depths.iter().map(|d| d.ready as i64).collect();
        let rows = self
            .query(include_str!("sql/lost_messages.sql"), &[&millis(grace), &pools, &ready])
            .await?;
        Ok(rows.iter().map(|row| TaskId(row.get("id"))).collect())
    }

    async fn give_back(
        &self,
        sql: &'static str,
        outcome: &str,
        message: &str,
        more: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<GivenBack>, Error> {
        let limit = self.crash_limit as i32;
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&limit, &outcome, &message];
        params.extend_from_slice(more);
        self.query(sql, &params).await?.iter().map(given_back_of).collect()
    }
}

fn given_back_of(row: &Row) -> Result<GivenBack, Error> {
    let state: String = row.get("state");
    Ok(GivenBack { task: TaskId(row.get("id")), state: state.parse().map_err(Error::row)? })
}
