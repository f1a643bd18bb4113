//! How many instants a line has in a stretch of time, by arithmetic instead of one by one.
//!
//! A line of every second that was down for a week has 604,800 missed instants; the answer costs
//! one look per day and one per clock change. It never searches by itself: [`super::zone`] does,
//! and a property test holds the two together.

use chrono::{DateTime, Datelike, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::Tz;

use super::field::Field;
use super::parse::{Line, Pace};
use super::wall::YEARS;
use super::zone::{self, Overlap};

const SECOND: TimeDelta = TimeDelta::seconds(1);

/// Number of instants in `(after, until]`.
pub(super) fn count(line: &Line, after: DateTime<Utc>, until: DateTime<Utc>, tz: Tz) -> u64 {
    let mut from = zone::whole_second(zone::clamp(after)) + SECOND;
    let end = zone::whole_second(zone::clamp(until)) + SECOND;
    // Wall times below this have had their turn.
    let mut done = shown_up_to(from - SECOND, tz);
    let mut sum = 0;
    while from < end {
        let offset = tz.offset_from_utc_datetime(&from.naive_utc()).fix();
        let change = next_change(from, end, tz);
        let (first, last) = (from.naive_utc() + offset, change.naive_utc() + offset);
        sum += match line.pace {
            Pace::Wildcard => line.times_between(first, last),
            Pace::Fixed => {
                // What the gap before this span swallowed fires together, at its first instant.
                let swallowed = done < first && line.times_between(done, first) > 0;
                let alone = line.times_between(first, first + SECOND) == 0;
                u64::from(swallowed && alone) + line.times_between(first.max(done), last)
            }
        };
        done = done.max(last);
        from = change;
    }
    sum
}

/// The instant from which on exactly the newest `wanted` instants up to `until` lie, or `after`
/// when there are fewer.
pub(super) fn start_of_newest(
    line: &Line,
    (after, until): (DateTime<Utc>, DateTime<Utc>),
    wanted: u64,
    tz: Tz,
) -> DateTime<Utc> {
    // In whole seconds, as instants are: with a fraction between them, the ends would never meet.
    let [after, until] = [after, until].map(|at| zone::whole_second(zone::clamp(at)));
    let enough = |from: DateTime<Utc>| count(line, from, until, tz) >= wanted;
    // Look back twice as far each time: a dense line is found near its end.
    let mut span = TimeDelta::minutes(1);
    while until - span > after && !enough(until - span) {
        span = span * 2;
    }
    let (mut low, mut high) = (after.max(until - span), until);
    if !enough(low) {
        return after;
    }
    // `low` has enough and `high` has not; they meet at the second before the oldest one wanted.
    while high - low > SECOND {
        let middle = low + TimeDelta::seconds((high - low).num_seconds() / 2);
        if enough(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The end of the wall times that the clocks have shown up to and including an instant.
fn shown_up_to(instant: DateTime<Utc>, tz: Tz) -> NaiveDateTime {
    match Overlap::around(instant, tz) {
        Some(Overlap { second_pass: true, top, .. }) => top,
        _ => zone::local(instant, tz) + SECOND,
    }
}

/// The first instant after `from` with another offset, or `end`.
fn next_change(from: DateTime<Utc>, end: DateTime<Utc>, tz: Tz) -> DateTime<Utc> {
    let offset = |at: DateTime<Utc>| tz.offset_from_utc_datetime(&at.naive_utc()).fix();
    let here = offset(from);
    let (mut low, mut high) = (from, from);
    while offset(high) == here {
        if high >= end {
            return end;
        }
        low = high;
        high = (high + TimeDelta::days(1)).min(end);
    }
    zone::change_between(low, high, tz)
}

impl Line {
    /// Number of matching wall times in `[from, to)`, both in whole seconds.
    fn times_between(&self, from: NaiveDateTime, to: NaiveDateTime) -> u64 {
        if from >= to {
            return 0;
        }
        let midnight = |time: NaiveDateTime| u64::from(time.num_seconds_from_midnight());
        let mut sum = 0;
        for date in from.date().iter_days().take_while(|date| *date <= to.date()) {
            if !self.has_date(date) {
                continue;
            }
            let start = if date == from.date() { midnight(from) } else { 0 };
            let end = if date == to.date() { midnight(to) } else { 86_400 };
            sum += self.times_before(end) - self.times_before(start);
        }
        sum
    }

    /// True for a day on which the line fires.
    pub(super) fn has_date(&self, date: chrono::NaiveDate) -> bool {
        let month = self.values(Field::Month).contains(date.month());
        let day = self.values(Field::DayOfMonth).contains(date.day());
        let week = self.values(Field::DayOfWeek).contains(date.weekday().num_days_from_sunday());
        let days = if self.either_day { day || week } else { day && week };
        YEARS.contains(&date.year()) && month && days
    }

    /// Number of times of day before a second of the day.
    fn times_before(&self, second: u64) -> u64 {
        let [seconds, minutes, hours] =
            [Field::Second, Field::Minute, Field::Hour].map(|field| self.values(field));
        let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
        let [per_minute, per_hour] = [seconds.len(), seconds.len() * minutes.len()].map(u64::from);
        let mut sum = hours.below(h) * per_hour;
        if hours.contains(h as u32) {
            sum += minutes.below(m) * per_minute;
            if minutes.contains(m as u32) {
                sum += seconds.below(s);
            }
        }
        sum
    }
}
