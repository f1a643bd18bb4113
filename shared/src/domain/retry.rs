//! When a failed task runs again: base · 2ⁿ, capped, plus up to 10 % — never less.
//!
//! Postgres adds the delay to its own clock; nothing here knows what time it is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Retries after the first failure, unless the task says otherwise.
pub const DEFAULT_MAX_RETRY: u32 = 3;
/// Delay before the first retry.
pub const DEFAULT_BACKOFF_BASE: Duration = Duration::from_secs(60);
/// Longest delay between two attempts.
pub const DEFAULT_BACKOFF_MAX: Duration = Duration::from_secs(3600);
/// Most that jitter adds, in per cent of the delay. Positive only: a hint to wait is a promise.
pub const JITTER_PERCENT: u32 = 10;

/// How often and how late a failed task is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Retries after the first failure; 3 means four attempts in all.
    pub max_retry: u32,
    /// Delay after the first failure; doubles with each.
    pub base: Duration,
    /// Upper bound of the delay before jitter.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_retry: DEFAULT_MAX_RETRY, base: DEFAULT_BACKOFF_BASE, max: DEFAULT_BACKOFF_MAX }
    }
}

impl RetryPolicy {
    /// Delay after the failure that makes `failures` in all, or `None` when no retry is left.
    ///
    /// `jitter` is a number in `0.0..=1.0` from the caller's random source.
    pub fn delay_after(&self, failures: u32, jitter: f64) -> Option<Duration> {
        if failures > self.max_retry {
            return None;
        }
        let doublings = failures.saturating_sub(1).min(31);
        let delay = self.base.saturating_mul(1_u32 << doublings).min(self.max);
        let extra = delay.mul_f64(jitter.clamp(0.0, 1.0) * f64::from(JITTER_PERCENT) / 100.0);
        Some(delay + extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(failures: u32, jitter: f64, expected: Option<u64>) {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay_after(failures, jitter).map(|d| d.as_secs()), expected);
    }

    #[test]
    fn three_retries_after_60_120_240_seconds() {
        check(1, 0.0, Some(60));
        check(2, 0.0, Some(120));
        check(3, 0.0, Some(240));
        check(4, 0.0, None);
        check(1, 1.0, Some(66));
    }

    #[test]
    fn many_failures_stay_under_the_cap_and_never_overflow() {
        let policy = RetryPolicy { max_retry: u32::MAX, ..RetryPolicy::default() };
        assert_eq!(policy.delay_after(4_000_000_000, 0.0), Some(DEFAULT_BACKOFF_MAX));
    }
}
