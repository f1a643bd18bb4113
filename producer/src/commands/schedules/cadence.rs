//! How often a schedule is to run, and how often it really did.
//!
//! The plan comes from its next instants, the truth from the outcomes of its last ticks: a schedule
//! of every five minutes whose run takes seven makes a task every ten.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use shared::store::RecentTicks;

/// Next instants that are measured.
pub(super) const MEASURED: usize = 8;

/// Shortest and longest time between two instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gaps {
    /// Seconds.
    pub shortest: i64,
    /// Seconds.
    pub longest: i64,
}

impl Gaps {
    /// Of instants in order; `None` where there are fewer than two.
    pub(super) fn of(instants: &[DateTime<Utc>]) -> Option<Self> {
        let gaps = || instants.windows(2).map(|pair| (pair[1] - pair[0]).num_seconds());
        Some(Self { shortest: gaps().min()?, longest: gaps().max()? })
    }

    fn told(self) -> String {
        match (span(self.shortest), span(self.longest)) {
            (shortest, longest) if shortest == longest => format!("every {shortest}"),
            (shortest, longest) => format!("every {shortest} to {longest}"),
        }
    }
}

/// Plan and truth of one schedule. JSON: `{"effective","planned","measured","ticks","last_run"}`.
#[derive(Clone, Debug, Default)]
pub struct Cadence {
    /// Instants ahead, as far as they were counted.
    ahead: usize,
    /// Between them.
    planned: Option<Gaps>,
    /// What its last ticks came to; `None` where it has not been applied.
    recent: Option<RecentTicks>,
}

impl Serialize for Cadence {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let recent = self.recent.as_ref();
        json!({
            "effective": self.effective(),
            "planned": self.planned,
            "measured": recent.and_then(|recent| Gaps::of(&recent.runs)),
            "ticks": recent.map(|recent| &recent.outcomes),
            "last_run": self.last_run(),
        })
        .serialize(to)
    }
}

impl Cadence {
    /// Of its next instants, and of what its last ticks came to.
    pub(super) fn of(ahead: &[DateTime<Utc>], recent: Option<RecentTicks>) -> Self {
        Self { ahead: ahead.len(), planned: Gaps::of(ahead), recent }
    }

    /// What really happens, in a few words.
    pub(super) fn effective(&self) -> String {
        let planned = match (self.planned, self.ahead) {
            (Some(gaps), _) => gaps.told(),
            (None, 0) => "never again".to_owned(),
            (None, _) => "once more".to_owned(),
        };
        let Some(recent) = &self.recent else { return planned };
        let all: i64 = recent.outcomes.values().sum();
        let run = recent.outcomes.get("enqueued").copied().unwrap_or(0);
        if run == all {
            return planned;
        }
        let others: Vec<String> = recent
            .outcomes
            .iter()
            .filter(|(outcome, _)| **outcome != "enqueued")
            .map(|(outcome, count)| format!("{count} {outcome}"))
            .collect();
        let truth = match Gaps::of(&recent.runs) {
            Some(gaps) => gaps.told(),
            None if recent.outcomes.contains_key("not_started") => {
                format!("{run} of {all} ticks made a task that started in time")
            }
            None if run == 0 => "makes no tasks".to_owned(),
            None => format!("{run} of {all} ticks made a task"),
        };
        format!("{truth}, planned {planned} (last {all}: {})", others.join(", "))
    }

    /// How the last run of a tick went, where it went wrong or still goes.
    pub(super) fn trouble(&self) -> Option<String> {
        let recent = self.recent.as_ref()?;
        let failed = |word: &str| match &recent.last_error {
            Some((class, _)) => format!("task {word} ({class})"),
            None => format!("task {word}"),
        };
        match recent.last_state.as_deref()? {
            "dead" => Some(failed("dead")),
            "retrying" => Some(failed("retrying")),
            "cancelled" if recent.last_not_started => {
                Some("task not started by its deadline".to_owned())
            }
            "cancelled" => Some("task cancelled".to_owned()),
            _ => None,
        }
    }

    /// `{"at","task_id","state","error"}`, or null.
    fn last_run(&self) -> Value {
        let Some(recent) = &self.recent else { return Value::Null };
        let Some((task, at)) = recent.last_task else { return Value::Null };
        let error = recent
            .last_error
            .as_ref()
            .map(|(class, message)| json!({ "class": class, "message": message }));
        json!({ "at": at, "task_id": task, "state": recent.last_state, "error": error })
    }
}

/// Seconds as people say them: `5m`, `1h 30m`, `2d 16h`. Two units at most, rounded down.
fn span(seconds: i64) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let Some(first) = UNITS.iter().position(|(size, _)| seconds >= *size) else {
        return format!("{seconds}s");
    };
    let (size, unit) = UNITS[first];
    let rest = UNITS
        .get(first + 1)
        .map(|(small, unit)| (seconds % size / small, unit))
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!(" {count}{unit}"));
    format!("{}{unit}{}", seconds / size, rest.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chrono::TimeDelta;

    use super::*;

    fn every(minutes: i64, count: i32) -> Vec<DateTime<Utc>> {
        let at = |n| DateTime::UNIX_EPOCH + TimeDelta::minutes(minutes) * n;
        (0..count).map(at).collect()
    }

    #[track_caller]
    fn check(runs: Vec<DateTime<Utc>>, outcomes: &[(&'static str, i64)], expected: &str) {
        let outcomes: BTreeMap<_, _> = outcomes.iter().copied().collect();
        let recent = RecentTicks { runs, outcomes, ..RecentTicks::default() };
        assert_eq!(Cadence::of(&every(5, 8), Some(recent)).effective(), expected);
    }

    #[test]
    fn one_instant_ahead_is_not_none() {
        let planned = |count| Cadence::of(&every(5, count), None).effective();
        assert_eq!([0, 1, 2].map(planned), ["never again", "once more", "every 5m"]);
    }

    #[test]
    fn the_truth_is_told_where_it_differs_from_the_plan() {
        check(Vec::new(), &[], "every 5m");
        check(every(5, 20), &[("enqueued", 20)], "every 5m");
        check(
            every(10, 10),
            &[("enqueued", 10), ("skipped_overlap", 10)],
            "every 10m, planned every 5m (last 20: 10 skipped_overlap)",
        );
        check(
            Vec::new(),
            &[("missed", 120), ("paused", 3)],
            "makes no tasks, planned every 5m (last 123: 120 missed, 3 paused)",
        );
        check(
            every(5, 1),
            &[("deduplicated", 19), ("enqueued", 1)],
            "1 of 20 ticks made a task, planned every 5m (last 20: 19 deduplicated)",
        );
        check(
            Vec::new(),
            &[("not_started", 20)],
            "0 of 20 ticks made a task that started in time, planned every 5m (last 20: 20 not_started)",
        );
    }

    #[test]
    fn a_task_that_did_not_start_in_time_is_told_from_one_that_somebody_cancelled() {
        let trouble = |last_not_started| {
            let last_state = Some("cancelled".to_owned());
            let recent = RecentTicks { last_state, last_not_started, ..RecentTicks::default() };
            Cadence::of(&[], Some(recent)).trouble()
        };
        assert_eq!(trouble(false).as_deref(), Some("task cancelled"));
        assert_eq!(trouble(true).as_deref(), Some("task not started by its deadline"));
    }

    #[test]
    fn spans_have_two_units_at_most() {
        for (seconds, expected) in [
            (1, "1s"),
            (90, "1m 30s"),
            (300, "5m"),
            (3600, "1h"),
            (5400, "1h 30m"),
            (86_400, "1d"),
            (230_400, "2d 16h"),
            (86_401, "1d"),
            (0, "0s"),
        ] {
            assert_eq!(span(seconds), expected);
        }
    }
}
