//! From wall-clock times to instants: what a line does when the clocks of its zone change.
//!
//! The rules are those of Debian's cron. A line with a given minute and hour fires once per wall
//! time: at the end of a gap that swallowed it, and in a repeated hour the first time only. A line
//! whose minute or hour begins with `*` follows real time: nothing is made up for a gap, and a
//! repeated hour fires again. The answer is always later than the question.

use chrono::{
    DateTime, Datelike, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc,
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
    // Far ends of the calendar overflow in local time; nothing fires there.
    if after.year() > *YEARS.end() {
        return None;
    }
    let after = after.max(DateTime::UNIX_EPOCH - TimeDelta::days(2));
    match pace {
        Pace::Fixed => fixed(wall, after, tz),
        Pace::Wildcard => wildcard(wall, after, tz),
    }
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
fn local(instant: DateTime<Utc>, tz: Tz) -> NaiveDateTime {
    let time = instant.with_timezone(&tz).naive_local();
    time.with_nanosecond(0).unwrap_or(time)
}

/// The first instant after a gap of the clocks in which `time` lies.
fn gap_end(time: NaiveDateTime, tz: Tz) -> Option<DateTime<Utc>> {
    let (begin, offset) = GapInfo::new(&time, &tz)?.begin?;
    Some((begin - offset.fix()).and_utc())
}

/// A stretch of wall time that the clocks show twice.
struct Overlap {
    /// The first time that is shown twice.
    bottom: NaiveDateTime,
    /// The first time after it that is shown once.
    top: NaiveDateTime,
    /// The clocks have gone back already.
    second_pass: bool,
}

impl Overlap {
    /// The overlap in which an instant lies, if any.
    fn around(instant: DateTime<Utc>, tz: Tz) -> Option<Self> {
        let time = local(instant, tz);
        let MappedLocalTime::Ambiguous(first, second) = tz.from_local_datetime(&time) else {
            return None;
        };
        let (before, after) = (first.offset().fix(), second.offset().fix());
        // The clocks went back in (low, high]; both ends are whole seconds.
        let (mut low, mut high) = (first.to_utc(), second.to_utc());
        while high - low > SECOND {
            let middle = low + TimeDelta::seconds((high - low).num_seconds() / 2);
            if tz.offset_from_utc_datetime(&middle.naive_utc()).fix() == before {
                low = middle;
            } else {
                high = middle;
            }
        }
        let change = high.naive_utc();
        Some(Self { bottom: change + after, top: change + before, second_pass: instant >= high })
    }
}
