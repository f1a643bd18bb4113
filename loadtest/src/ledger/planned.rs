//! Planned instants, computed anew from the schedules' cron lines as the database keeps them.
//!
//! Only the line and its zone are taken from there; which instants they mean is the domain's word.
//! It never asks what became of an instant: the queries do. What is due and lies after the mark it tells.

use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use serde::Serialize;
use shared::domain::cron::Cron;
use tokio_postgres::{Row, Transaction};

use super::{LATE, NAMED};

/// Most instants of a schedule that are looked at, back from its mark: a line of every second has a
/// day of them.
const MOST_INSTANTS: i32 = 100_000;
/// Instants in one statement, give or take a schedule.
const PART: usize = 100_000;

/// Schedules whose next instant is due for longer than a leader takes, and which nobody has decided. JSON:
/// `{"schedules","oldest","first"}`. No promise is broken by it: who leads next decides them, and a fleet
/// may stand still on purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undecided {
    /// How many.
    pub schedules: usize,
    /// The instant that is due for the longest time.
    pub oldest: Option<DateTime<Utc>>,
    /// The first few, those that wait for the longest time first.
    pub first: Vec<Due>,
}

/// A schedule and its first instant that nobody has decided. JSON: `{"schedule","planned_at"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Due {
    /// Its name.
    pub schedule: String,
    /// The instant.
    pub planned_at: DateTime<Utc>,
}

/// What is looked at of each schedule.
pub(super) struct Planned {
    windows: Vec<Window>,
    due: Vec<Due>,
}

struct Window {
    schedule: String,
    cron: Cron,
    zone: Tz,
    since: DateTime<Utc>,
    mark: DateTime<Utc>,
}

/// Some schedules with their instants, as arrays for a statement.
#[derive(Default)]
pub(super) struct Part {
    /// Schedule of each instant.
    pub schedules: Vec<String>,
    /// The instants.
    pub instants: Vec<DateTime<Utc>>,
    /// The schedules.
    pub looked_at: Vec<String>,
    /// Since when each is looked at, itself not included.
    pub since: Vec<DateTime<Utc>>,
}

impl Planned {
    /// Reads the schedules; finished tasks and their ticks are kept for `kept`.
    pub(super) async fn read(snapshot: &Transaction<'_>, kept: Duration) -> anyhow::Result<Self> {
        let sql = include_str!("schedules.sql");
        let rows =
            snapshot.query(sql, &[&kept.as_secs_f64()]).await.context("reading schedules")?;
        let mut due = Vec::new();
        let windows = rows.iter().map(|row| {
            let schedule: String = row.get("name");
            let (line, zone): (&str, &str) = (row.get("cron"), row.get("timezone"));
            let what = || format!("the schedule {schedule} in the database");
            let cron = Cron::parse(line).with_context(what)?;
            let zone = zone.parse::<Tz>().with_context(what)?;
            due.extend(due_of(row, &cron, zone));
            let mark: DateTime<Utc> = row.get("mark");
            let spacing =
                if cron.has_seconds() { TimeDelta::seconds(1) } else { TimeDelta::minutes(1) };
            let since = row.get::<_, DateTime<Utc>>("since").max(mark - spacing * MOST_INSTANTS);
            let begin: Option<DateTime<Utc>> = row.get("begin");
            let since = begin.map_or(since, |begin| begin.max(since));
            Ok(Window { schedule, cron, zone, since, mark })
        });
        let windows = windows.collect::<anyhow::Result<_>>()?;
        due.sort_by(|a, b| (a.planned_at, &a.schedule).cmp(&(b.planned_at, &b.schedule)));
        Ok(Self { windows, due })
    }

    /// What should have been decided by now.
    pub(super) fn undecided(&self) -> Undecided {
        Undecided {
            schedules: self.due.len(),
            oldest: self.due.first().map(|due| due.planned_at),
            first: self.due.iter().take(NAMED).cloned().collect(),
        }
    }

    /// The instants, in parts that a statement can carry.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> {
        let mut windows = self.windows.iter();
        std::iter::from_fn(move || {
            let mut part = Part::default();
            while part.instants.len() < PART
                && let Some(window) = windows.next()
            {
                part.add(window);
            }
            (!part.looked_at.is_empty()).then_some(part)
        })
    }
}

/// A schedule in force whose next instant is due for too long.
fn due_of(row: &Row, cron: &Cron, zone: Tz) -> Option<Due> {
    let time = |column: &str| row.get::<_, Option<DateTime<Utc>>>(column);
    let (decided, now) = (time("decided")?, time("now")?);
    let after = time("begin").map_or(decided, |begin| begin.max(decided));
    let planned_at = cron.next_after(after, zone)?;
    let is_over = time("end").is_some_and(|end| planned_at > end);
    let is_late = (now - planned_at).to_std().is_ok_and(|age| age > LATE);
    let due = row.get("in_force") && !is_over && is_late;
    due.then(|| Due { schedule: row.get("name"), planned_at })
}

impl Part {
    fn add(&mut self, window: &Window) {
        self.looked_at.push(window.schedule.clone());
        self.since.push(window.since);
        let mut at = window.since;
        while let Some(next) = window.cron.next_after(at, window.zone)
            && next <= window.mark
        {
            self.schedules.push(window.schedule.clone());
            self.instants.push(next);
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(schedule: &str, line: &str, since: &str, mark: &str) -> Window {
        let at = |text: &str| text.parse().expect("an instant");
        Window {
            schedule: schedule.to_owned(),
            cron: Cron::parse(line).expect("a cron line"),
            zone: chrono_tz::Europe::Berlin,
            since: at(since),
            mark: at(mark),
        }
    }

    #[test]
    fn instants_lie_after_the_edit_and_up_to_the_mark() {
        let windows = vec![
            window("hourly", "0 * * * *", "2026-11-30T10:00:00Z", "2026-11-30T12:00:00Z"),
            window("silent", "0 4 * * *", "2026-11-30T10:00:00Z", "2026-11-30T12:00:00Z"),
        ];

        let parts: Vec<Part> = Planned { windows, due: Vec::new() }.parts().collect();

        assert_eq!(parts.len(), 1);
        let seen: Vec<String> = parts[0].instants.iter().map(DateTime::to_rfc3339).collect();
        assert_eq!(seen, ["2026-11-30T11:00:00+00:00", "2026-11-30T12:00:00+00:00"]);
        assert_eq!(parts[0].looked_at, ["hourly", "silent"]);
    }

    #[test]
    fn a_long_list_comes_in_parts_and_none_is_left_out() {
        let day =
            |name| window(name, "* * * * * *", "2026-11-29T00:00:00Z", "2026-11-30T00:00:00Z");

        let planned = Planned { windows: vec![day("a"), day("b"), day("c")], due: Vec::new() };

        let sizes: Vec<usize> = planned.parts().map(|part| part.instants.len()).collect();
        assert_eq!(sizes, [2 * 86_400, 86_400]);
    }
}
