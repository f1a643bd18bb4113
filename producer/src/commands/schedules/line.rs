//! A schedule as the file and the database say it together.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Serialize;
use shared::config::{Config, suggestion};
use shared::domain::clock;
use shared::domain::cron::{Cron, parse_zone};
use shared::domain::schedule::Schedule;
use shared::store::{ScheduleRow, Store};
use uuid::Uuid;

use crate::commands::error::CommandError;

/// A schedule as listed. JSON: one object with these keys.
#[derive(Debug, Serialize)]
pub struct Line {
    /// Name.
    pub name: String,
    /// Cron line.
    pub cron: String,
    /// Zone.
    pub timezone: String,
    /// Task type.
    pub task_type: String,
    /// Next instant, paused or not.
    pub next: Option<DateTime<Utc>>,
    /// Last tick.
    pub last: Option<DateTime<Utc>>,
    /// Its outcome.
    pub last_outcome: Option<String>,
    /// Its task.
    pub last_task: Option<Uuid>,
    /// True when it makes no tasks now.
    pub paused: bool,
    /// By whom: a person, or `file`.
    pub paused_by: Option<String>,
    /// True when this file has it.
    pub in_file: bool,
    /// True when a leader has applied it.
    pub applied: bool,
}

/// All schedules of the file and of the database, by name.
pub async fn lines(config: &Config, store: &Store) -> Result<Vec<Line>, CommandError> {
    let rows = store.schedules(None).await?;
    let now = clock::now();
    let by_name: HashMap<&str, &ScheduleRow> = rows.iter().map(|r| (r.name.as_str(), r)).collect();
    let entries: HashSet<&str> = config.schedules.iter().map(|e| e.name.as_str()).collect();
    let row = |name: &str| by_name.get(name).copied();
    let in_file = config.schedules.iter().map(|entry| line(Some(entry), row(&entry.name), now));
    let unknown = |row: &&ScheduleRow| !entries.contains(row.name.as_str());
    let others = rows.iter().filter(unknown).map(|row| line(None, Some(row), now));
    let mut all: Vec<Line> = in_file.chain(others).flatten().collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// The file's words win: they are what the next leader applies.
pub(super) fn line(
    entry: Option<&Schedule>,
    row: Option<&ScheduleRow>,
    now: DateTime<Utc>,
) -> Option<Line> {
    let said =
        |from_file: Option<&str>, from_row: Option<&str>| from_file.or(from_row).map(str::to_owned);
    let (cron, zone) = timing(entry, row)?;
    let by_hand = row.and_then(|row| row.paused_by.clone());
    let by_file = entry.is_some_and(|entry| entry.paused).then(|| "file".to_owned());
    let paused_by = by_hand.or(by_file);
    Some(Line {
        name: said(entry.map(|e| e.name.as_str()), row.map(|r| r.name.as_str()))?,
        cron: cron.as_str().to_owned(),
        timezone: zone.name().to_owned(),
        task_type: said(entry.map(|e| e.task_type.as_str()), row.map(|r| r.task_type.as_str()))?,
        next: cron.next_after(from(row, now), zone),
        last: row.and_then(|row| row.last_at),
        last_outcome: row.and_then(|row| row.last_outcome.clone()),
        last_task: row.and_then(|row| row.last_task),
        paused: paused_by.is_some(),
        paused_by,
        in_file: entry.is_some(),
        applied: row.is_some(),
    })
}

/// Cron line and zone; `None` for a row that a newer binary wrote.
pub(super) fn timing(entry: Option<&Schedule>, row: Option<&ScheduleRow>) -> Option<(Cron, Tz)> {
    if let Some(entry) = entry {
        return Some((entry.cron.clone(), entry.timezone));
    }
    let row = row?;
    Some((Cron::parse(&row.cron).ok()?, parse_zone(&row.timezone).ok()?))
}

/// Instants up to the mark are decided already, whatever this host's clock says.
pub(super) fn from(row: Option<&ScheduleRow>, now: DateTime<Utc>) -> DateTime<Utc> {
    row.map_or(now, |row| row.mark.max(now))
}

/// Some instants of a line, from `from` on.
pub(super) fn upcoming(
    cron: &Cron,
    zone: Tz,
    from: DateTime<Utc>,
    count: usize,
) -> Vec<DateTime<Utc>> {
    let next = |at: &DateTime<Utc>| cron.next_after(*at, zone);
    std::iter::successors(next(&from), next).take(count).collect()
}

/// There is no such schedule.
pub(super) fn unknown(name: &str, config: &Config) -> CommandError {
    let names = config.schedules.iter().map(|entry| entry.name.as_str());
    CommandError::NotFound(format!(
        "there is no schedule {name:?} in {} or in the database{}",
        config.name,
        suggestion(name, names)
    ))
}
