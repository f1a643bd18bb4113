//! The grammar: text to sets of values, or a [`CronError`] that says how to mend it.
//!
//! It never guesses: what another dialect would read differently is refused.

use super::MAX_CRON_BYTES;
use super::error::{CronError, Reason};
use super::field::{Field, Values};

/// How a line meets changing clocks (the distinction of Debian's cron).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Minute and hour are given: once a day stays once a day.
    Fixed,
    /// Minute or hour begins with `*`: it follows real time.
    Wildcard,
}

/// A line taken apart.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Values of each field, in the order of [`Field::ALL`].
    values: [Values; 6],
    /// Six fields were written.
    pub(super) has_seconds: bool,
    /// Fires on either day field (OR); else both must hold.
    pub(super) either_day: bool,
    /// Clock changes.
    pub(super) pace: Pace,
}

impl Line {
    pub(super) fn values(&self, field: Field) -> Values {
        self.values[field as usize]
    }

    /// True when the field restricts nothing.
    pub(super) fn is_any(&self, field: Field) -> bool {
        let all = match field {
            Field::DayOfWeek => 7,
            other => other.max() - other.min() + 1,
        };
        self.values(field).len() == all
    }

    /// True where no search is needed to know that it fires: each month has each of its days.
    pub(super) fn surely_fires(&self) -> bool {
        let early = self.values(Field::DayOfMonth).iter().next().is_some_and(|day| day <= 28);
        self.is_any(Field::DayOfMonth) || early && self.is_any(Field::DayOfWeek)
    }
}

const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Takes a line apart.
pub(super) fn parse(text: &str) -> Result<Line, CronError> {
    check_characters(text)?;
    let words: Vec<&str> = text.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [] => {
            Err(CronError::line(Reason::Empty, "it is empty", "write five fields, e.g. 0 18 * * *"))
        }
        [word] if !word.contains('*') => parse_macro(word),
        [first, ..] if first.starts_with('@') => Err(CronError::line(
            Reason::UnknownMacro,
            format!("nothing may follow {first:?}"),
            "write a macro alone, and intervals as */n in a field",
        )),
        [first, ..] if first.contains('=') => Err(CronError::line(
            Reason::ZoneInside,
            format!("{first:?} sets a variable"),
            "the zone belongs in `timezone`",
        )),
        [_, _, _, _, _] => parse_fields(&words, false),
        [_, _, _, _, _, _] => parse_fields(&words, true),
        _ => Err(wrong_count(&words)),
    }
}

fn check_characters(text: &str) -> Result<(), CronError> {
    if text.len() > MAX_CRON_BYTES {
        let problem = format!("it has {} bytes, at most {MAX_CRON_BYTES} are read", text.len());
        return Err(CronError::line(
            Reason::TooLong,
            problem,
            "use ranges and steps, or two schedules",
        ));
    }
    if text.trim_ascii().is_empty() {
        return Ok(());
    }
    let odd = text.char_indices().find(|(_, c)| !matches!(c, ' '..='~' | '\t'));
    let Some((at, c)) = odd else { return Ok(()) };
    let hint = match c {
        '\n' | '\r' | '\x0b' | '\x0c' => "a schedule has one line; two lines are two schedules",
        _ if c.is_whitespace() => "separate fields with plain spaces",
        _ => "use plain ASCII",
    };
    Err(CronError::line(Reason::BadCharacter, format!("{c:?} at byte {at}"), hint))
}

fn parse_macro(word: &str) -> Result<Line, CronError> {
    let known = MACROS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    if let Some((_, line)) = known {
        return parse_fields(&line.split(' ').collect::<Vec<_>>(), false);
    }
    let bare = MACROS.iter().find(|(name, _)| name[1..].eq_ignore_ascii_case(word));
    let names = MACROS.map(|(name, _)| name).join(", ");
    let hint = match bare {
        Some((name, _)) => format!("write {name}"),
        None if word.eq_ignore_ascii_case("@reboot") => {
            "publish a task when the machine starts instead".to_owned()
        }
        None if word.starts_with('@') => format!("one of {names}"),
        None => return Err(wrong_count(&[word])),
    };
    Err(CronError::line(Reason::UnknownMacro, format!("{word:?} is no macro"), hint))
}

fn wrong_count(words: &[&str]) -> CronError {
    let torn = words.iter().any(|w| w.starts_with([',', '-', '/']) || w.ends_with([',', '-', '/']));
    let hint = match words.len() {
        _ if torn => "a field has no blanks inside: 1,2 or */2",
        7 => "a year field is not supported",
        _ => "minute hour day-of-month month day-of-week, with seconds in front if wanted",
    };
    let (count, s) = (words.len(), if words.len() == 1 { "" } else { "s" });
    CronError::line(Reason::WrongFieldCount, format!("{count} field{s}, not 5 or 6"), hint)
}

fn parse_fields(words: &[&str], has_seconds: bool) -> Result<Line, CronError> {
    let seconds = if has_seconds { words[0] } else { "0" };
    let rest = &words[usize::from(has_seconds)..];
    let mut values = [Values::default(); 6];
    for (field, word) in Field::ALL.into_iter().zip(std::iter::once(&seconds).chain(rest)) {
        values[field as usize] = parse_field(field, word)?;
    }
    let starred = |at: usize| rest[at].starts_with('*');
    Ok(Line {
        values,
        has_seconds,
        // As Vixie's cron: `*/2` counts as a star, so `*/2 * 1` needs both days.
        either_day: !starred(2) && !starred(4),
        pace: if starred(0) || starred(1) { Pace::Wildcard } else { Pace::Fixed },
    })
}

fn parse_field(field: Field, word: &str) -> Result<Values, CronError> {
    let mut values = Values::default();
    for item in word.split(',') {
        if item.is_empty() {
            let problem = format!("{word:?} has an empty place in its list");
            return Err(CronError::field(
                (field, Reason::BadList),
                problem,
                "remove the extra comma",
            ));
        }
        let (first, last, step) = parse_item(field, item)?;
        (first..=last).step_by(step as usize).for_each(|value| values.insert(value));
    }
    Ok(if field == Field::DayOfWeek { values.with_one_sunday() } else { values })
}

/// Reads `*`, `a`, `a-b`, `*/n` or `a-b/n` as first, last and step.
fn parse_item(field: Field, item: &str) -> Result<(u32, u32, u32), CronError> {
    let (base, step) = match item.split_once('/') {
        Some((base, step)) => (base, Some(parse_step(field, step)?)),
        None => (item, None),
    };
    let (first, last) = if base == "*" {
        // Sunday's second number is left out, so that a step counts seven days.
        (field.min(), if field == Field::DayOfWeek { 6 } else { field.max() })
    } else if let Some((from, to)) = base.split_once('-').filter(|(from, _)| !from.is_empty()) {
        (parse_value(field, from)?, parse_value(field, to)?)
    } else {
        let value = parse_value(field, base)?;
        if let Some(step) = step {
            let problem = format!("{item:?} is a step after a single value");
            let hint = format!("write {value}-{}/{step}", field.max());
            return Err(CronError::field((field, Reason::BadStep), problem, hint));
        }
        (value, value)
    };
    if first > last {
        return Err(reversed(field, base, first, last));
    }
    Ok((first, last, step.unwrap_or(1)))
}

fn reversed(field: Field, range: &str, first: u32, last: u32) -> CronError {
    let hint = match (field, last) {
        (Field::DayOfWeek, 0) => format!("write {first}-7"),
        (Field::DayOfWeek, _) if first == 7 => format!("write 0-{last}"),
        (Field::DayOfWeek, _) => format!("write {first}-6,0-{last} to go round"),
        _ => format!("write {first}-{},{}-{last} to go round", field.max(), field.min()),
    };
    CronError::field(
        (field, Reason::ReversedRange),
        format!("{range:?} ends before it begins"),
        hint,
    )
}

fn parse_step(field: Field, step: &str) -> Result<u32, CronError> {
    let fail = |problem: String, hint: String| {
        Err(CronError::field((field, Reason::BadStep), problem, hint))
    };
    if step.is_empty() || !step.bytes().all(|b| b.is_ascii_digit()) {
        return fail(format!("step {step:?} is no number"), "write */n or a-b/n".to_owned());
    }
    match step.parse::<u32>() {
        Ok(0) => fail("a step of 0 goes nowhere".to_owned(), "leave the step out".to_owned()),
        Ok(step) if step <= field.max() => Ok(step),
        _ => {
            let hint = "a step restarts in each round of its field; give the values as a list";
            fail(format!("step {step} is above {}, the field's end", field.max()), hint.to_owned())
        }
    }
}

fn parse_value(field: Field, text: &str) -> Result<u32, CronError> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let (min, max) = (field.min(), field.max());
        return text.parse().ok().filter(|value| (min..=max).contains(value)).ok_or_else(|| {
            let problem = format!("{text} is out of range");
            CronError::field((field, Reason::OutOfRange), problem, format!("it takes {min}-{max}"))
        });
    }
    if let Some(value) = field.value_of(text) {
        return Ok(value);
    }
    Err(bad_value(field, text))
}

fn bad_value(field: Field, text: &str) -> CronError {
    let upper = text.to_ascii_uppercase();
    let stem = upper.trim_start_matches(|c: char| c.is_ascii_digit());
    let quartz = text.contains(['?', '#']) || matches!(stem, "L" | "W" | "LW" | "C");
    let (reason, hint) = if quartz {
        let hint = if text == "?" { "write *" } else { "L, W, #, ? and C are Quartz's" };
        (Reason::QuartzExtension, hint.to_owned())
    } else if stem == "H" || stem.starts_with("H(") {
        (Reason::JenkinsHash, "H is Jenkins's; write a number".to_owned())
    } else if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric()) {
        (Reason::BadName, name_hint(field, text))
    } else if text.bytes().all(|b| b.is_ascii_alphanumeric() || b"*-/".contains(&b)) {
        (Reason::BadRange, "write *, a number, or a-b".to_owned())
    } else {
        (Reason::BadCharacter, "fields are made of digits, names and * , - /".to_owned())
    };
    CronError::field((field, reason), format!("{text:?} is no value"), hint)
}

fn name_hint(field: Field, text: &str) -> String {
    let short = text.get(..3).filter(|short| field.value_of(short).is_some());
    match (short, field.names().0) {
        (Some(short), _) => format!("write {}", short.to_ascii_lowercase()),
        (None, []) => format!("it takes {}-{}", field.min(), field.max()),
        (None, names) => format!("one of {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests;
