//! The ticks of a range, and what is worth knowing of them.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, DurationRound as _, NaiveDateTime, SecondsFormat, TimeDelta, Utc};
use chrono_tz::Tz;
use serde::Serialize;
use shared::domain::cron::{Effect, Shift, shifts};
use shared::domain::schedule::Schedule;

use crate::commands::schedules::hand::instants;

/// A tick to come. JSON: one object with these keys.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Tick {
    pub at: DateTime<Utc>,
    /// When its task may start: at its instant, or so much later as `jitter` says.
    pub starts: DateTime<Utc>,
    pub schedule: String,
    pub pool: String,
    /// What the clocks of the schedule's zone show.
    pub local: String,
    /// It makes no task: the file pauses its schedule.
    pub paused: bool,
    /// What a change of the clocks has to do with it.
    pub note: Option<String>,
}

/// Times that a change of the clocks leaves out. JSON: one object with these keys.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct LeftOut {
    pub at: DateTime<Utc>,
    pub schedule: String,
    pub note: String,
}

/// Tasks of one pool that come due together. JSON: one object with these keys.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Collision {
    pub at: DateTime<Utc>,
    pub pool: String,
    pub schedules: Vec<String>,
}

/// The fullest minute of a pool. JSON: one object with these keys.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Peak {
    pub pool: String,
    pub minute: DateTime<Utc>,
    pub ticks: usize,
}

/// All of it; ticks by time, then by name.
#[derive(Debug)]
pub(super) struct Rehearsal {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
    pub schedules: usize,
    pub ticks: Vec<Tick>,
    pub left_out: Vec<LeftOut>,
    pub collisions: Vec<Collision>,
    pub peaks: Vec<Peak>,
    /// Schedules without a tick in the range.
    pub silent: Vec<String>,
}

pub(super) fn rehearse(chosen: &[&Schedule], from: DateTime<Utc>, to: DateTime<Utc>) -> Rehearsal {
    let mut zones: HashMap<Tz, Vec<Shift>> = HashMap::new();
    let (mut ticks, mut left_out, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    for entry in chosen {
        // A day on both sides: a repeated hour begins before its change and ends after it.
        let around = |tz| shifts(tz, from - TimeDelta::days(1), to + TimeDelta::days(1));
        let changes = zones.entry(entry.timezone).or_insert_with(|| around(entry.timezone));
        let notes = Notes::of(entry, changes);
        let own: Vec<Tick> = instants(entry, from, to).map(|at| tick(entry, at, &notes)).collect();
        if own.is_empty() {
            silent.push(entry.name.clone());
        }
        ticks.extend(own);
        left_out.extend(notes.left_out.into_iter().filter(|left| (from..=to).contains(&left.at)));
    }
    ticks.sort_by(|a, b| (a.at, &a.schedule).cmp(&(b.at, &b.schedule)));
    left_out.sort_by_key(|left| left.at);
    let (collisions, peaks) = (collisions(&ticks), peaks(&ticks));
    let schedules = chosen.len();
    Rehearsal { from, to, schedules, ticks, left_out, collisions, peaks, silent }
}

fn tick(entry: &Schedule, at: DateTime<Utc>, notes: &Notes) -> Tick {
    Tick {
        at,
        starts: at + entry.delay(),
        schedule: entry.name.clone(),
        pool: entry.pool.clone(),
        local: at.with_timezone(&entry.timezone).to_rfc3339_opts(SecondsFormat::Secs, false),
        paused: entry.paused,
        note: notes.of_tick(at),
    }
}

/// What changes of the clocks do to one schedule.
struct Notes {
    /// Ticks in `[first, until)` have this to say.
    spans: Vec<(DateTime<Utc>, DateTime<Utc>, String)>,
    left_out: Vec<LeftOut>,
}

impl Notes {
    fn of(entry: &Schedule, changes: &[Shift]) -> Self {
        let mut notes = Self { spans: Vec::new(), left_out: Vec::new() };
        for shift in changes {
            let Some(shifted) = entry.cron.shifted(shift) else { continue };
            let times = listed(&shifted.times, shifted.more);
            let (do_, are) = if shifted.times.len() == 1 { ("does", "is") } else { ("do", "are") };
            let clocks =
                format!("clocks go from {} to {}", time_of(shift.from()), time_of(shift.to()));
            let (first, until) = (shift.at, shift.repeated_until());
            match shifted.effect {
                Effect::MadeUp => {
                    let note = format!("made up for {times}, which {do_} not exist: {clocks}");
                    notes.spans.push((first, first + TimeDelta::seconds(1), note));
                }
                Effect::LeftOut => notes.left_out.push(LeftOut {
                    at: shift.at,
                    schedule: entry.name.clone(),
                    note: format!("{times} {do_} not exist and {are} not made up: {clocks}"),
                }),
                Effect::FirstOnly => {
                    let note = format!("comes twice and runs this first time only: {clocks}");
                    notes.spans.push((first - (until - first), first, note));
                }
                Effect::Again => {
                    let note = format!("runs again: {clocks}");
                    notes.spans.push((first, until, note));
                }
            }
        }
        notes
    }

    fn of_tick(&self, at: DateTime<Utc>) -> Option<String> {
        let found = self.spans.iter().find(|(first, until, _)| (*first..*until).contains(&at));
        found.map(|(_, _, note)| note.clone())
    }
}

fn listed(times: &[NaiveDateTime], more: bool) -> String {
    let times: Vec<String> = times.iter().map(|time| time_of(*time)).collect();
    format!("{}{}", times.join(", "), if more { " …" } else { "" })
}

fn time_of(time: NaiveDateTime) -> String {
    let seconds = if time.format("%S").to_string() == "00" { "" } else { ":%S" };
    time.format(&format!("%H:%M{seconds}")).to_string()
}

/// Moments at which one pool gets more than one task: jitter keeps them apart.
fn collisions(ticks: &[Tick]) -> Vec<Collision> {
    let mut starts: Vec<&Tick> = ticks.iter().filter(|tick| !tick.paused).collect();
    starts.sort_by_key(|tick| tick.starts);
    let mut found = Vec::new();
    for together in starts.chunk_by(|a, b| a.starts == b.starts) {
        let mut pools: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for tick in together {
            pools.entry(&tick.pool).or_default().push(tick.schedule.clone());
        }
        let at = together[0].starts;
        found.extend(
            pools
                .into_iter()
                .filter(|(_, names)| names.len() > 1)
                .map(|(pool, schedules)| Collision { at, pool: pool.to_owned(), schedules }),
        );
    }
    found
}

/// The fullest minute of each pool; the first one, where several are as full.
fn peaks(ticks: &[Tick]) -> Vec<Peak> {
    let mut minutes: BTreeMap<(&str, DateTime<Utc>), usize> = BTreeMap::new();
    for tick in ticks.iter().filter(|tick| !tick.paused) {
        let minute = tick.starts.duration_trunc(TimeDelta::minutes(1)).unwrap_or(tick.starts);
        *minutes.entry((&tick.pool, minute)).or_default() += 1;
    }
    let mut peaks: Vec<Peak> = Vec::new();
    for ((pool, minute), ticks) in minutes {
        match peaks.last_mut() {
            Some(peak) if peak.pool == pool => {
                if ticks > peak.ticks {
                    (peak.minute, peak.ticks) = (minute, ticks);
                }
            }
            _ => peaks.push(Peak { pool: pool.to_owned(), minute, ticks }),
        }
    }
    peaks
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
scheduler: {timezone: Europe/Berlin}
tasks:
- {name: nightly, schedule: '30 2 * * *', task_type: http_call, payload: {url: 'https://x.example/'}}
- {name: quarter, schedule: '*/15 2 * * *', task_type: http_call, payload: {url: 'https://x.example/'}}
- {name: resting, schedule: '30 2 * * *', task_type: http_call, payload: {url: 'https://x.example/'}, paused: true}
- {name: yearly, schedule: '0 0 1 1 *', task_type: http_call, payload: {url: 'https://x.example/'}}
";

    fn rehearsed(from: &str, to: &str) -> Rehearsal {
        of(FILE, from, to)
    }

    fn of(text: &str, from: &str, to: &str) -> Rehearsal {
        let config = shared::config::load_str(text, "b.yaml", &|_| None).expect("right");
        let all: Vec<&Schedule> = config.schedules.iter().collect();
        rehearse(&all, from.parse().expect("an instant"), to.parse().expect("an instant"))
    }

    fn told(rehearsal: &Rehearsal) -> Vec<String> {
        let note = |tick: &Tick| tick.note.as_deref().map(|n| format!(" {n}")).unwrap_or_default();
        let ticks = rehearsal.ticks.iter();
        ticks.map(|t| format!("{} {}{}", t.at.format("%H:%MZ"), t.schedule, note(t))).collect()
    }

    #[test]
    fn in_spring_a_time_is_made_up_or_left_out() {
        let spring = rehearsed("2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z");

        let made_up = "made up for 02:30, which does not exist: clocks go from 02:00 to 03:00";
        assert_eq!(
            told(&spring),
            [format!("01:00Z nightly {made_up}"), format!("01:00Z resting {made_up}")]
        );
        assert_eq!(spring.left_out.len(), 1);
        assert_eq!(
            spring.left_out[0].note,
            "02:00, 02:15, 02:30, 02:45 do not exist and are not made up: clocks go from 02:00 to 03:00"
        );
        assert_eq!(spring.silent, ["quarter", "yearly"]);
        assert_eq!(spring.collisions, [], "a paused schedule makes no task");
    }

    #[test]
    fn in_autumn_a_time_runs_once_or_again() {
        let autumn = rehearsed("2026-10-25T00:00:00Z", "2026-10-25T12:00:00Z");

        let once = "comes twice and runs this first time only: clocks go from 03:00 to 02:00";
        let again = "runs again: clocks go from 03:00 to 02:00";
        assert_eq!(
            told(&autumn),
            [
                "00:00Z quarter".to_owned(),
                "00:15Z quarter".to_owned(),
                format!("00:30Z nightly {once}"),
                "00:30Z quarter".to_owned(),
                format!("00:30Z resting {once}"),
                "00:45Z quarter".to_owned(),
                format!("01:00Z quarter {again}"),
                format!("01:15Z quarter {again}"),
                format!("01:30Z quarter {again}"),
                format!("01:45Z quarter {again}"),
            ]
        );
    }

    #[test]
    fn jitter_keeps_tasks_apart() {
        let text = FILE.replace("name: nightly,", "name: nightly, jitter: 30m,");
        let summer = of(&text, "2026-07-01T00:00:00Z", "2026-07-01T12:00:00Z");

        let nightly = summer.ticks.iter().find(|tick| tick.schedule == "nightly").expect("a tick");
        let delay = nightly.starts - nightly.at;
        assert!(delay > TimeDelta::zero() && delay < TimeDelta::minutes(30), "{delay}");
        assert_eq!(summer.collisions, []);
    }

    #[test]
    fn collisions_and_peaks_count_what_makes_tasks() {
        let summer = rehearsed("2026-07-01T00:00:00Z", "2026-07-02T12:00:00Z");

        assert_eq!(summer.collisions.len(), 2);
        assert_eq!(summer.collisions[0].schedules, ["nightly", "quarter"]);
        assert_eq!(summer.peaks.len(), 1);
        assert_eq!((summer.peaks[0].pool.as_str(), summer.peaks[0].ticks), ("io_pool", 2));
        assert_eq!(summer.peaks[0].minute.to_rfc3339(), "2026-07-01T00:30:00+00:00");
    }
}
