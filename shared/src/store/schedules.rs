//! Schedules as the database keeps them: applied from the file, with a durable high-water mark.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::connect::Store;
use super::error::Error;
use crate::domain::schedule::Schedule;

/// A schedule after it was applied.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Name.
    pub name: String,
    /// Every planned instant up to here has its tick row.
    pub mark: DateTime<Utc>,
}

/// A schedule as listed. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleRow {
    /// Name.
    pub name: String,
    /// Cron line.
    pub cron: String,
    /// Zone.
    pub timezone: String,
    /// Task type.
    pub task_type: String,
    /// High-water mark.
    pub mark: DateTime<Utc>,
    /// Last change.
    pub applied_at: DateTime<Utc>,
    /// Paused by hand since.
    pub paused_at: Option<DateTime<Utc>>,
    /// By whom.
    pub paused_by: Option<String>,
    /// The whole entry.
    pub spec: Value,
    /// Last tick.
    pub last_at: Option<DateTime<Utc>>,
    /// Its outcome.
    pub last_outcome: Option<String>,
    /// Its task.
    pub last_task: Option<Uuid>,
}

/// An entry as one value: what tells an edit from a restart.
fn spec_of(schedule: &Schedule) -> Value {
    json!({
        "cron": schedule.cron.as_str(),
        "timezone": schedule.timezone.name(),
        "task_type": schedule.task_type,
        "pool": schedule.pool,
        "payload": schedule.payload,
        "execution_key_template": schedule.execution_key_template,
        "timeout_ms": schedule.timeout.as_millis() as u64,
        "retry": schedule.retry,
        "semantics": schedule.semantics,
        "overlap": schedule.overlap,
        "catch_up": schedule.catch_up,
        "catch_up_window_ms": schedule.catch_up_window.as_millis() as u64,
        "paused": schedule.paused,
    })
}

impl Store {
    /// Applies the file's schedules, and stops those that are not in it.
    pub async fn apply_schedules(&self, schedules: &[Schedule]) -> Result<Vec<Applied>, Error> {
        let session = self.session().await?;
        let mut applied = Vec::with_capacity(schedules.len());
        for schedule in schedules {
            let zone = schedule.timezone.name();
            let rows = session
                .query(
                    include_str!("sql/apply_schedule.sql"),
                    &[
                        &schedule.name,
                        &spec_of(schedule),
                        &schedule.cron.as_str(),
                        &zone,
                        &schedule.task_type,
                    ],
                )
                .await?;
            let row = rows.first().ok_or_else(|| Error::row("apply answered no row"))?;
            applied.push(Applied { name: schedule.name.clone(), mark: row.get("mark") });
        }
        let names: Vec<&str> = schedules.iter().map(|s| s.name.as_str()).collect();
        session.query(include_str!("sql/remove_schedules.sql"), &[&names]).await?;
        Ok(applied)
    }

    /// Schedules that are in force; one, if named.
    pub async fn schedules(&self, name: Option<&str>) -> Result<Vec<ScheduleRow>, Error> {
        let rows = self.query(include_str!("sql/schedules.sql"), &[&name]).await?;
        Ok(rows
            .iter()
            .map(|row| ScheduleRow {
                name: row.get("name"),
                cron: row.get("cron"),
                timezone: row.get("timezone"),
                task_type: row.get("task_type"),
                mark: row.get("mark"),
                applied_at: row.get("applied_at"),
                paused_at: row.get("paused_at"),
                paused_by: row.get("paused_by"),
                spec: row.get("spec"),
                last_at: row.get("last_at"),
                last_outcome: row.get("last_outcome"),
                last_task: row.get("last_task"),
            })
            .collect())
    }

    /// Pauses a schedule (`by` somebody) or resumes it (`None`); false when there is none.
    pub async fn pause_schedule(&self, name: &str, by: Option<&str>) -> Result<bool, Error> {
        let row = self.query_opt(include_str!("sql/pause_schedule.sql"), &[&name, &by]).await?;
        Ok(row.is_some())
    }
}
