//! The one module that names `backoff`: the pace of reconnect loops.
//!
//! `backoff` is unmaintained (RUSTSEC-2025-0012) and pulls `instant` (RUSTSEC-2024-0384); both are
//! written exceptions in `deny.toml`. Behind this door a change of crate is a change of one file.
//! A task's own delays are `domain::retry`, never this.

use std::time::Duration;

use backoff::backoff::Backoff as _;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};

/// First pause after a lost connection.
pub const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause: a service that is back is used again within this.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Growing, jittered pauses without an end; reset after a success.
#[derive(Debug)]
pub struct Pauses(ExponentialBackoff);

impl Pauses {
    /// The house's pace: 0.1 s doubling to 5 s, ±30 % so that a fleet does not return in step.
    pub fn new() -> Self {
        Self(
            ExponentialBackoffBuilder::new()
                .with_initial_interval(FIRST_PAUSE)
                .with_multiplier(2.0)
                .with_randomization_factor(0.3)
                .with_max_interval(LONGEST_PAUSE)
                .with_max_elapsed_time(None)
                .build(),
        )
    }

    /// The next pause.
    pub fn next_pause(&mut self) -> Duration {
        self.0.next_backoff().unwrap_or(LONGEST_PAUSE)
    }

    /// Begins again from the first pause.
    pub fn reset(&mut self) {
        self.0.reset();
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_again() {
        let mut pauses = Pauses::new();
        let longest = (0..20).map(|_| pauses.next_pause()).max().expect("some");
        assert!(longest > Duration::from_secs(3) && longest <= LONGEST_PAUSE.mul_f64(1.3));
        pauses.reset();
        assert!(pauses.next_pause() <= FIRST_PAUSE.mul_f64(1.3));
    }
}
