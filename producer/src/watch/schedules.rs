//! What the watch says of a schedule: pure judgements of rows.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::Value;
use shared::domain::cron::{Cron, parse_zone};
use shared::store::{Beginning, Ending, Episode, EpisodeKind, MissedTicks, NewestTick, Watched};

/// How a schedule that is to tick stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// All is well, or it has come to its end.
    Well {
        /// Its next instant.
        next: Option<DateTime<Utc>>,
    },
    /// An instant is due for too long.
    Behind {
        /// The instant.
        due: DateTime<Utc>,
    },
    /// It will never tick again.
    NoNextTick {
        /// Why.
        why: String,
    },
}

pub(super) fn judge(schedule: &Watched, now: DateTime<Utc>, behind_after: TimeDelta) -> Judged {
    let (cron, zone) = match (Cron::parse(&schedule.cron), parse_zone(&schedule.timezone)) {
        (Ok(cron), Ok(zone)) => (cron, zone),
        (Err(error), _) => return Judged::NoNextTick { why: error.to_string() },
        (_, Err(error)) => return Judged::NoNextTick { why: error.to_string() },
    };
    let bound = |key: &str| schedule.spec.get(key).and_then(Value::as_str)?.parse().ok();
    let start: Option<DateTime<Utc>> = bound("start_at");
    let end: Option<DateTime<Utc>> = bound("end_at");
    // An instant is later than what it is asked after, and one at the start itself counts.
    let after = start.map_or(schedule.mark, |s| schedule.mark.max(s - TimeDelta::nanoseconds(1)));
    match (cron.next_after(after, zone), end) {
        (Some(next), Some(end)) if next > end => Judged::Well { next: None },
        (None, Some(_)) => Judged::Well { next: None },
        (None, None) => Judged::NoNextTick {
            why: format!("no time fits {:?} after {}", schedule.cron, told(after)),
        },
        (Some(due), _) if now - due >= behind_after => Judged::Behind { due },
        (next, _) => Judged::Well { next },
    }
}

impl Judged {
    /// The trouble, if there is any.
    pub(super) fn beginning(&self, name: &str) -> Option<Beginning> {
        let (kind, detail) = match self {
            Self::Well { .. } => return None,
            Self::Behind { due } => (
                EpisodeKind::Behind,
                format!(
                    "Schedule {name} is behind: its instant of {} is past and no producer has decided \
                     it; `producer status` says who leads",
                    told(*due)
                ),
            ),
            Self::NoNextTick { why } => (
                EpisodeKind::NoNextTick,
                format!("Schedule {name} will never tick again: {why}; mend it, or take it out"),
            ),
        };
        let (subject, name) = (name.to_owned(), name.to_owned());
        Some(Beginning { kind, subject, name, detail, until: None })
    }
}

/// The end of an episode whose schedule stands so; `None` for one that is paused or gone.
pub(super) fn ending(episode: &Episode, judged: Option<&Judged>) -> Option<Ending> {
    let name = &episode.name;
    let detail = match (judged, episode.kind) {
        (None, _) => format!("Schedule {name} is paused or gone, and not watched any more"),
        (Some(Judged::Behind { .. }), EpisodeKind::Behind)
        | (Some(Judged::NoNextTick { .. }), EpisodeKind::NoNextTick) => return None,
        (Some(Judged::Well { next: None }), _) => format!("Schedule {name} has come to its end"),
        (Some(Judged::Well { next: Some(next) }), EpisodeKind::Behind) => {
            format!("Schedule {name} is up to date again; its next instant is {}", told(*next))
        }
        (Some(Judged::Well { next: Some(next) } | Judged::Behind { due: next }), _) => {
            format!("Schedule {name} ticks again; its next instant is {}", told(*next))
        }
        (Some(Judged::NoNextTick { .. }), _) => {
            format!("Schedule {name} is not behind any more: it will never tick again")
        }
    };
    Some(Ending { id: episode.id, detail: Some(detail), by: None })
}

/// Instants were missed.
pub(super) fn missed(missed: &MissedTicks) -> Beginning {
    let MissedTicks { schedule, first, last, count, decided_at } = missed;
    let what = match count {
        1 => format!("its instant of {}", told(*last)),
        _ => format!("{count} instants from {} to {}", told(*first), told(*last)),
    };
    Beginning {
        kind: EpisodeKind::Missed,
        subject: schedule.clone(),
        name: schedule.clone(),
        detail: format!(
            "Schedule {schedule} has missed {what}; `producer schedules backfill {schedule}` can run \
             them"
        ),
        until: Some(*decided_at),
    }
}

/// The end of an episode of missed instants, when a newer one was decided otherwise.
pub(super) fn ticks_again(episode: &Episode, newest: &NewestTick) -> Option<Ending> {
    let name = &episode.name;
    let detail = match &newest.newest {
        _ if !newest.ticks => {
            format!("Schedule {name} is paused or gone, and not watched any more")
        }
        Some((at, outcome)) if outcome != "missed" => {
            format!("Schedule {name} ticks again: {} is {outcome}", told(*at))
        }
        _ => return None,
    };
    Some(Ending { id: episode.id, detail: Some(detail), by: None })
}

fn told(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("an instant")
    }

    #[track_caller]
    fn check(cron: &str, spec: Value, expected: &str) {
        let schedule = Watched {
            name: "sync".to_owned(),
            cron: cron.to_owned(),
            timezone: "UTC".to_owned(),
            mark: at("2026-11-30T12:00:00Z"),
            spec,
        };
        let judged = judge(&schedule, at("2026-11-30T12:02:00Z"), TimeDelta::seconds(60));
        let seen = match judged {
            Judged::Well { next } => format!("well, {}", next.map_or("-".to_owned(), told)),
            Judged::Behind { due } => format!("behind {}", told(due)),
            Judged::NoNextTick { why } => format!("never: {why}"),
        };
        assert!(seen.starts_with(expected), "{cron}: {seen}");
    }

    #[test]
    fn a_mark_that_lags_behind_the_line_is_told_from_one_that_waits() {
        check("* * * * *", json!({}), "behind 2026-11-30T12:01:00Z");
        check("1 * * * *", json!({"end_at": "2026-11-30T12:00:30Z"}), "well, -");
        check(
            "* * * * *",
            json!({"start_at": "2026-11-30T12:02:00Z"}),
            "well, 2026-11-30T12:02:00Z",
        );
        check("2 * * * *", json!({}), "well, 2026-11-30T12:02:00Z");
        check("0 0 1 1 *", json!({}), "well, 2027-01-01T00:00:00Z");
        check("0 0 31 2 *", json!({}), "never: cron field day of month: never fires");
        check("nonsense", json!({}), "never: cron expression");
    }
}
