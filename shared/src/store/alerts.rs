//! Alerts: one row per alert, posted at least once. Those of deaths are written with the death, and
//! again while nobody claims it; those of episodes by their own room.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio_postgres::Row;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;

/// An alert. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct Alert {
    /// Number, also the webhook's id.
    pub id: i64,
    /// `dead`, `test`, or the kind of its episodes: `no_next_tick`, `behind`, `missed`,
    /// `lost_producer`, `lost_worker`.
    pub kind: String,
    /// `begun`, `again` or `over`.
    pub stage: String,
    /// Names of the schedules or labels of the processes that it tells of, the first twenty.
    pub subjects: Vec<String>,
    /// The letter it tells of.
    pub dead_letter_id: Option<i64>,
    /// First, second … of the same letter.
    pub seq: i32,
    /// What the person reads.
    pub text: String,
    /// When it arose.
    pub created_at: DateTime<Utc>,
    /// Posts so far.
    pub tries: i32,
    /// When it was accepted.
    pub sent_at: Option<DateTime<Utc>>,
    /// Why the last post failed.
    pub last_error: Option<String>,
}

impl Store {
    /// Writes the next alert of each open and unclaimed letter whose last one was accepted so long
    /// ago, at most so many. Answers how many.
    pub async fn repeat_alerts(&self, after: Duration, limit: i64) -> Result<usize, Error> {
        let after = millis(after);
        Ok(self.query(include_str!("sql/repeat_alerts.sql"), &[&after, &limit]).await?.len())
    }

    /// Takes due alerts to post; another sender sees them again only after a pause.
    pub async fn due_alerts(&self, limit: i64) -> Result<Vec<Alert>, Error> {
        let rows = self.query(include_str!("sql/due_alerts.sql"), &[&limit]).await?;
        Ok(rows.iter().map(|row| alert_of(row, None, None)).collect())
    }

    /// The webhook accepted it.
    pub async fn alert_sent(&self, id: i64) -> Result<(), Error> {
        self.query(include_str!("sql/alert_sent.sql"), &[&id]).await.map(drop)
    }

    /// The webhook did not.
    pub async fn alert_failed(&self, id: i64, error: &str) -> Result<(), Error> {
        self.query(include_str!("sql/alert_failed.sql"), &[&id, &error]).await.map(drop)
    }

    /// An alert that tries the webhook. Daemons leave it alone: the caller posts it.
    pub async fn test_alert(&self, text: &str) -> Result<Alert, Error> {
        let row = self.query_opt(include_str!("sql/test_alert.sql"), &[&text]).await?;
        let row = row.ok_or_else(|| Error::row("test_alert answered no row"))?;
        Ok(alert_of(&row, None, None))
    }

    /// Alerts, newest first.
    pub async fn alerts(&self, limit: i64) -> Result<Vec<Alert>, Error> {
        let rows = self.query(include_str!("sql/alerts.sql"), &[&limit]).await?;
        Ok(rows
            .iter()
            .map(|row| alert_of(row, row.get("sent_at"), row.get("last_error")))
            .collect())
    }
}

fn alert_of(row: &Row, sent_at: Option<DateTime<Utc>>, last_error: Option<String>) -> Alert {
    Alert {
        id: row.get("id"),
        kind: row.get("kind"),
        stage: row.get("stage"),
        subjects: row.get("subjects"),
        dead_letter_id: row.get("dead_letter_id"),
        seq: row.get("seq"),
        text: row.get("text"),
        created_at: row.get("created_at"),
        tries: row.get("tries"),
        sent_at,
        last_error,
    }
}
