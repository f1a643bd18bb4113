//! The ladder of delay queues: which rung carries how much of a delay.
//!
//! One hop per rung, each rung a queue with its own TTL; a per-message TTL would block behind the
//! head of its queue, and a binary chain hops many times (and RabbitMQ 3.10 drops its cycles).

use std::time::Duration;

/// A delay queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rung {
    /// Name as seen in the UI: `belfry.retry.<label>`.
    pub label: &'static str,
    /// Time a message waits there.
    pub ttl: Duration,
}

const fn rung(label: &'static str, seconds: u64) -> Rung {
    Rung { label, ttl: Duration::from_secs(seconds) }
}

/// All rungs, shortest first.
pub const LADDER: [Rung; 13] = [
    rung("1s", 1),
    rung("2s", 2),
    rung("5s", 5),
    rung("10s", 10),
    rung("20s", 20),
    rung("30s", 30),
    rung("1m", 60),
    rung("2m", 120),
    rung("4m", 240),
    rung("8m", 480),
    rung("16m", 960),
    rung("32m", 1920),
    rung("1h", 3600),
];

/// Longest delay that the broker carries; longer ones are `scheduled` in Postgres.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// What a rung may exceed the remaining delay by: the largest lateness of one hop.
pub const SLACK: Duration = Duration::from_secs(1);

/// The rung for what remains of a delay, or `None` when it is due.
///
/// The largest one not above `remaining + 1 s`: never early, at most about a second late, and a
/// jittered delay takes one or two more hops rather than a rung that is far too long.
pub fn rung_for(remaining: Duration) -> Option<Rung> {
    if remaining.is_zero() {
        return None;
    }
    LADDER.into_iter().rev().find(|rung| rung.ttl <= remaining + SLACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(millis: u64, expected: Option<&str>) {
        assert_eq!(rung_for(Duration::from_millis(millis)).map(|r| r.label), expected);
    }

    #[test]
    fn a_delay_takes_the_largest_rung_that_is_at_most_a_second_too_long() {
        check(0, None);
        check(1, Some("1s"));
        check(999, Some("1s"));
        check(1000, Some("2s"));
        check(4000, Some("5s"));
        check(3999, Some("2s"));
        check(59_000, Some("1m"));
        check(60_000, Some("1m"));
        check(66_000, Some("1m"));
        check(3_600_000, Some("1h"));
    }
}
