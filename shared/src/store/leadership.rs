//! Leadership: one producer ticks. Any error or timeout means step down.
//!
//! The lease saves work; safety comes from the tick statement, which checks the term's token, and
//! from the key of the tick row.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;
use crate::domain::attempt::Incarnation;

/// A term that was taken or renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Its token.
    pub token: Uuid,
    /// Its number.
    pub epoch: i64,
    /// The database's present when it answered.
    pub now: DateTime<Utc>,
}

/// Who leads. JSON: `{"label","epoch","since","lease_until","alive"}`.
#[derive(Clone, Debug, Serialize)]
pub struct Leadership {
    /// `producer@host#pid`
    pub label: String,
    /// Number of the term.
    pub epoch: i64,
    /// Start of the term.
    pub since: DateTime<Utc>,
    /// End of the lease.
    pub lease_until: DateTime<Utc>,
    /// False when nobody leads.
    pub alive: bool,
}

impl Store {
    /// Takes or keeps the lead under a token; `None` when another leads.
    pub async fn lead(
        &self,
        token: Uuid,
        by: Incarnation,
        label: &str,
        ttl: Duration,
    ) -> Result<Option<Term>, Error> {
        let row = self
            .query_opt(include_str!("sql/lead.sql"), &[&token, &by.0, &label, &millis(ttl)])
            .await?;
        Ok(row.map(|row| Term { token, epoch: row.get("epoch"), now: row.get("now") }))
    }

    /// How long the lead is somebody's, by the database's clock; zero when it is free.
    pub async fn lead_left(&self) -> Result<Duration, Error> {
        let row = self.query_opt(include_str!("sql/lead_left.sql"), &[]).await?;
        Ok(row.map_or(Duration::ZERO, |row| {
            Duration::from_millis(row.get::<_, i64>("left_ms") as u64)
        }))
    }

    /// Gives the lead away.
    pub async fn step_down(&self, token: Uuid) -> Result<(), Error> {
        self.query(include_str!("sql/step_down.sql"), &[&token]).await.map(drop)
    }

    /// Who leads, if anybody ever did.
    pub async fn leader(&self) -> Result<Option<Leadership>, Error> {
        let row = self.query_opt(include_str!("sql/leader.sql"), &[]).await?;
        Ok(row.map(|row| Leadership {
            label: row.get("label"),
            epoch: row.get("epoch"),
            since: row.get("since"),
            lease_until: row.get("lease_until"),
            alive: row.get("alive"),
        }))
    }
}
