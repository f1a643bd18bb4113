//! The cron rules against vectors of two independent oracles, and against texts to be refused.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Deserialize;
use shared::domain::cron::{Cron, parse_zone};

const VECTORS: &str = include_str!("data/cron_vectors.jsonl");
const INVALID: &str = include_str!("data/cron_invalid.jsonl");

#[derive(Deserialize)]
struct Vector {
    id: String,
    expr: String,
    tz: String,
    start: DateTime<Utc>,
    next: Vec<DateTime<Utc>>,
}

#[derive(Deserialize)]
struct Invalid {
    id: String,
    expr: String,
    tz: String,
}

fn read<T: for<'a> Deserialize<'a>>(lines: &str) -> Vec<T> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a line of the vectors")).collect()
}

#[test]
fn every_vector_gives_its_instants() {
    let vectors: Vec<Vector> = read(VECTORS);
    let mut wrong = Vec::new();

    for vector in &vectors {
        let cron = Cron::parse(&vector.expr).expect(&vector.id);
        let tz: Tz = vector.tz.parse().expect(&vector.id);
        let mut at = vector.start;
        for expected in &vector.next {
            let seen = cron.next_after(at, tz);
            if seen != Some(*expected) {
                wrong.push(format!("{} {} {tz}: {seen:?} ≠ {expected}", vector.id, vector.expr));
                break;
            }
            at = *expected;
        }
    }

    assert_eq!(vectors.len(), 600);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_instant_of_a_vector_is_found_from_anywhere_before_it() {
    let vectors: Vec<Vector> = read(VECTORS);
    let mut steps = 0;

    for vector in &vectors {
        let cron = Cron::parse(&vector.expr).expect(&vector.id);
        let tz: Tz = vector.tz.parse().expect(&vector.id);
        for pair in vector.next.windows(2) {
            let halfway = pair[0] + (pair[1] - pair[0]) / 2;
            assert_eq!(cron.next_after(halfway, tz), Some(pair[1]), "{} {halfway}", vector.id);
            let just_before = pair[1] - chrono::TimeDelta::nanoseconds(1);
            assert_eq!(cron.next_after(just_before, tz), Some(pair[1]), "{}", vector.id);
            steps += 1;
        }
    }

    assert!(steps > 2000, "{steps}");
}

#[test]
fn every_invalid_line_is_refused_with_a_reason() {
    let invalid: Vec<Invalid> = read(INVALID);
    let mut zones = 0;

    for case in &invalid {
        if let Err(error) = Cron::parse(&case.expr) {
            assert!(!error.problem.is_empty() && !error.hint.is_empty(), "{error}");
        } else {
            assert!(parse_zone(&case.tz).is_err(), "{} accepts {:?}", case.id, case.expr);
            zones += 1;
        }
    }

    assert_eq!((invalid.len(), zones), (88, 4));
}
