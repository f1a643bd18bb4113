//! How long a provider asks to wait, in any of its dialects.

use std::time::Duration;

use crate::http::HeaderMap;
use chrono::{DateTime, Utc};

/// A longer wish is a slip of the other side, and however long it is, it means "not soon".
pub const LONGEST_HINT: Duration = Duration::from_hours(7 * 24);

/// What headers ask: `retry-after-ms`, `retry-after`, else the reset of the exhausted dimension.
pub fn wait_hint(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    // The other side's clock, where it tells it: its dates are by that one.
    let now = text("date").and_then(http_date).unwrap_or(now);
    let millis = text("retry-after-ms").and_then(|ms| seconds(ms.parse::<f64>().ok()? / 1000.0));
    let hint = millis
        .or_else(|| text("retry-after").and_then(|text| wait(text, now)))
        .or_else(|| resets(headers, now).max());
    // "Now", or a moment that is past, is no hint: the house's own pause serves better.
    hint.filter(|hint| !hint.is_zero()).map(|hint| hint.min(LONGEST_HINT))
}

/// `x-ratelimit-reset[-requests|-tokens…]` and Anthropic's, unless their `remaining` says there is
/// something left: a reset of what is not exhausted is the time to a full refill, no hint.
fn resets(headers: &HeaderMap, now: DateTime<Utc>) -> impl Iterator<Item = Duration> {
    headers.iter().filter_map(move |(name, value)| {
        let name = name.as_str();
        if !name.contains("ratelimit") || !name.contains("reset") {
            return None;
        }
        let left = headers.get(name.replace("reset", "remaining")).and_then(|v| v.to_str().ok());
        if left.and_then(|left| left.trim().parse::<f64>().ok()).is_some_and(|left| left > 0.0) {
            return None;
        }
        wait(value.to_str().ok()?.trim(), now)
    })
}

/// Seconds, an epoch, a Go duration (`6m0s`), an HTTP date or RFC 3339.
fn wait(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    const EPOCH_SECONDS: f64 = 1e9;
    const EPOCH_MILLIS: f64 = 1e12;
    let until = |at: DateTime<Utc>| Some((at - now).to_std().unwrap_or_default());
    // Beyond the end of the calendar is far away, and no reason to ask again at once.
    let epoch = |at: Option<DateTime<Utc>>| at.map_or(Some(LONGEST_HINT), until);
    if let Ok(number) = text.parse::<f64>() {
        return match number {
            n if n.is_infinite() && text.starts_with(|c: char| c.is_ascii_digit()) => {
                Some(LONGEST_HINT)
            }
            n if n.is_infinite() => None,
            n if n >= EPOCH_MILLIS => epoch(DateTime::from_timestamp_millis(n as i64)),
            n if n >= EPOCH_SECONDS => epoch(DateTime::from_timestamp(n as i64, 0)),
            n => seconds(n),
        };
    }
    go_duration(text)
        .or_else(|| until(http_date(text)?))
        .or_else(|| until(DateTime::parse_from_rfc3339(text).ok()?.with_timezone(&Utc)))
}

/// What no duration can hold is as long as any hint.
fn seconds(number: f64) -> Option<Duration> {
    match number {
        n if n.is_finite() && n >= LONGEST_HINT.as_secs_f64() => Some(LONGEST_HINT),
        n => Duration::try_from_secs_f64(n).ok(),
    }
}

fn http_date(text: &str) -> Option<DateTime<Utc>> {
    Some(DateTime::parse_from_rfc2822(text).ok()?.with_timezone(&Utc))
}

/// `1h2m3.5s`, `12ms`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let tail = &rest[end..];
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        total += number
            * match &tail[..unit_end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &tail[unit_end..];
    }
    if text.is_empty() { None } else { seconds(total) }
}

#[cfg(test)]
mod tests {
    use crate::http::{HeaderName, HeaderValue};

    use super::*;

    #[track_caller]
    fn check(headers: &[(&str, &str)], expected_ms: Option<u64>) {
        let now = DateTime::parse_from_rfc3339("2026-05-01T12:00:00Z").expect("a time").to_utc();
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
                (name, HeaderValue::from_str(value).expect("a value"))
            })
            .collect();
        let seen = wait_hint(&map, now).map(|hint| hint.as_millis() as u64);
        assert_eq!(seen, expected_ms, "{headers:?}");
    }

    #[test]
    fn every_dialect_of_waiting_is_understood() {
        check(&[("retry-after", "3")], Some(3000));
        check(&[("retry-after", "0.5")], Some(500));
        check(&[("retry-after-ms", "1500"), ("retry-after", "60")], Some(1500));
        check(&[("retry-after", "Fri, 01 May 2026 12:00:07 GMT")], Some(7000));
        check(&[("retry-after", "Fri, 01 May 2026 11:00:00 GMT")], None);
        check(&[("retry-after", "0")], None);
        check(&[("retry-after", "999999999")], Some(7 * 86_400_000));
        for longest in ["31536000", "99999999999999999999", &"9".repeat(400)] {
            check(&[("retry-after", longest)], Some(7 * 86_400_000));
        }
        check(&[("retry-after-ms", "99999999999999999999")], Some(7 * 86_400_000));
        check(&[("retry-after", "99999999999999999999h")], Some(7 * 86_400_000));
        check(&[("x-ratelimit-reset-tokens", "6m0s")], Some(360_000));
        check(&[("x-ratelimit-reset-tokens", "12ms")], Some(12));
        check(&[("x-ratelimit-reset-requests", "1s")], Some(1000));
        check(&[("x-ratelimit-reset", "1777636810")], Some(10_000));
        check(&[("x-ratelimit-reset", "1777636810000")], Some(10_000));
        check(&[("anthropic-ratelimit-tokens-reset", "2026-05-01T12:01:00Z")], Some(60_000));
    }

    #[test]
    fn a_reset_of_what_is_not_exhausted_is_no_hint() {
        let tokens = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "2s")];
        let requests =
            [("x-ratelimit-remaining-requests", "9"), ("x-ratelimit-reset-requests", "1h")];
        check(&[tokens, requests].concat(), Some(2000));
        check(&requests, None);
    }

    #[test]
    fn the_other_sides_clock_counts_where_it_is_told() {
        let date = ("date", "Fri, 01 May 2026 12:59:50 GMT");
        check(&[date, ("retry-after", "Fri, 01 May 2026 13:00:00 GMT")], Some(10_000));
    }

    #[test]
    fn garbage_is_no_hint() {
        for garbage in ["", "soon", "-1", "NaN", "inf", "1y", "5 m", "m5"] {
            check(&[("retry-after", garbage)], None);
        }
        check(&[], None);
    }
}
