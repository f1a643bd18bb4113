//! What the watch says of a schedule: pure judgements of rows.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::Value;
use shared::domain::cron::{Cron, parse_zone};
use shared::store::{Beginning, Ending, Episode, EpisodeKind, MissedTicks, NewestTick, Watched};

use crate::commands::output::quote;
use crate::commands::schedules::{DEFAULT_LIMIT, MOST};

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

/// Instants were missed, or their tasks did not start by their deadline.
pub(super) fn missed(missed: &MissedTicks) -> Beginning {
    let MissedTicks { schedule, first, last, count, not_started, .. } = missed;
    let what = match count {
        1 => format!("its instant of {}", told(*last)),
        _ => format!("{count} instants from {} to {}", told(*first), told(*last)),
    };
    let why = match (*not_started, *count) {
        (0, _) => String::new(),
        (1, 1) => format!(": its task {}", not_started_by("its", missed.deadline)),
        (n, all) if n == all => {
            format!(": their tasks {}", not_started_by("their", missed.deadline))
        }
        (n, _) => format!(": tasks of {n} {}", not_started_by("their", missed.deadline)),
    };
    Beginning {
        kind: EpisodeKind::Missed,
        subject: schedule.clone(),
        name: schedule.clone(),
        detail: format!("Schedule {schedule} has missed {what}{why}; {}", mend(missed)),
        until: Some(missed.seen_at),
    }
}

fn not_started_by(whose: &str, deadline: Option<Duration>) -> String {
    let after = deadline.map(|deadline| format!(" ({deadline:?})")).unwrap_or_default();
    format!("did not start by {whose} deadline{after}")
}

/// What runs them now. An instant that has its task is not filled up: it is run by hand.
fn mend(missed: &MissedTicks) -> String {
    let name = word(&missed.schedule);
    let backfill = (missed.not_started < missed.count).then(|| {
        let count = missed.count.unsigned_abs();
        let limit = (count > DEFAULT_LIMIT).then(|| format!(" --limit {}", count.min(MOST)));
        format!(
            "`producer schedules backfill --from {} --to {}{} {name}` can run what has no task",
            told(missed.first),
            told(missed.last),
            limit.unwrap_or_default()
        )
    });
    let trigger = missed.last_not_started.map(|at| {
        let at = told(at);
        format!("`producer schedules trigger --at {at} {name}` can run the last that did not start")
    });
    [backfill, trigger].into_iter().flatten().collect::<Vec<_>>().join(", and ")
}

/// A word as a shell takes it, the last of its command.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./:@%+=,".contains(c);
    let quoted = if text.chars().all(plain) { text.to_owned() } else { quote(text) };
    if text.starts_with('-') { format!("-- {quoted}") } else { quoted }
}

/// The end of an episode of missed instants, when a newer one went otherwise.
pub(super) fn ticks_again(episode: &Episode, newest: &NewestTick) -> Option<Ending> {
    let name = &episode.name;
    let detail = match &newest.newest {
        _ if !newest.ticks => {
            format!("Schedule {name} is paused or gone, and not watched any more")
        }
        Some((at, outcome)) if outcome != "missed" && outcome != "not_started" => {
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

    fn instants(name: &str, count: i64, not_started: i64) -> MissedTicks {
        let last = at("2026-11-30T12:00:30Z");
        MissedTicks {
            schedule: name.to_owned(),
            first: last - TimeDelta::seconds(10 * (count - 1)),
            last,
            count,
            not_started,
            last_not_started: (not_started > 0).then_some(last),
            seen_at: last,
            deadline: (not_started > 0).then_some(Duration::from_secs(4)),
        }
    }

    #[test]
    fn what_was_missed_is_told_with_a_command_that_can_be_pasted() {
        let told = |name, count, not_started| missed(&instants(name, count, not_started)).detail;
        assert_eq!(
            told("sync", 3, 0),
            "Schedule sync has missed 3 instants from 2026-11-30T12:00:10Z to 2026-11-30T12:00:30Z; \
             `producer schedules backfill --from 2026-11-30T12:00:10Z --to 2026-11-30T12:00:30Z sync` \
             can run what has no task"
        );
        assert_eq!(
            told("sync", 1, 1),
            "Schedule sync has missed its instant of 2026-11-30T12:00:30Z: its task did not start by \
             its deadline (4s); `producer schedules trigger --at 2026-11-30T12:00:30Z sync` can run the \
             last that did not start"
        );
        assert!(
            told("sync", 3, 3).contains(": their tasks did not start by their deadline (4s); `")
        );
        let both = told("sync", 3, 2);
        assert!(both.contains(": tasks of 2 did not start by their deadline (4s); `"), "{both}");
        assert!(both.contains("sync` can run what has no task, and `producer"), "{both}");
        assert!(told("sync", 120, 0).contains("--limit 120 sync`"));
        assert!(told("it's late", 3, 0).contains(r"Z 'it'\''s late'` can run"));
        assert!(told("-n", 3, 0).contains("Z -- -n` can run"));
    }
}
