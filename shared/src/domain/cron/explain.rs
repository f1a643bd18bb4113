//! A cron line in words, for `cron explain` and for reviews of a schedule before it is applied.
//!
//! It describes the sets of values, not the text, so that two spellings read alike.

use std::fmt::Write;

use chrono::{DateTime, Offset, TimeDelta, TimeZone};
use chrono_tz::Tz;

use super::field::{Field, Values};
use super::parse::{Line, Pace};

/// Most times of day that are listed one by one.
const LISTED_TIMES: u32 = 6;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Says when a line fires in a zone.
pub(super) fn explain(line: &Line, tz: Tz) -> String {
    let mut text = times_of_day(line).unwrap_or_else(|| rhythm(line));
    let days = days(line);
    if !days.is_empty() {
        let _ = write!(text, " {days}");
    } else if text.starts_with("at") && !text.contains("every") {
        text.push_str(" every day");
    }
    if !line.is_any(Field::Month) {
        let months =
            spans(line.values(Field::Month), |month| MONTHS[month as usize - 1].to_owned());
        let _ = write!(text, " in {months}");
    }
    let _ = write!(text, ", {tz} time.");
    if changes_clocks(tz) {
        text.push_str(match line.pace {
            Pace::Fixed => {
                " When clocks go forward, a time that is left out runs once right after the gap; \
                 when they go back, a time that comes twice runs the first time only."
            }
            Pace::Wildcard => {
                " When clocks go forward, times that are left out are not made up; when they go \
                 back, the repeated hour runs again."
            }
        });
    }
    text[..1].to_ascii_uppercase() + &text[1..]
}

/// `at 02:30 and 14:30`, when there are few.
fn times_of_day(line: &Line) -> Option<String> {
    let [seconds, minutes, hours] =
        [Field::Second, Field::Minute, Field::Hour].map(|field| line.values(field));
    if seconds.len() * minutes.len() * hours.len() > LISTED_TIMES {
        return None;
    }
    let mut times = Vec::new();
    for hour in hours.iter() {
        for minute in minutes.iter() {
            for second in seconds.iter() {
                let mut time = format!("{hour:02}:{minute:02}");
                if line.has_seconds {
                    let _ = write!(time, ":{second:02}");
                }
                times.push(time);
            }
        }
    }
    Some(format!("at {}", join(&times, "and")))
}

/// `every 15 minutes of hours 9 to 17`.
fn rhythm(line: &Line) -> String {
    let mut text = String::new();
    // A coarser unit adds nothing after "every …" when it is unrestricted itself.
    let mut flows = false;
    for (field, unit) in
        [(Field::Second, "second"), (Field::Minute, "minute"), (Field::Hour, "hour")]
    {
        let values = line.values(field);
        let first = text.is_empty();
        if field == Field::Second && values.len() == 1 && values.contains(0) {
            continue;
        }
        let any = line.is_any(field);
        if any && flows {
            continue;
        }
        let step = even_step(values, field.max() + 1).filter(|_| !any);
        let phrase = match step {
            _ if any => format!("every {unit}"),
            Some(step) if first => format!("every {step} {unit}s"),
            Some(step) => format!("every {step}{} {unit}", if step == 2 { "nd" } else { "th" }),
            None if values.len() == 1 => format!("{unit} {}", spans(values, |v| v.to_string())),
            None => format!("{unit}s {}", spans(values, |v| v.to_string())),
        };
        flows = any || (first && step.is_some());
        let lead = match (first, flows) {
            (true, true) => "",
            (true, false) => "at ",
            (false, _) => " of ",
        };
        text.push_str(lead);
        text.push_str(&phrase);
    }
    text
}

fn days(line: &Line) -> String {
    let every_date = line.is_any(Field::DayOfMonth);
    let every_weekday = line.is_any(Field::DayOfWeek);
    let dates = line.values(Field::DayOfMonth);
    let s = if dates.len() == 1 { "" } else { "s" };
    let dates = format!("on day{s} {} of the month", spans(dates, |day| day.to_string()));
    // Sunday is told last, so that a weekend is Saturday and Sunday.
    let mut week = Values::default();
    line.values(Field::DayOfWeek).iter().for_each(|day| week.insert((day + 6) % 7));
    let weekdays = spans(week, |day| DAYS[day as usize].to_owned());
    match (every_date, every_weekday) {
        (true, true) => String::new(),
        (true, _) | (_, true) if line.either_day => String::new(),
        (true, false) => format!("on {weekdays}"),
        (false, true) => dates,
        (false, false) if line.either_day => format!("{dates} or on {weekdays}"),
        (false, false) => format!("{dates}, when it is {}", weekdays.replace(" and ", " or ")),
    }
}

/// The step of `0, n, 2n …` when it divides the round evenly; else "every n" would be a lie.
fn even_step(values: Values, round: u32) -> Option<u32> {
    let step = values.iter().nth(1)?;
    let even = values.contains(0)
        && round.is_multiple_of(step)
        && values.len() == round / step
        && values.iter().all(|value| value.is_multiple_of(step));
    even.then_some(step)
}

/// Values with runs of three and more drawn together: `1, 5 to 9 and 12`.
fn spans(values: Values, name: impl Fn(u32) -> String) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for value in values.iter() {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == value => *last = value,
            _ => runs.push((value, value)),
        }
    }
    let mut parts = Vec::new();
    for (first, last) in runs {
        match last - first {
            0 => parts.push(name(first)),
            1 => parts.extend([name(first), name(last)]),
            _ => parts.push(format!("{} to {}", name(first), name(last))),
        }
    }
    join(&parts, "and")
}

fn join(parts: &[String], word: &str) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [head @ .., last] => format!("{} {word} {last}", head.join(", ")),
    }
}

/// True when the zone's offset differs between weeks of a decade from 2025 on.
fn changes_clocks(tz: Tz) -> bool {
    let start = DateTime::from_timestamp(1_735_689_600, 0).unwrap_or_default().naive_utc();
    let offset = |week| tz.offset_from_utc_datetime(&(start + TimeDelta::weeks(week))).fix();
    (1..520).any(|week| offset(week) != offset(0))
}

#[cfg(test)]
mod tests {
    use super::super::Cron;

    #[track_caller]
    fn check(text: &str, zone: &str, expected: &str) {
        let cron = Cron::parse(text).expect("a valid line");
        let seen = cron.explain(zone.parse().expect("a zone"));
        let first = seen.split_inclusive('.').next().unwrap_or_default();
        assert_eq!(first, expected, "{text}");
    }

    #[test]
    fn lines_are_told_in_words() {
        check("0 18 * * *", "UTC", "At 18:00 every day, UTC time.");
        check("@hourly", "UTC", "At minute 0 of every hour, UTC time.");
        check("* * * * *", "UTC", "Every minute, UTC time.");
        check("*/15 * * * * *", "UTC", "Every 15 seconds, UTC time.");
        check("30 2,14 1 * *", "UTC", "At 02:30 and 14:30 on day 1 of the month, UTC time.");
        check("0 0 29 feb *", "UTC", "At 00:00 on day 29 of the month in February, UTC time.");
        check("5 0 9 * * sun", "UTC", "At 09:00:05 on Sunday, UTC time.");
        check(
            "*/15 9-17 * * mon-fri",
            "Asia/Shanghai",
            "Every 15 minutes of hours 9 to 17 on Monday to Friday, Asia/Shanghai time.",
        );
        check(
            "*/7 * * * 0,6",
            "UTC",
            "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour on Saturday and Sunday, UTC time.",
        );
        check("0 */2 * * *", "UTC", "At minute 0 of every 2nd hour, UTC time.");
    }

    #[test]
    fn the_two_day_fields_say_whether_one_or_both_must_hold() {
        check("0 0 13 * fri", "UTC", "At 00:00 on day 13 of the month or on Friday, UTC time.");
        check(
            "0 0 */15 * fri",
            "UTC",
            "At 00:00 on days 1, 16 and 31 of the month, when it is Friday, UTC time.",
        );
        check("0 0 1-31 * fri", "UTC", "At 00:00 every day, UTC time.");
    }

    #[test]
    fn changing_clocks_are_spoken_of_where_they_change() {
        let told = |text: &str, zone: &str| {
            Cron::parse(text).expect("a valid line").explain(zone.parse().expect("a zone"))
        };
        assert!(told("30 2 * * *", "Europe/Berlin").contains("once right after the gap"));
        assert!(told("*/5 * * * *", "Europe/Berlin").contains("runs again"));
        assert!(!told("30 2 * * *", "Asia/Shanghai").contains("clocks"));
    }
}
