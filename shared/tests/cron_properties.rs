//! The cron rules against a second, slow reading of them and against crate `croner`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use chrono::{DateTime, Datelike, DurationRound, NaiveDateTime, Offset, TimeDelta, Timelike, Utc};
use chrono_tz::Tz;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use shared::domain::cron::Cron;

/// Zones with every kind of change: half an hour, at midnight, a lost day, negative, none.
const ZONES: [&str; 16] = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Europe/London",
    "Europe/Dublin",
    "Australia/Lord_Howe",
    "America/Santiago",
    "America/St_Johns",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Asia/Beirut",
    "Asia/Tehran",
    "Antarctica/Troll",
    "America/Havana",
    "Asia/Kathmandu",
    "Pacific/Chatham",
];

fn list(min: u32, max: u32) -> BoxedStrategy<String> {
    let one = (min..=max).prop_map(|value| value.to_string());
    let range = (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let item = prop_oneof![3 => one, 1 => range.clone(), 1 => (range, 1..=max.min(20)).prop_map(|(r, n)| format!("{r}/{n}"))];
    proptest::collection::vec(item, 1..3).prop_map(|items| items.join(",")).boxed()
}

fn field(min: u32, max: u32) -> BoxedStrategy<String> {
    prop_oneof![
        2 => Just("*".to_owned()),
        1 => (1..=max.min(30)).prop_map(|step| format!("*/{step}")),
        3 => list(min, max),
    ]
    .boxed()
}

/// Valid lines of five and six fields.
fn line() -> impl Strategy<Value = String> {
    let day = prop_oneof![3 => Just("*".to_owned()), 1 => field(1, 31)];
    let month = prop_oneof![3 => Just("*".to_owned()), 1 => field(1, 12)];
    let week = prop_oneof![3 => Just("*".to_owned()), 1 => field(0, 7)];
    let five = (field(0, 59), field(0, 23), day, month, week)
        .prop_map(|(m, h, d, mo, w)| format!("{m} {h} {d} {mo} {w}"));
    let seconds = prop_oneof![4 => Just(String::new()), 1 => field(0, 59).prop_map(|s| s + " ")];
    (seconds, five)
        .prop_map(|(seconds, five)| seconds + &five)
        .prop_filter("it must fire", |line| Cron::parse(line).is_ok())
}

fn at(year: i32, seconds: i64) -> DateTime<Utc> {
    let start: DateTime<Utc> = format!("{year}-01-01T00:00:00Z").parse().expect("a date");
    start + TimeDelta::seconds(seconds)
}

/// The days of 2018-2030 in which the offset of each of [`ZONES`] changes.
static CHANGES: LazyLock<Vec<(Tz, Vec<DateTime<Utc>>)>> = LazyLock::new(|| {
    let day = |n: i64| at(2018, n * 86_400);
    let changes = |tz: Tz| {
        let offset = |n| day(n).with_timezone(&tz).offset().fix();
        (0..12 * 365).filter(|n| offset(*n) != offset(n + 1)).map(day).collect()
    };
    ZONES.map(|name| name.parse().expect("a known zone")).map(|tz| (tz, changes(tz))).into()
});

/// A zone and an instant of 2018-2030, most of them within two days of a clock change there.
fn place() -> impl Strategy<Value = (Tz, DateTime<Utc>)> {
    let parts = (0..ZONES.len(), any::<Index>(), -86_400 * 2..86_400_i64, 0..12 * 365_i64);
    parts.prop_map(|(zone, change, seconds, day)| {
        let (tz, changes) = &CHANGES[zone];
        let near = if changes.is_empty() { at(2018, day * 86_400) } else { *change.get(changes) };
        (*tz, near + TimeDelta::seconds(seconds))
    })
}

/// A second reading of the rules: every instant is asked, nothing is skipped.
struct Slow {
    sets: Vec<BTreeSet<u32>>,
    either: bool,
    wildcard: bool,
}

impl Slow {
    fn new(line: &str) -> Self {
        let mut words: Vec<&str> = line.split(' ').collect();
        if words.len() == 5 {
            words.insert(0, "0");
        }
        let bounds = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
        let mut sets: Vec<BTreeSet<u32>> =
            words.iter().zip(bounds).map(|(word, (min, max))| Self::set(word, min, max)).collect();
        if sets[5].contains(&7) {
            sets[5].insert(0);
        }
        Self {
            sets,
            either: !words[3].starts_with('*') && !words[5].starts_with('*'),
            wildcard: words[1].starts_with('*') || words[2].starts_with('*'),
        }
    }

    fn set(word: &str, min: u32, max: u32) -> BTreeSet<u32> {
        let number = |text: &str| text.parse::<u32>().expect("a number");
        let mut set = BTreeSet::new();
        for item in word.split(',') {
            let (base, step) = item.split_once('/').unwrap_or((item, "1"));
            let (first, last) = match base.split_once('-') {
                _ if base == "*" => (min, max),
                Some((a, b)) => (number(a), number(b)),
                None => (number(base), number(base)),
            };
            set.extend((first..=last).filter(|v| (v - first) % number(step) == 0));
        }
        set
    }

    fn shows(&self, time: NaiveDateTime) -> bool {
        let day = self.sets[3].contains(&time.day());
        let week = self.sets[5].contains(&time.weekday().num_days_from_sunday());
        self.sets[0].contains(&time.second())
            && self.sets[1].contains(&time.minute())
            && self.sets[2].contains(&time.hour())
            && self.sets[4].contains(&time.month())
            && if self.either { day || week } else { day && week }
    }

    /// Instants in `(after, until]`, found by walking the clock step by step.
    fn instants(&self, after: DateTime<Utc>, until: DateTime<Utc>, tz: Tz) -> Vec<DateTime<Utc>> {
        let shown = |at: DateTime<Utc>| at.with_timezone(&tz).naive_local();
        // Without seconds, whole minutes are enough: offsets have had no seconds since 1972.
        let step = TimeDelta::seconds(if self.sets[0].len() == 1 && self.sets[0].contains(&0) {
            60
        } else {
            1
        });
        // Some hours before, so that what the clocks have shown already is known.
        let mut now = after.duration_trunc(step).expect("a near date") - TimeDelta::hours(4);
        let mut highest = shown(now);
        let mut found = Vec::new();
        while now < until {
            now += step;
            let time = shown(now);
            let mut fires = self.wildcard && self.shows(time);
            while highest < time {
                highest += step;
                fires |= !self.wildcard && self.shows(highest);
            }
            if fires && now > after && now <= until {
                found.push(now);
            }
        }
        found
    }
}

/// Failures print their minimal input; no file of seeds is kept beside the sources.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn instants_and_counts_agree_with_a_walk_step_by_step(
        line in line(), (tz, from) in place(), (wanted, before, after) in (1..9_usize, 0..999_i64, 0..999_i64)
    ) {
        let cron = Cron::parse(&line).expect("valid");
        let until = from + TimeDelta::hours(6);
        let expected = Slow::new(&line).instants(from, until, tz);

        let mut seen = Vec::new();
        let mut now = from;
        while let Some(next) = cron.next_after(now, tz).filter(|next| *next <= until) {
            seen.push(next);
            now = next;
        }

        prop_assert_eq!(cron.count(from, until, tz), expected.len() as u64, "{} {}", line, tz);
        prop_assert_eq!(&seen, &expected, "{} {}", line, tz);
        // The ends of a stretch lie between seconds as well.
        let fraction = TimeDelta::milliseconds;
        let newest = cron.newest(from + fraction(before), until + fraction(after), wanted, tz);
        prop_assert_eq!(&newest[..], &expected[expected.len().saturating_sub(wanted)..]);
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn time_only_goes_forward_and_the_count_is_what_was_visited(
        line in line(), (tz, from) in place()
    ) {
        let cron = Cron::parse(&line).expect("valid");
        let mut now = from;
        let mut visited = 0;
        for _ in 0..40 {
            let Some(next) = cron.next_after(now, tz) else { break };
            prop_assert!(next > now, "{} {} {}: {}", line, tz, now, next);
            visited += 1;
            now = next;
        }
        prop_assert_eq!(cron.count(from, now, tz), visited, "{} {} {} to {}", line, tz, from, now);
    }

    /// Classes in which crate `croner` follows other rules are left out: stepped stars and names in
    /// the day fields, and lists or ranges in a line without a star in minute or hour.
    #[test]
    fn croner_agrees_where_its_rules_are_ours(
        line in croner_line(), (tz, from) in place()
    ) {
        let ours = Cron::parse(&line).expect("valid");
        let theirs: croner::Cron = line.parse().expect("valid for croner");
        let mut now = from;
        for _ in 0..5 {
            let Some(next) = ours.next_after(now, tz) else { break };
            let expected = theirs.find_next_occurrence(&now.with_timezone(&tz), false);
            prop_assert_eq!(expected.map(|at| at.to_utc()).ok(), Some(next), "{} {} {}", line, tz, now);
            now = next;
        }
    }
}

fn croner_line() -> impl Strategy<Value = String> {
    let fixed = (0..60_u32, 0..24_u32).prop_map(|(m, h)| format!("{m} {h}"));
    let starred = prop_oneof![
        field(0, 23).prop_map(|hour| format!("*/7 {hour}")),
        field(0, 59).prop_map(|minute| format!("{minute} *")),
    ];
    let day = prop_oneof![Just("*".to_owned()), list(1, 31)];
    let week = prop_oneof![Just("*".to_owned()), list(0, 6)];
    (prop_oneof![fixed, starred], day, field(1, 12), week)
        .prop_map(|(time, day, month, week)| format!("{time} {day} {month} {week}"))
        .prop_filter("it must fire", |line| Cron::parse(line).is_ok())
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn fifty_years_in_any_zone_never_repeat_go_back_or_hang(
        tz in select(&chrono_tz::TZ_VARIANTS[..]),
        line in select(&["0 0 1,15 * *", "30 2 * 3,4,10 sun", "*/30 1-2 * 3,10,11 sun"][..]),
    ) {
        let cron = Cron::parse(line).expect("valid");
        let (mut now, mut visited) = (at(1975, 0), 0);
        while now < at(2025, 0) {
            let next = cron.next_after(now, tz).expect("a next instant");
            prop_assert!(next > now, "{} {} {}: {}", cron, tz, now, next);
            // From a Sunday before the change of clocks, which takes the last of March away where it is
            // two hours (Antarctica/Troll), to the first of October.
            prop_assert!(next - now < TimeDelta::days(210), "{} {} {}: {}", cron, tz, now, next);
            now = next;
            visited += 1;
        }
        prop_assert!(visited > 600, "{} {}: {}", cron, tz, visited);
        prop_assert_eq!(cron.count(at(1975, 0), now, tz), visited, "{} {}", cron, tz);
    }
}

#[test]
fn a_hundred_thousand_steps_are_quick() {
    let cron = Cron::parse("*/7 * * * * *").expect("valid");
    let tz = chrono_tz::America::New_York;
    let begun = std::time::Instant::now();

    let mut now = at(2025, 0);
    for _ in 0..100_000 {
        now = cron.next_after(now, tz).expect("a next instant");
    }

    assert_eq!(cron.count(at(2025, 0), now, tz), 100_000);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn the_ends_of_the_calendar_have_answers() {
    let cron = Cron::parse("0 0 29 2 *").expect("valid");

    for zone in ZONES {
        let tz: Tz = zone.parse().expect("a zone");
        assert_eq!(cron.next_after(DateTime::<Utc>::MAX_UTC, tz), None);
        assert_eq!(cron.next_after(at(2097, 0), tz), None);
        let first = cron.next_after(DateTime::<Utc>::MIN_UTC, tz).expect("the first leap day");
        assert_eq!(first.year(), 1972, "{tz}");
        assert_eq!(cron.count(DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC, tz), 32);
    }
}
