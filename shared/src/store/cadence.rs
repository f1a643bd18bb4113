//! What the last ticks of a schedule came to: how often it really ran.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::connect::Store;
use super::error::Error;

/// Tick rows that are looked at.
pub const RECENT_TICKS: i64 = 20;

/// The last ticks of a schedule since its last edit.
#[derive(Clone, Debug, Default)]
pub struct RecentTicks {
    /// The schedule.
    pub schedule: String,
    /// Instants that made a task, oldest first.
    pub runs: Vec<DateTime<Utc>>,
    /// How many instants each outcome had; those that none had are left out. What was enqueued and did not
    /// start by its deadline is `not_started`.
    pub outcomes: BTreeMap<&'static str, i64>,
    /// The last task that one of them made or found, and its instant.
    pub last_task: Option<(Uuid, DateTime<Utc>)>,
    /// That task did not start by its deadline.
    pub last_not_started: bool,
    /// Where it stands; `None` when it was pruned.
    pub last_state: Option<String>,
    /// Class and message of the failure of its last attempt.
    pub last_error: Option<(String, String)>,
}

impl Store {
    /// The last ticks of one schedule, or of all.
    pub async fn recent_ticks(&self, schedule: Option<&str>) -> Result<Vec<RecentTicks>, Error> {
        const OUTCOMES: [&str; 6] =
            ["enqueued", "deduplicated", "skipped_overlap", "paused", "missed", "not_started"];
        let rows = self.query(include_str!("sql/cadence.sql"), &[&schedule, &RECENT_TICKS]).await?;
        Ok(rows
            .iter()
            .map(|row| {
                let counted = OUTCOMES.map(|outcome| (outcome, row.get::<_, i64>(outcome)));
                let task: Option<Uuid> = row.get("task_id");
                let class: Option<String> = row.get("error_class");
                let message: Option<String> = row.get("error_message");
                RecentTicks {
                    schedule: row.get("name"),
                    runs: row.get("runs"),
                    outcomes: counted.into_iter().filter(|(_, count)| *count > 0).collect(),
                    last_task: task.map(|task| (task, row.get("task_at"))),
                    last_not_started: row.get("late"),
                    last_state: row.get("state"),
                    last_error: class.map(|class| (class, message.unwrap_or_default())),
                }
            })
            .collect())
    }
}
