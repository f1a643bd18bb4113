//! Durations as people write them: `30` (seconds), `1.5`, `500ms`, `30s`, `10m`, `1h`, `30d`.

use std::time::Duration;

/// Longest duration that is accepted: ten years. What is longer is a slip, and would overflow later.
pub const LONGEST: Duration = Duration::from_hours(3650 * 24);

/// Units, in nanoseconds. `ms` stands before `m` and `s`, since the longest suffix must win.
const UNITS: [(&str, u128); 5] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Reads a duration. A bare number is seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let (number, unit) = UNITS
        .into_iter()
        .find_map(|(suffix, nanos)| Some((text.strip_suffix(suffix)?.trim_end(), nanos)))
        .unwrap_or((text, 1_000_000_000));
    let nanos =
        scaled(number, unit).ok_or("expected seconds (30, 1.5) or 500ms, 30s, 10m, 1h, 30d")?;
    let duration = u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos);
    if duration > LONGEST {
        return Err("longer than ten years".to_owned());
    }
    Ok(duration)
}

/// `number · unit` in nanoseconds, in integers: a float would turn 0.1 s into 100000001 ns.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || number.ends_with('.') {
        return None;
    }
    if whole.len() > 20 || fraction.len() > 9 {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let power = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    Some(whole * unit + part * unit / power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        let millis = parse(text).ok().map(|d| u64::try_from(d.as_millis()).expect("short"));
        assert_eq!(millis, expected, "{text}");
    }

    #[test]
    fn durations_are_seconds_or_carry_a_unit() {
        check("30", Some(30_000));
        check("1.5", Some(1500));
        check("0", Some(0));
        check("500ms", Some(500));
        check("30s", Some(30_000));
        check("10m", Some(600_000));
        check("1h", Some(3_600_000));
        check("30d", Some(2_592_000_000));
        check("0.5h", Some(1_800_000));
        check("10 m", Some(600_000));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "s",
            "-1",
            "1.",
            ".5",
            "1w",
            "1h30m",
            "1e3",
            "ten",
            "3651d",
            "99999999999999999999999",
        ] {
            check(text, None);
        }
    }
}
