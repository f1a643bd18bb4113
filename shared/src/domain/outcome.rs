//! How an attempt ended, and what becomes of the task: the whole policy, pure.
//!
//! It never writes anything; `store::record` turns an outcome into one statement.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::retry::RetryPolicy;
use super::task::Semantics;

/// Longest error message that is kept, in bytes.
pub const MAX_ERROR_BYTES: usize = 4096;

/// Least pause after "not now": a snooze costs no failure, so nothing else bounds how often it asks.
pub const LEAST_THROTTLE: Duration = Duration::from_secs(1);

/// Longest delay of a retry or a snooze: beyond it lies a slip, and the end of the calendar.
pub const LONGEST_DELAY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Why an attempt did not complete. Stored and shown by its lower-case name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Worth another attempt: 5xx, a lost connection, a panic.
    Retryable,
    /// The same input will fail again: 4xx, a refused key.
    Permanent,
    /// Asked to wait: a 429, a quota. Costs no failure.
    Throttled,
    /// The attempt took longer than its timeout.
    Timeout,
    /// The worker vanished, or stopped answering for the task.
    Crashed,
    /// The worker was told to stop. Costs no failure.
    Interrupted,
    /// A call went out and no answer came back; it may have had its effect.
    UnknownOutcome,
    /// The payload does not fit the task type.
    Invalid,
    /// A model's answer was cut where the whole was needed.
    AnswerTruncated,
    /// A model's answer had not a word in it.
    AnswerEmpty,
    /// A model, or a provider's filter, would not answer.
    AnswerRefused,
    /// A model's answer is not what was asked for: no JSON, not by its schema, no such tool.
    AnswerInvalid,
}

impl ErrorClass {
    /// Every class.
    pub const ALL: [Self; 12] = [
        Self::Retryable,
        Self::Permanent,
        Self::Throttled,
        Self::Timeout,
        Self::Crashed,
        Self::Interrupted,
        Self::UnknownOutcome,
        Self::Invalid,
        Self::AnswerTruncated,
        Self::AnswerEmpty,
        Self::AnswerRefused,
        Self::AnswerInvalid,
    ];

    /// The name in the database, in headers and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retryable => "retryable",
            Self::Permanent => "permanent",
            Self::Throttled => "throttled",
            Self::Timeout => "timeout",
            Self::Crashed => "crashed",
            Self::Interrupted => "interrupted",
            Self::UnknownOutcome => "unknown_outcome",
            Self::Invalid => "invalid",
            Self::AnswerTruncated => "answer_truncated",
            Self::AnswerEmpty => "answer_empty",
            Self::AnswerRefused => "answer_refused",
            Self::AnswerInvalid => "answer_invalid",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ErrorClass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|class| class.as_str() == text);
        found.ok_or_else(|| format!("unknown error class {text:?}"))
    }
}

/// A failure as it is kept: class and message, no secrets, cut to [`MAX_ERROR_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind.
    pub class: ErrorClass,
    /// For a person: what happened and, where known, what to do.
    pub message: String,
}

impl Failure {
    /// Takes a message, without NUL (Postgres refuses it) and cut at a character.
    pub fn new(class: ErrorClass, message: impl fmt::Display) -> Self {
        let mut message = message.to_string().replace('\0', "\u{fffd}");
        if message.len() > MAX_ERROR_BYTES {
            let cut = (0..=MAX_ERROR_BYTES).rev().find(|&at| message.is_char_boundary(at));
            message.truncate(cut.unwrap_or(0));
            message.push('…');
        }
        Self { class, message }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

/// The only thing a handler may fail with. Classification lives in `From` impls, once per source,
/// so that handlers write `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskError {
    /// Try again by the retry policy; `after` is the least delay that the other side asked for.
    Retry {
        /// What happened.
        failure: Failure,
        /// A hint such as `Retry-After`; the delay is never shorter.
        after: Option<Duration>,
    },
    /// Give up at once.
    Permanent(Failure),
    /// Not now: run again after the delay; no failure is counted.
    Snooze {
        /// How long to wait, by the database's clock.
        delay: Duration,
        /// Why, for the attempt's row.
        failure: Failure,
    },
    /// Stopped by itself between two steps, with everything kept: goes on in the task's next message,
    /// at once, on any worker. Neither a failure nor an interruption.
    HandOver(Failure),
    /// The task was cancelled while it ran.
    Cancelled,
}

impl TaskError {
    /// A long task's pause between two steps.
    pub fn hand_over(message: impl fmt::Display) -> Self {
        Self::HandOver(Failure::new(ErrorClass::Interrupted, message))
    }

    /// A failure worth another attempt.
    pub fn retry(message: impl fmt::Display) -> Self {
        Self::Retry { failure: Failure::new(ErrorClass::Retryable, message), after: None }
    }

    /// A failure that no retry mends.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self::Permanent(Failure::new(ErrorClass::Permanent, message))
    }

    /// A payload that does not fit.
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::Permanent(Failure::new(ErrorClass::Invalid, message))
    }

    /// Asked to wait.
    pub fn snooze(delay: Duration, message: impl fmt::Display) -> Self {
        Self::Snooze { delay, failure: Failure::new(ErrorClass::Throttled, message) }
    }
}

impl TaskError {
    /// Its class, for rows, spans and metrics.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Retry { failure, .. }
            | Self::Permanent(failure)
            | Self::HandOver(failure)
            | Self::Snooze { failure, .. } => failure.class,
            Self::Cancelled => ErrorClass::Interrupted,
        }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { failure, .. } | Self::Permanent(failure) => failure.fmt(f),
            Self::Snooze { delay, failure } => write!(f, "snoozed for {delay:?}: {failure}"),
            Self::HandOver(failure) => f.write_str(&failure.message),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for TaskError {}

/// What becomes of the task. Each variant carries exactly what the new state needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Finished.
    Completed {
        /// The handler's answer.
        result: Value,
    },
    /// Failed, and due again after the delay.
    Retry {
        /// From the database's present.
        delay: Duration,
        /// Why.
        failure: Failure,
    },
    /// Not failed, and due again after the delay.
    Snooze {
        /// From the database's present.
        delay: Duration,
        /// Why.
        failure: Failure,
    },
    /// Given up: a dead letter.
    Dead {
        /// Why.
        failure: Failure,
    },
    /// Ended because somebody asked for it.
    Cancelled,
}

impl Outcome {
    /// The name in the attempt's row.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Retry { .. } => "retry",
            Self::Snooze { .. } => "snooze",
            Self::Dead { .. } => "dead",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Decides what becomes of a task: `failures` are those before this attempt, `jitter` is random in
/// `0.0..=1.0`.
pub fn decide(
    result: Result<Value, TaskError>,
    failures: u32,
    policy: &RetryPolicy,
    semantics: Semantics,
    jitter: f64,
) -> Outcome {
    match judge(result, failures, policy, semantics, jitter) {
        Outcome::Retry { delay, failure } => {
            Outcome::Retry { delay: delay.min(LONGEST_DELAY), failure }
        }
        Outcome::Snooze { delay, failure } => {
            Outcome::Snooze { delay: delay.min(LONGEST_DELAY), failure }
        }
        outcome => outcome,
    }
}

fn judge(
    result: Result<Value, TaskError>,
    failures: u32,
    policy: &RetryPolicy,
    semantics: Semantics,
    jitter: f64,
) -> Outcome {
    match result {
        Ok(result) => Outcome::Completed { result },
        Err(TaskError::Cancelled) => Outcome::Cancelled,
        // Interrupted in the middle: nobody knows what it did, so it must not begin again.
        Err(TaskError::Snooze { failure, .. })
            if semantics == Semantics::AtMostOnce && failure.class == ErrorClass::Interrupted =>
        {
            Outcome::Dead { failure: Failure { class: ErrorClass::UnknownOutcome, ..failure } }
        }
        // A hint of nothing, or of a moment that is past, is no leave to ask without end.
        Err(TaskError::Snooze { delay, failure })
            if failure.class == ErrorClass::Throttled && delay < LEAST_THROTTLE =>
        {
            Outcome::Snooze { delay: LEAST_THROTTLE, failure }
        }
        Err(TaskError::Snooze { delay, failure }) => Outcome::Snooze { delay, failure },
        // Every step is kept, so that going on repeats nothing, not even for an at-most-once task.
        Err(TaskError::HandOver(failure)) => Outcome::Snooze { delay: Duration::ZERO, failure },
        Err(TaskError::Permanent(failure)) => Outcome::Dead { failure },
        // It may have had its effect, and a second one is worse than none.
        Err(TaskError::Retry { failure, .. }) if semantics == Semantics::AtMostOnce => {
            Outcome::Dead { failure }
        }
        Err(TaskError::Retry { failure, after }) => {
            match policy.delay_after(failures + 1, jitter) {
                Some(delay) => {
                    Outcome::Retry { delay: delay.max(after.unwrap_or_default()), failure }
                }
                None => Outcome::Dead { failure },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(result: Result<Value, TaskError>, failures: u32, expected: &str) {
        let policy = RetryPolicy { max_retry: 2, ..RetryPolicy::default() };
        let seen = match decide(result, failures, &policy, Semantics::AtLeastOnce, 0.0) {
            Outcome::Completed { .. } => "completed".to_owned(),
            Outcome::Retry { delay, failure } => format!("retry in {delay:?}: {}", failure.message),
            Outcome::Snooze { delay, .. } => format!("snooze for {delay:?}"),
            Outcome::Dead { failure } => format!("dead: {}", failure.message),
            Outcome::Cancelled => "cancelled".to_owned(),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn every_ending_of_an_attempt() {
        let hint = TaskError::Retry {
            failure: Failure::new(ErrorClass::Retryable, "503"),
            after: Some(Duration::from_secs(90)),
        };
        check(Ok(Value::Null), 0, "completed");
        check(Err(TaskError::retry("503")), 0, "retry in 60s: 503");
        check(Err(hint), 0, "retry in 90s: 503");
        check(Err(TaskError::retry("503")), 1, "retry in 120s: 503");
        check(Err(TaskError::retry("503")), 2, "dead: 503");
        check(Err(TaskError::permanent("403")), 0, "dead: 403");
        check(Err(TaskError::snooze(Duration::from_secs(30), "429")), 2, "snooze for 30s");
        check(Err(TaskError::hand_over("10 steps")), 2, "snooze for 0ns");
        check(Err(TaskError::Cancelled), 0, "cancelled");
    }

    #[test]
    fn a_wait_is_never_nothing_and_never_beyond_the_calendar() {
        check(Err(TaskError::snooze(Duration::ZERO, "429")), 0, "snooze for 1s");
        check(Err(TaskError::snooze(Duration::MAX, "429")), 0, "snooze for 315360000s");
    }

    #[test]
    fn an_at_most_once_task_never_runs_again_after_a_failure() {
        let failed = Err(TaskError::retry("reset"));
        let outcome = decide(failed, 0, &RetryPolicy::default(), Semantics::AtMostOnce, 0.0);
        assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");

        let interrupted = Err(TaskError::Snooze {
            delay: Duration::ZERO,
            failure: Failure::new(ErrorClass::Interrupted, "stopped"),
        });
        let outcome = decide(interrupted, 0, &RetryPolicy::default(), Semantics::AtMostOnce, 0.0);
        let Outcome::Dead { failure } = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.class, ErrorClass::UnknownOutcome);

        let handed = Err(TaskError::hand_over("10 steps"));
        let outcome = decide(handed, 0, &RetryPolicy::default(), Semantics::AtMostOnce, 0.0);
        assert!(matches!(outcome, Outcome::Snooze { .. }), "nothing is unknown: {outcome:?}");

        let throttled = Err(TaskError::snooze(Duration::from_secs(1), "429"));
        let outcome = decide(throttled, 0, &RetryPolicy::default(), Semantics::AtMostOnce, 0.0);
        assert!(matches!(outcome, Outcome::Snooze { .. }), "it was not let in: {outcome:?}");
    }

    #[test]
    fn a_kept_message_has_no_nul_and_an_end() {
        let failure = Failure::new(ErrorClass::Retryable, "é\0".repeat(9_000));
        assert!(!failure.message.contains('\0') && failure.message.len() <= MAX_ERROR_BYTES + 3);
    }
}
