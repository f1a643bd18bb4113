//! A schedule as the file and the database say it together.

use std::collections::BTreeMap;

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
    Ok(known(config, &rows).into_iter().filter_map(|(e, r)| line(e, r, now)).collect())
}

/// Each schedule's entry, its row, or both, by name.
pub(super) fn known<'a>(
    config: &'a Config,
    rows: &'a [ScheduleRow],
) -> Vec<(Option<&'a Schedule>, Option<&'a ScheduleRow>)> {
    let mut all = BTreeMap::<&str, (Option<&Schedule>, Option<&ScheduleRow>)>::new();
    for row in rows {
        all.entry(&row.name).or_default().1 = Some(row);
    }
    for entry in &config.schedules {
        all.entry(&entry.name).or_default().0 = Some(entry);
    }
    all.into_values().collect()
}

/// The file's words win: they are what the next leader applies.
pub(super) fn line(
    entry: Option<&Schedule>,
    row: Option<&ScheduleRow>,
    now: DateTime<Utc>,
) -> Option<Line> {
    let said =
        |from_file: Option<&str>, from_row: Option<&str>| from_file.or(from_row).map(str::to_owned);
    let timing = Timing::of(entry, row)?;
    let by_hand = row.and_then(|row| row.paused_by.clone());
    let by_file = entry.is_some_and(|entry| entry.paused).then(|| "file".to_owned());
    let paused_by = by_hand.or(by_file);
    Some(Line {
        name: said(entry.map(|e| e.name.as_str()), row.map(|r| r.name.as_str()))?,
        cron: timing.cron().as_str().to_owned(),
        timezone: timing.zone().name().to_owned(),
        task_type: said(entry.map(|e| e.task_type.as_str()), row.map(|r| r.task_type.as_str()))?,
        next: timing.next_after(from(row, now)),
        last: row.and_then(|row| row.last_at),
        last_outcome: row.and_then(|row| row.last_outcome.clone()),
        last_task: row.and_then(|row| row.last_task),
        paused: paused_by.is_some(),
        paused_by,
        in_file: entry.is_some(),
        applied: row.is_some(),
    })
}

/// What computes a schedule's instants: the file's entry, or else the row that was applied.
pub(super) enum Timing<'a> {
    /// Of the file.
    Entry(&'a Schedule),
    /// Of the database.
    Row(Cron, Tz),
}

impl<'a> Timing<'a> {
    /// `None` for a row that a newer binary wrote.
    pub(super) fn of(entry: Option<&'a Schedule>, row: Option<&ScheduleRow>) -> Option<Self> {
        if let Some(entry) = entry {
            return Some(Self::Entry(entry));
        }
        let row = row?;
        Some(Self::Row(Cron::parse(&row.cron).ok()?, parse_zone(&row.timezone).ok()?))
    }

    pub(super) fn cron(&self) -> &Cron {
        match self {
            Self::Entry(entry) => &entry.cron,
            Self::Row(cron, _) => cron,
        }
    }

    pub(super) fn zone(&self) -> Tz {
        match self {
            Self::Entry(entry) => entry.timezone,
            Self::Row(_, zone) => *zone,
        }
    }

    fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Entry(entry) => entry.next_due(after),
            Self::Row(cron, zone) => cron.next_after(after, *zone),
        }
    }

    /// Some instants, from `from` on.
    pub(super) fn upcoming(&self, from: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
        let next = |at: &DateTime<Utc>| self.next_after(*at);
        std::iter::successors(self.next_after(from), next).take(count).collect()
    }
}

/// Instants up to the mark are decided already, whatever this host's clock says.
pub(super) fn from(row: Option<&ScheduleRow>, now: DateTime<Utc>) -> DateTime<Utc> {
    row.map_or(now, |row| row.mark.max(now))
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
