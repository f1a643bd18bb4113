//! What the server says of itself, and how much is open: for `doctor` and `status`.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::connect::Store;
use super::error::Error;

/// The server as `doctor` judges it.
#[derive(Clone, Debug)]
pub struct Server {
    /// Version, for people.
    pub version: String,
    /// Version as a number: 150018 is 15.18.
    pub number: i32,
    /// Isolation of a session that says nothing.
    pub isolation: String,
    /// `synchronous_commit` of our sessions.
    pub synchronous_commit: String,
    /// True for a replica, which takes no writes.
    pub standby: bool,
    /// True when our transactions may not write, whatever the reason.
    pub read_only: bool,
    /// The server's clock.
    pub now: DateTime<Utc>,
}

/// What waits for a person. JSON: one object with these keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OpenMatters {
    /// Open dead letters.
    pub dead_letters: i64,
    /// Alerts that no webhook has accepted yet.
    pub unsent_alerts: i64,
}

impl Store {
    /// Asks the server about itself; needs no schema.
    pub async fn server(&self) -> Result<Server, Error> {
        let row = self.query_opt(include_str!("sql/server.sql"), &[]).await?;
        let row = row.ok_or_else(|| Error::row("the server answered no row about itself"))?;
        Ok(Server {
            version: row.get("version"),
            number: row.get("number"),
            isolation: row.get("isolation"),
            synchronous_commit: row.get("synchronous_commit"),
            standby: row.get("standby"),
            read_only: row.get("read_only"),
            now: row.get("now"),
        })
    }

    /// Counts what is open.
    pub async fn open_matters(&self) -> Result<OpenMatters, Error> {
        let row = self.query_opt(include_str!("sql/open_matters.sql"), &[]).await?;
        Ok(row.map_or_else(OpenMatters::default, |row| OpenMatters {
            dead_letters: row.get("dead_letters"),
            unsent_alerts: row.get("unsent_alerts"),
        }))
    }
}
