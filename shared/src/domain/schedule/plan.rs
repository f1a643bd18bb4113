//! Which instants of a stretch of time are due, which were missed, and which of those still run.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::{CatchUp, LATE_AFTER, MISSED_ROWS, Schedule};

/// A planned instant, ready for the tick statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTick {
    /// Its instant.
    pub at: DateTime<Utc>,
    /// False when the catch-up policy lets it pass: it is recorded as `missed`, or `paused` in a pause.
    pub run: bool,
}

/// Missed instants that share one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedSpan {
    /// The oldest.
    pub first: DateTime<Utc>,
    /// The newest.
    pub last: DateTime<Utc>,
    /// How many, both ends included.
    pub count: u64,
}

/// What is due of a schedule: every instant of a stretch of time, each exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Instants with a row of their own, oldest first.
    pub ticks: Vec<PlannedTick>,
    /// Missed instants before them.
    pub older: Option<MissedSpan>,
    /// Where the next plan begins. Never before the old mark, so a clock set back repeats nothing.
    pub new_mark: DateTime<Utc>,
}

impl Schedule {
    /// Plans the instants in `(mark, now]`.
    ///
    /// Those of the last [`LATE_AFTER`] run, whatever `catch_up` says; older ones are missed, and
    /// the policy says which of them run. `latest` runs the newest missed one only when nothing
    /// newer runs anyway. At most [`MISSED_ROWS`] missed ones are listed; the rest is counted by
    /// arithmetic, so that an outage of years costs no more than one of minutes.
    pub fn plan(&self, mark: DateTime<Utc>, now: DateTime<Utc>) -> Plan {
        let new_mark = mark.max(now);
        let after = self.begin().map_or(mark, |begin| begin.max(mark));
        let until = self.end_at.map_or(now, |end| end.min(now));
        if until <= after {
            return Plan { ticks: Vec::new(), older: None, new_mark };
        }
        // Clamped, because a stretch shorter than LATE_AFTER has no missed part, and one that ended
        // before that has no other.
        let late = (now - LATE_AFTER).clamp(after, until);
        let missed = self.cron.newest(after, late, MISSED_ROWS, self.timezone);
        let older = missed.first().and_then(|oldest| self.missed_before(after, *oldest));
        let young = self.instants(late, until);

        let newest = missed.last().copied().filter(|_| young.is_empty());
        let caught_up = |at: DateTime<Utc>| match self.catch_up {
            CatchUp::None => false,
            CatchUp::Latest => Some(at) == newest,
            CatchUp::All => true,
        };
        let window = TimeDelta::from_std(self.catch_up_window).unwrap_or(TimeDelta::MAX);
        let judged = missed
            .into_iter()
            .map(|at| PlannedTick { at, run: caught_up(at) && now - at <= window });
        let normal = young.into_iter().map(|at| PlannedTick { at, run: true });
        Plan { ticks: judged.chain(normal).collect(), older, new_mark }
    }

    /// A span in parts of which none reaches over one of these moments, oldest first.
    ///
    /// Parts of an outage that were paused are so told from those that were missed.
    pub fn cut(&self, span: MissedSpan, cuts: &[DateTime<Utc>]) -> Vec<MissedSpan> {
        let before = |at: DateTime<Utc>| at - TimeDelta::nanoseconds(1);
        let part = |first, last| MissedSpan {
            first,
            last,
            count: self.cron.count(before(first), last, self.timezone),
        };
        let mut parts = Vec::new();
        let mut first = span.first;
        for cut in cuts.iter().filter(|cut| **cut <= span.last) {
            if let Some(last) = self.previous(*cut, before(first))
                && let Some(next) = self.next_due(last)
            {
                parts.push(part(first, last));
                first = next;
            }
        }
        if parts.is_empty() {
            return vec![span];
        }
        parts.push(part(first, span.last));
        parts
    }

    /// What should have been decided by now and is not: instants after `mark` that are older than
    /// [`LATE_AFTER`]. `None` while a leader keeps up.
    pub fn overdue(&self, mark: DateTime<Utc>, now: DateTime<Utc>) -> Option<MissedSpan> {
        let Plan { ticks, older, .. } = self.plan(mark, now - LATE_AFTER);
        let (first, last) = (ticks.first()?.at, ticks.last()?.at);
        let (first, before) = older.map_or((first, 0), |older| (older.first, older.count));
        Some(MissedSpan { first, last, count: before + ticks.len() as u64 })
    }

    pub(super) fn instants(
        &self,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Vec<DateTime<Utc>> {
        std::iter::successors(self.next_due(after), |at| self.next_due(*at))
            .take_while(|at| *at <= until)
            .collect()
    }

    /// The instants after `after` that are older than the oldest listed one.
    fn missed_before(&self, after: DateTime<Utc>, listed: DateTime<Utc>) -> Option<MissedSpan> {
        let last = self.previous(listed, after)?;
        let first = self.next_due(after)?;
        Some(MissedSpan { first, last, count: self.cron.count(after, last, self.timezone) })
    }
}
