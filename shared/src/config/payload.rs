//! A node as JSON: payloads of schedules and parameters of queries.
//!
//! Numbers arrive as written or not at all: what a JSON number of this house would round is a
//! problem that asks for quotes. A text with a variable stays a text.

use serde_json::{Map, Number, Value};

use super::problems::suggestion;
use super::reader::Place;
use super::yaml::Kind;
use crate::domain::template;

/// Converts; problems are reported at the value, which then becomes null.
pub(super) fn json(place: &Place<'_>) -> Value {
    match &place.node.kind {
        Kind::List(_) => place.items().iter().map(json).collect(),
        Kind::Map(_) => {
            let entries = place.entries().into_iter();
            Value::Object(
                entries
                    .map(|(key, value)| (key_of(&value, key), json(&value)))
                    .collect::<Map<_, _>>(),
            )
        }
        Kind::Scalar { plain: true, .. } if place.node.is_null() => Value::Null,
        Kind::Scalar { text, plain } => match place.lenient_text() {
            Some(expanded) if *plain && !expanded.from_variable => plain_value(text)
                .unwrap_or_else(|what| {
                    place.problem(what);
                    Value::Null
                }),
            Some(expanded) => Value::String(expanded.text),
            None => Value::Null,
        },
    }
}

fn key_of(place: &Place<'_>, key: &str) -> String {
    if key.contains('\0') {
        place.problem("the key holds a NUL character, which Postgres cannot keep");
    }
    key.to_owned()
}

/// A payload's texts: templates must be right, and `secret:NAME` must name one of `secrets`.
pub(super) fn check_texts(place: &Place<'_>, secrets: &[&str]) {
    match &place.node.kind {
        Kind::List(_) => place.items().iter().for_each(|item| check_texts(item, secrets)),
        Kind::Map(_) => place.entries().iter().for_each(|(_, item)| check_texts(item, secrets)),
        Kind::Scalar { text, .. } => {
            check_secret(place, secrets);
            if text.contains("{{")
                && let Err(error) = template::check_payload(&Value::from(text.as_str()))
            {
                place.problem(format!("{error} (for plain braces write {{{{ '{{{{' }}}})"));
            }
        }
    }
}

/// A text `secret:NAME` must name one of `secrets`.
pub(super) fn check_secret(place: &Place<'_>, secrets: &[&str]) {
    if let Kind::Scalar { text, .. } = &place.node.kind
        && let Some(name) = text.strip_prefix("secret:")
        && !secrets.contains(&name)
    {
        let hint = suggestion(name, secrets.iter().copied());
        place.problem(format!("`secrets` has no {name:?}{hint}"));
    }
}

/// A plain scalar by YAML's core schema.
pub(super) fn plain_value(text: &str) -> Result<Value, String> {
    match text {
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        ".nan" | ".NaN" | ".NAN" => return Err("JSON has no NaN; put it in quotes".to_owned()),
        _ if [".inf", ".Inf", ".INF"].contains(&text.trim_start_matches(['-', '+'])) => {
            return Err("JSON has no infinity; put it in quotes".to_owned());
        }
        _ => {}
    }
    let based = |prefix: &str, base| Some(u64::from_str_radix(text.strip_prefix(prefix)?, base));
    if let Some(Ok(number)) = based("0x", 16).or_else(|| based("0o", 8)) {
        return Ok(number.into());
    }
    let unsigned = text.trim_start_matches(['-', '+']);
    if text.len() - unsigned.len() > 1 || !looks_like_number(unsigned) {
        return Ok(Value::String(text.to_owned()));
    }
    if unsigned.len() > 1 && unsigned.starts_with('0') && unsigned.as_bytes()[1].is_ascii_digit() {
        return Err(format!(
            "{text} begins with 0: put it in quotes if it is a text, else drop the 0"
        ));
    }
    number(text).map(Value::Number)
}

/// Digits with at most one dot and one exponent, as the core schema has it.
fn looks_like_number(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let whole_is = whole.is_empty() || digits(whole);
    let fraction_is = fraction.is_empty() || digits(fraction);
    let exponent_is = exponent.is_none_or(|e| digits(e.strip_prefix(['-', '+']).unwrap_or(e)));
    whole_is && fraction_is && exponent_is && mantissa.bytes().any(|b| b.is_ascii_digit())
}

/// Refuses a number that a JSON number of this house would round.
pub fn exact_number(text: &str) -> Result<(), String> {
    number(text).map(drop)
}

fn number(text: &str) -> Result<Number, String> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if let Ok(number) = text.parse::<i64>() {
        return Ok(number.into());
    }
    if let Ok(number) = text.parse::<u64>() {
        return Ok(number.into());
    }
    let read = text.parse::<f64>().ok();
    if read.is_some_and(f64::is_infinite) {
        return Err(format!("{text} is larger than a JSON number can be; put it in quotes"));
    }
    let exact = read.and_then(Number::from_f64);
    exact
        .filter(|number| digits_of(&number.to_string()) == digits_of(text))
        .ok_or_else(|| format!("{text} has more digits than a JSON number keeps; put it in quotes"))
}

/// A decimal number as its significant digits and the power of ten of the last one.
fn digits_of(text: &str) -> (String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: String =
        whole.chars().chain(fraction.chars()).filter(char::is_ascii_digit).collect();
    let significant = digits.trim_end_matches('0');
    let dropped = digits.len() - significant.len();
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return (String::new(), 0);
    }
    let exponent: i64 = exponent.trim_start_matches('+').parse().unwrap_or(i64::from(i32::MAX));
    (significant.to_owned(), exponent - fraction.len() as i64 + dropped as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let read = plain_value(text).map_or_else(|what| format!("! {what}"), |v| v.to_string());
        assert!(read.starts_with(expected), "{text}: {read}");
    }

    #[test]
    fn numbers_arrive_as_written_or_not_at_all() {
        check("7", "7");
        check("-7", "-7");
        check("+7", "7");
        check("9223372036854775808", "9223372036854775808");
        check("18446744073709551615", "18446744073709551615");
        check("18446744073709551616", "! 18446744073709551616 has more digits");
        check("123456789012345678901", "! 123456789012345678901 has more digits");
        check("0.1", "0.1");
        check("1.50", "1.5");
        check(".5", "0.5");
        check("1e3", "1000.0");
        check("1e400", "! 1e400 is larger than a JSON number can be");
        check("0.1234567890123456789", "! 0.1234567890123456789 has more digits");
        check("0x1F", "31");
        check("00123", "! 00123 begins with 0");
        check(".inf", "! JSON has no infinity");
    }

    #[test]
    fn what_is_no_number_is_a_text() {
        for text in ["2026-08-14", "12:30", "1.2.3", "1_000", "--1", "e3", ".", "-", "yes", "0b1"] {
            check(text, &format!("{text:?}"));
        }
        check("true", "true");
    }
}
