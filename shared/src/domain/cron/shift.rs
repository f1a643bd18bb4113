//! What a change of the clocks does to a line, for people who look ahead.
//!
//! It explains what [`super::zone`] computes, from the same wall-clock search, and decides nothing.

use chrono::{DateTime, FixedOffset, NaiveDateTime, Offset, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;

use super::parse::Pace;
use super::wall::Wall;
use super::zone::{change_between, clamp, whole_second};

/// Wall-clock times that are listed of one change.
const LISTED: usize = 4;
/// No zone changes its clocks twice within this.
const STEP: TimeDelta = TimeDelta::days(1);

/// A change of the clocks of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// The first instant with the new offset.
    pub at: DateTime<Utc>,
    before: FixedOffset,
    after: FixedOffset,
}

impl Shift {
    /// What the clocks would have shown at that instant, had they not been changed.
    pub fn from(&self) -> NaiveDateTime {
        self.at.naive_utc() + self.before
    }

    /// What they show.
    pub fn to(&self) -> NaiveDateTime {
        self.at.naive_utc() + self.after
    }

    /// Until when (itself not included) the clocks show again what they have shown before; the instant
    /// of the change itself when they go forward.
    pub fn repeated_until(&self) -> DateTime<Utc> {
        self.at + (self.from() - self.to()).max(TimeDelta::zero())
    }
}

/// What happens to the times of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// They do not exist, and run once, together, right after the gap.
    MadeUp,
    /// They do not exist and are not made up.
    LeftOut,
    /// They come twice and run the first time only.
    FirstOnly,
    /// They come twice and run both times.
    Again,
}

/// What a change does to a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shifted {
    /// What.
    pub effect: Effect,
    /// To which wall-clock times: the first few.
    pub times: Vec<NaiveDateTime>,
    /// There are more of them.
    pub more: bool,
}

/// The changes of a zone's clocks in `(after, until]`.
pub fn shifts(tz: Tz, after: DateTime<Utc>, until: DateTime<Utc>) -> Vec<Shift> {
    let offset = |at: DateTime<Utc>| tz.offset_from_utc_datetime(&at.naive_utc()).fix();
    let (mut low, until) = (whole_second(clamp(after)), whole_second(clamp(until)));
    let mut found = Vec::new();
    while low < until {
        let high = (low + STEP).min(until);
        if offset(low) != offset(high) {
            let at = change_between(low, high, tz);
            found.push(Shift { at, before: offset(low), after: offset(at) });
        }
        low = high;
    }
    found
}

/// What a change does to a line; `None` when it does nothing.
pub(super) fn shifted(wall: &Wall, pace: Pace, shift: &Shift) -> Option<Shifted> {
    let forward = shift.from() < shift.to();
    let (bottom, top) =
        if forward { (shift.from(), shift.to()) } else { (shift.to(), shift.from()) };
    let next = |time: &NaiveDateTime| wall.next(*time);
    let mut times: Vec<NaiveDateTime> =
        std::iter::successors(wall.next(bottom - TimeDelta::seconds(1)), next)
            .take_while(|time| *time < top)
            .take(LISTED + 1)
            .collect();
    let more = times.len() > LISTED;
    times.truncate(LISTED);
    let effect = match (forward, pace) {
        (true, Pace::Fixed) => Effect::MadeUp,
        (true, Pace::Wildcard) => Effect::LeftOut,
        (false, Pace::Fixed) => Effect::FirstOnly,
        (false, Pace::Wildcard) => Effect::Again,
    };
    (!times.is_empty()).then_some(Shifted { effect, times, more })
}

#[cfg(test)]
mod tests {
    use super::super::Cron;
    use super::*;

    #[track_caller]
    fn check(line: &str, tz: Tz, day: &str, expected: &str) {
        let cron = Cron::parse(line).expect("a line");
        let after: DateTime<Utc> = format!("{day}T00:00:00Z").parse().expect("an instant");
        let seen: Vec<String> = shifts(tz, after - STEP, after + STEP)
            .iter()
            .map(|shift| match cron.shifted(shift) {
                None => format!("{} -", shift.at.format("%H:%MZ")),
                Some(Shifted { effect, times, more }) => {
                    let times: Vec<_> =
                        times.iter().map(|time| time.format("%H:%M").to_string()).collect();
                    let more = if more { " …" } else { "" };
                    format!("{} {effect:?} {}{more}", shift.at.format("%H:%MZ"), times.join(" "))
                }
            })
            .collect();
        assert_eq!(seen.join(", "), expected, "{line} in {tz}");
    }

    #[test]
    fn every_change_is_found_with_what_it_does() {
        use chrono_tz::{America::New_York, Asia::Shanghai, Europe::Berlin, Pacific::Apia};
        check("30 2 * * *", Berlin, "2026-03-29", "01:00Z MadeUp 02:30");
        check("30 2,14 * * *", New_York, "2025-03-09", "07:00Z MadeUp 02:30");
        check("*/10 2 * * *", Berlin, "2026-03-29", "01:00Z LeftOut 02:00 02:10 02:20 02:30 …");
        check("30 2 * * *", Berlin, "2026-10-25", "01:00Z FirstOnly 02:30");
        check("30 * * * *", Berlin, "2026-10-25", "01:00Z Again 02:30");
        check("0 18 * * *", Berlin, "2026-10-25", "01:00Z -");
        check("0 3 * * *", Berlin, "2026-03-29", "01:00Z -");
        check("0 12 * * *", Apia, "2011-12-30", "10:00Z MadeUp 12:00");
        check("30 2 * * *", Shanghai, "2026-03-29", "");
        check("30 2 * * *", Tz::UTC, "2026-03-29", "");
    }

    #[test]
    fn a_repeated_hour_has_an_end() {
        let at = |text: &str| text.parse::<DateTime<Utc>>().expect("an instant");
        let berlin = chrono_tz::Europe::Berlin;
        let year = shifts(berlin, at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));

        assert_eq!(year.len(), 2);
        assert_eq!(year[0].repeated_until(), at("2026-03-29T01:00:00Z"));
        assert_eq!(year[1].at, at("2026-10-25T01:00:00Z"));
        assert_eq!(year[1].repeated_until(), at("2026-10-25T02:00:00Z"));
    }
}
