//! What the watch looks at: marks of schedules, missed ticks, and who lives.
//!
//! Reads only, each bounded by a page or a window.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;

/// A schedule that is to tick.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Name.
    pub name: String,
    /// Cron line.
    pub cron: String,
    /// Zone.
    pub timezone: String,
    /// Every planned instant up to here is decided.
    pub mark: DateTime<Utc>,
    /// The whole entry.
    pub spec: Value,
}

/// Instants of a schedule that were missed, or whose task did not start by its deadline, and of which no
/// episode has heard.
#[derive(Clone, Debug)]
pub struct MissedTicks {
    /// The schedule.
    pub schedule: String,
    /// The first of them.
    pub first: DateTime<Utc>,
    /// The last of them.
    pub last: DateTime<Utc>,
    /// How many.
    pub count: i64,
    /// How many of them have a task, which did not start by its deadline.
    pub not_started: i64,
    /// The last of these.
    pub last_not_started: Option<DateTime<Utc>>,
    /// When the last was recorded.
    pub seen_at: DateTime<Utc>,
    /// The schedule's deadline, as it is now.
    pub deadline: Option<Duration>,
}

/// The newest tick of a schedule of which one knows how it went.
#[derive(Clone, Debug)]
pub struct NewestTick {
    /// The schedule.
    pub schedule: String,
    /// In force and not paused.
    pub ticks: bool,
    /// Its instant and outcome; `not_started` where the task did not start by its deadline.
    pub newest: Option<(DateTime<Utc>, String)>,
}

/// An incarnation that lives, or that ended lately.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its identity: who was cut off from the database registers a new one.
    pub id: Uuid,
    /// `worker` or `producer`.
    pub role: String,
    /// `role@host#pid`; processes in containers may share one.
    pub label: String,
    /// Registration.
    pub started_at: DateTime<Utc>,
    /// Last heartbeat, or its goodbye.
    pub seen_at: DateTime<Utc>,
    /// It said goodbye.
    pub stopped: bool,
    /// Its lease is over for long, and it said no goodbye.
    pub gone: bool,
}

impl Store {
    /// A page of the schedules that are to tick, by name, after a given one.
    pub async fn watched(&self, after: Option<&str>, page: i64) -> Result<Vec<Watched>, Error> {
        let named: Option<&[&str]> = None;
        let rows = self.query(include_str!("sql/watched.sql"), &[&after, &page, &named]).await?;
        Ok(rows.iter().map(watched_of).collect())
    }

    /// Those of the named schedules that are to tick.
    pub async fn watched_of(&self, names: &[&str]) -> Result<Vec<Watched>, Error> {
        let (after, page) = (None::<&str>, names.len() as i64);
        let rows = self.query(include_str!("sql/watched.sql"), &[&after, &page, &names]).await?;
        Ok(rows.iter().map(watched_of).collect())
    }

    /// Instants that were missed, or did not start in time, within the window, by schedule.
    pub async fn missed_ticks(
        &self,
        window: Duration,
        limit: i64,
    ) -> Result<Vec<MissedTicks>, Error> {
        let rows =
            self.query(include_str!("sql/missed_ticks.sql"), &[&millis(window), &limit]).await?;
        Ok(rows
            .iter()
            .map(|row| MissedTicks {
                schedule: row.get("schedule"),
                first: row.get("first_at"),
                last: row.get("last_at"),
                count: row.get("count"),
                not_started: row.get("not_started"),
                last_not_started: row.get("last_not_started_at"),
                seen_at: row.get("seen_at"),
                deadline: row
                    .get::<_, Option<i64>>("deadline_ms")
                    .map(|ms| Duration::from_millis(ms.unsigned_abs())),
            })
            .collect())
    }

    /// The newest tick of each of these schedules.
    pub async fn newest_ticks(&self, schedules: &[&str]) -> Result<Vec<NewestTick>, Error> {
        let rows = self.query(include_str!("sql/newest_ticks.sql"), &[&schedules]).await?;
        Ok(rows
            .iter()
            .map(|row| {
                let outcome: Option<String> = row.get("outcome");
                NewestTick {
                    schedule: row.get("name"),
                    ticks: row.get("ticks"),
                    newest: outcome.map(|outcome| (row.get("planned_at"), outcome)),
                }
            })
            .collect())
    }

    /// Incarnations that live, and those whose lease has not been over for `view`. After `gone` without
    /// a goodbye they are gone, and after `news` no news any more.
    pub async fn members(
        &self,
        gone: Duration,
        news: Duration,
        view: Duration,
    ) -> Result<Vec<Member>, Error> {
        let (gone, news, view) = (millis(gone), millis(news), millis(view));
        let rows = self.query(include_str!("sql/members.sql"), &[&gone, &news, &view]).await?;
        Ok(rows
            .iter()
            .map(|row| Member {
                id: row.get("id"),
                role: row.get("role"),
                label: row.get("label"),
                started_at: row.get("started_at"),
                seen_at: row.get("seen_at"),
                stopped: row.get("stopped"),
                gone: row.get("gone"),
            })
            .collect())
    }
}

fn watched_of(row: &Row) -> Watched {
    Watched {
        name: row.get("name"),
        cron: row.get("cron"),
        timezone: row.get("timezone"),
        mark: row.get("mark"),
        spec: row.get("spec"),
    }
}
