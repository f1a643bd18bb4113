//! `jitter`, `start_at`, `end_at` and `deadline` of a schedule, judged together with its cron line.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;

use super::reader::{Place, Section, shown};
use crate::domain::cron::Cron;

/// What an entry says of time beside its cron line.
pub(super) struct Timing {
    pub jitter: Duration,
    pub start_at: Option<DateTime<Utc>>,
    pub end_at: Option<DateTime<Utc>>,
    pub deadline: Option<Duration>,
}

/// Reads them; without a cron line that is right, each is judged alone.
pub(super) fn read(section: &Section<'_>, cron: Option<&Cron>, zone: Tz) -> Timing {
    let jitter = section.get("jitter").and_then(|place| jitter(&place, cron)).unwrap_or_default();
    let start_at = section.get("start_at").and_then(|place| instant(&place));
    let end_at = section.get("end_at").and_then(|place| instant(&place));
    if let (Some(place), Some(start), Some(end)) = (section.get("end_at"), start_at, end_at) {
        let first = cron.map(|cron| cron.next_after(start - TimeDelta::nanoseconds(1), zone));
        if end < start {
            place.problem("is before start_at");
        } else if first.is_some_and(|first| first.is_none_or(|first| first > end)) {
            place.problem("no instant of `schedule` lies between start_at and end_at");
        }
    }
    let deadline = section.get("deadline").and_then(|place| {
        let deadline = place.positive_duration()?;
        if deadline <= jitter {
            place.problem(format!(
                "must be longer than jitter ({jitter:?}), or a task may be too late before it may start"
            ));
        }
        Some(deadline)
    });
    Timing { jitter, start_at, end_at, deadline }
}

fn jitter(place: &Place<'_>, cron: Option<&Cron>) -> Option<Duration> {
    let jitter = place.duration()?;
    let period = cron?.shortest_period();
    if jitter >= period && !jitter.is_zero() {
        place.problem(format!(
            "must be shorter than {period:?}, the shortest time between two instants of `schedule`"
        ));
    }
    Some(jitter)
}

/// An instant with its offset: without one, nobody knows whose clock is meant.
fn instant(place: &Place<'_>) -> Option<DateTime<Utc>> {
    let scalar = place.expanded("an instant")?;
    if !scalar.unset.is_empty() {
        place.note_unset(&scalar.unset);
        return None;
    }
    let read = DateTime::parse_from_rfc3339(scalar.text.trim());
    let at = read.map(|at| at.with_timezone(&Utc)).ok();
    if at.is_none() {
        place.problem(format!(
            "expected an instant with its offset, such as 2026-12-01T09:00:00+08:00 or 2026-12-01T01:00:00Z{}",
            shown(&scalar)
        ));
    }
    at
}
