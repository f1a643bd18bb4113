//! From wall-clock times to instants: what a line does when the clocks of its zone change.
//!
//! The rules are those of Debian's cron. A line with a given minute and hour fires once per wall
//! time: at the end of a gap that swallowed it, and in a repeated hour the first time only. A line
//! whose minute or hour begins with `*` follows real time: nothing is made up for a gap, and a
//! repeated hour fires again. The answer is always later than the question.

use chrono::{
    DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc,
};
use chrono_tz::{GapInfo, Tz};

use super::parse::Pace;
use super::wall::{Wall, YEARS};

const SECOND: TimeDelta = TimeDelta::seconds(1);

/// The first instant of a line that is later than `after`.
pub(super) fn next_after(
    wall: &Wall,
    pace: Pace,
    after: DateTime<Utc>,
    tz: Tz,
) -> Option<DateTime<Utc>> {
    let after = clamp(after);
    match pace {
        Pace::Fixed => fixed(wall, after, tz),
        Pace::Wildcard => wildcard(wall, after, tz),
    }
}

/// Moves the far ends of the calendar, whose local times overflow, to just outside our years.
pub(super) fn clamp(instant: DateTime<Utc>) -> DateTime<Utc> {
    let first = DateTime::UNIX_EPOCH - TimeDelta::days(2);
    let last = first + TimeDelta::days(366 * i64::from(YEARS.end() - YEARS.start() + 1));
    instant.clamp(first, last)
}

/// Every wall time fires at the first instant at which the clocks show it or more.
fn fixed(wall: &Wall, after: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
    let mut time = local(after, tz);
    if let Some(Overlap { second_pass: true, top, .. }) = Overlap::around(after, tz) {
        time = time.max(top - SECOND);
    }
    loop {
        time = wall.next(time)?;
        let instant = match tz.from_local_datetime(&time) {
            MappedLocalTime::Single(instant) | MappedLocalTime::Ambiguous(instant, _) => {
                instant.to_utc()
            }
            MappedLocalTime::None => gap_end(time, tz)?,
        };
        if instant > after {
            return Some(instant);
        }
    }
}

/// Every instant at which the clocks show a matching time fires.
fn wildcard(wall: &Wall, after: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
    let ahead = shown_after(wall, local(after, tz), after, tz);
    match Overlap::around(after, tz) {
        // The clocks will go back behind the present: times that have passed come again.
        Some(Overlap { second_pass: false, bottom, .. }) => {
            let again = shown_after(wall, bottom - SECOND, after, tz);
            ahead.into_iter().chain(again).min()
        }
        _ => ahead,
    }
}

/// The first matching time from `time` on that the clocks show at an instant after `after`.
fn shown_after(
    wall: &Wall,
    mut time: NaiveDateTime,
    after: DateTime<Utc>,
    tz: Tz,
) -> Option<DateTime<Utc>> {
    loop {
        time = wall.next(time)?;
        let instant = match tz.from_local_datetime(&time) {
            MappedLocalTime::Single(instant) => instant.to_utc(),
            MappedLocalTime::Ambiguous(first, _) if first.to_utc() > after => first.to_utc(),
            MappedLocalTime::Ambiguous(_, second) => second.to_utc(),
            MappedLocalTime::None => {
                // One jump over the gap, which can be a day wide (Apia, 2011-12-30).
                time = time.max(local(gap_end(time, tz)?, tz) - SECOND);
                continue;
            }
        };
        if instant > after {
            return Some(instant);
        }
    }
}

/// Wall time of an instant, in whole seconds.
pub(super) fn local(instant: DateTime<Utc>, tz: Tz) -> NaiveDateTime {
    whole_second(instant).with_timezone(&tz).naive_local()
}

/// The instant without its fraction of a second.
pub(super) fn whole_second(instant: DateTime<Utc>) -> DateTime<Utc> {
    instant.with_nanosecond(0).unwrap_or(instant)
}

/// The first instant in `(low, high]`, whole seconds, that no longer has the offset of `low`.
pub(super) fn change_between(
    mut low: DateTime<Utc>,
    mut high: DateTime<Utc>,
    tz: Tz,
) -> DateTime<Utc> {
    let offset = |at: DateTime<Utc>| tz.offset_from_utc_datetime(&at.naive_utc()).fix();
    let before = offset(low);
    while high - low > SECOND {
        let middle = low + TimeDelta::seconds((high - low).num_seconds() / 2);
        if offset(middle) == before {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The first instant after a gap of the clocks in which `time` lies.
fn gap_end(time: NaiveDateTime, tz: Tz) -> Option<DateTime<Utc>> {
    let (begin, offset) = GapInfo::new(&time, &tz)?.begin?;
    Some((begin - offset.fix()).and_utc())
}

/// A stretch of wall time that the clocks show twice.
pub(super) struct Overlap {
    /// The first time that is shown twice.
    pub(super) bottom: NaiveDateTime,
    /// The first time after it that is shown once.
    pub(super) top: NaiveDateTime,
    /// The clocks have gone back already.
    pub(super) second_pass: bool,
}

impl Overlap {
    /// The overlap in which an instant lies, if any.
    pub(super) fn around(instant: DateTime<Utc>, tz: Tz) -> Option<Self> {
        let time = local(instant, tz);
        let MappedLocalTime::Ambiguous(first, second) = tz.from_local_datetime(&time) else {
            return None;
        };
        let (before, after) = (first.offset().fix(), second.offset().fix());
        let change = change_between(first.to_utc(), second.to_utc(), tz);
        Some(Self {
            bottom: change.naive_utc() + after,
            top: change.naive_utc() + before,
            second_pass: instant >= change,
        })
    }
}
