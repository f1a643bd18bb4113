//! A schedule as the file and the database say it together.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use shared::config::Config;
use shared::domain::clock;
use shared::domain::schedule::{Schedule, changes};
use shared::store::{ScheduleRow, Store};
use uuid::Uuid;

use super::cadence::MEASURED;
use crate::commands::error::CommandError;
use crate::commands::output;

/// What follows from it.
pub const NOBODY_LEADS: &str = "no tick is decided until a `producer run` is there";

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
    /// True when there is none any more because its `end_at` has passed, and each one is decided.
    pub ended: bool,
    /// Instants that are past and that no producer has decided.
    pub undecided: u64,
    /// The oldest of them.
    pub undecided_since: Option<DateTime<Utc>>,
    /// Last tick.
    pub last: Option<DateTime<Utc>>,
    /// Its outcome.
    pub last_outcome: Option<String>,
    /// Its task.
    pub last_task: Option<Uuid>,
    /// True when that has another payload than the tick wanted, which has not run.
    pub last_other_payload: bool,
    /// True when it makes no tasks now.
    pub paused: bool,
    /// By whom: a person, or `file`.
    pub paused_by: Option<String>,
    /// No longer in force since.
    pub removed_at: Option<DateTime<Utc>>,
    /// The one that goes on for it, where it was renamed; the last one, where that was renamed again.
    pub renamed_to: Option<String>,
    /// Since when that one is gone itself.
    pub heir_removed_at: Option<DateTime<Utc>>,
    /// True when this file has it.
    pub in_file: bool,
    /// True when it is in force.
    pub applied: bool,
    /// True when this file says something else than what is in force.
    pub differs: bool,
}

/// All schedules of the file and of the database, by name.
pub async fn lines(config: &Config, store: &Store) -> Result<Vec<Line>, CommandError> {
    let rows = store.schedules(None).await?;
    Ok(known(config, &rows).into_iter().filter_map(|(e, r)| line(e, r)).collect())
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
        let known = all.entry(&entry.name).or_default();
        *known = (Some(entry), present(Some(entry), known.1));
    }
    all.into_values().collect()
}

/// What was removed under a name that the file has again is past: the entry is a new one.
pub(super) fn present<'a>(
    entry: Option<&Schedule>,
    row: Option<&'a ScheduleRow>,
) -> Option<&'a ScheduleRow> {
    row.filter(|row| entry.is_none() || row.removed_at.is_none())
}

/// What is in force wins: that is what ticks. The file is what the next apply makes of it.
pub(super) fn line(entry: Option<&Schedule>, row: Option<&ScheduleRow>) -> Option<Line> {
    let schedule = in_force(entry, row)?;
    let by_hand = row.and_then(|row| row.paused_by.clone());
    let by_file = schedule.paused.then(|| "file".to_owned());
    let paused_by = by_hand.or(by_file);
    let removed_at = row.and_then(|row| row.removed_at);
    let ticks = removed_at.is_none();
    let overdue = row.filter(|_| ticks).and_then(|row| schedule.overdue(row.mark, row.now));
    Some(Line {
        cron: schedule.cron.as_str().to_owned(),
        timezone: schedule.timezone.name().to_owned(),
        task_type: schedule.task_type.clone(),
        next: schedule.next_due(from(row)).filter(|_| ticks),
        ended: ticks && schedule.has_ended(row.map_or_else(clock::now, |row| row.mark)),
        undecided: overdue.map_or(0, |overdue| overdue.count),
        undecided_since: overdue.map(|overdue| overdue.first),
        last: row.and_then(|row| row.last_at),
        last_outcome: row.and_then(|row| row.last_outcome.clone()),
        last_task: row.and_then(|row| row.last_task),
        last_other_payload: row.is_some_and(|row| row.last_other_payload),
        paused: paused_by.is_some(),
        paused_by,
        in_file: entry.is_some(),
        removed_at,
        renamed_to: row.and_then(|row| row.renamed_to.clone()),
        heir_removed_at: row.and_then(|row| row.heir_removed_at),
        applied: row.is_some() && ticks,
        differs: row.is_some() && entry.is_some_and(|entry| !changes(&schedule, entry).is_empty()),
        name: schedule.name,
    })
}

/// The entry that ticks, or would; `None` for a row that a newer binary wrote.
pub(super) fn in_force(entry: Option<&Schedule>, row: Option<&ScheduleRow>) -> Option<Schedule> {
    match row {
        Some(row) => Schedule::from_spec(&row.name, &row.spec).ok(),
        None => entry.cloned(),
    }
}

/// After what the next instant comes: those up to the mark are decided already. The database's clock
/// counts, where it has answered.
pub(super) fn from(row: Option<&ScheduleRow>) -> DateTime<Utc> {
    row.map_or_else(clock::now, |row| row.mark.max(row.now))
}

/// Who leads. Says so where nobody does: what is listed as next will not come by itself.
pub(super) async fn leader(store: &Store) -> Result<Option<String>, CommandError> {
    let leader = store.leader().await?.filter(|leader| leader.alive);
    if leader.is_none() {
        output::talk(&format!("note: no producer leads: {NOBODY_LEADS}"));
    }
    Ok(leader.map(|leader| leader.label))
}

/// Its next instants, and those that its plan is told by: with the undecided ones in front. What was
/// removed has neither.
pub(super) fn ahead(
    schedule: &Schedule,
    row: Option<&ScheduleRow>,
    count: usize,
) -> (Vec<DateTime<Utc>>, Vec<DateTime<Utc>>) {
    if row.is_some_and(|row| row.removed_at.is_some()) {
        return Default::default();
    }
    let decided = row.map_or_else(clock::now, |row| row.mark);
    (upcoming(schedule, from(row), count), upcoming(schedule, decided, MEASURED))
}

/// Some instants of a schedule, from `from` on.
pub(super) fn upcoming(
    schedule: &Schedule,
    from: DateTime<Utc>,
    count: usize,
) -> Vec<DateTime<Utc>> {
    let next = |at: &DateTime<Utc>| schedule.next_due(*at);
    std::iter::successors(next(&from), next).take(count).collect()
}
