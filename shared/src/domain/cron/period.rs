//! The shortest time between two instants of a line, by the wall clock: what a jitter must stay
//! below. It leaves changing clocks aside.

use std::time::Duration;

use chrono::{Datelike, NaiveDate};

use super::field::{Field, Values};
use super::parse::Line;

/// Days that are looked at: a leap day's line has three in them.
const DAYS: usize = 9 * 366;

impl Line {
    /// The shortest time between two instants.
    pub(super) fn shortest_period(&self) -> Duration {
        let [s, m, h] = [Field::Second, Field::Minute, Field::Hour].map(|field| self.values(field));
        let of_minute = reach(s);
        let of_hour = reach(m) * 60 + of_minute;
        let of_day = reach(h) * 3600 + of_hour;
        let gaps = [
            nearest(s.iter()),
            nearest(m.iter()).map(|minutes| minutes * 60 - of_minute),
            nearest(h.iter()).map(|hours| hours * 3600 - of_hour),
            nearest(self.days()).map(|days| days * 86_400 - of_day),
        ];
        let shortest = gaps.into_iter().flatten().min();
        shortest.map_or(Duration::MAX, |seconds| Duration::from_secs(seconds.into()))
    }

    /// Numbers of the days that match, from some day on.
    fn days(&self) -> impl Iterator<Item = u32> {
        let first = NaiveDate::from_yo_opt(2024, 1).unwrap_or_default();
        let dates = first.iter_days().take(DAYS).filter(|date| self.has_date(*date));
        dates.map(|date| date.num_days_from_ce().unsigned_abs())
    }
}

/// From the first value to the last.
fn reach(values: Values) -> u32 {
    values.iter().last().unwrap_or(0) - values.iter().next().unwrap_or(0)
}

/// The least distance between neighbours, of which none is below 1.
fn nearest(numbers: impl Iterator<Item = u32>) -> Option<u32> {
    let mut before = None;
    let mut least: Option<u32> = None;
    for number in numbers {
        if let Some(before) = before {
            least = Some(least.map_or(number - before, |least| least.min(number - before)));
        }
        if least == Some(1) {
            break;
        }
        before = Some(number);
    }
    least
}

#[cfg(test)]
mod tests {
    use super::super::Cron;
    use super::*;

    #[track_caller]
    fn check(line: &str, seconds: u64) {
        let cron = Cron::parse(line).expect("a cron line");
        assert_eq!(cron.shortest_period(), Duration::from_secs(seconds), "{line}");
    }

    #[test]
    fn the_shortest_period_is_found_in_whichever_field_it_lies() {
        check("* * * * * *", 1);
        check("*/7 * * * * *", 4);
        check("30 * * * * *", 60);
        check("10,20 * * * * *", 10);
        check("* * * * *", 60);
        check("*/25 * * * *", 600);
        check("0 * * * *", 3600);
        check("50 59 * * * *", 3600);
        check("0,59 * * * *", 60);
        check("0 0,23 * * *", 3600);
        check("0 18 * * *", 86_400);
        check("0 0 * * 1", 7 * 86_400);
        check("0 0 1,15 * *", 14 * 86_400);
        check("0 9 1 * 1", 86_400);
        check("59 23 * * 1,2", 86_400);
        check("0 0 29 2 *", 1461 * 86_400);
    }
}
