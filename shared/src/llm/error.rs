//! What can go wrong with a model call, by what becomes of the task; the one `From` that says so.
//!
//! Messages are for the person who reads the dead letter: what happened, and what to do. They never
//! hold the key.

use std::time::Duration;

use rand::Rng;
use crate::domain::outcome::{ErrorClass, Failure, TaskError};

/// Wait after a 429 that names no time.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);
/// Most that is added to a wait, in per cent: workers must not come back in the same instant.
const SPREAD_PERCENT: u32 = 20;

/// A failed model call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LlmError {
    /// The configuration does not say enough, or says it wrong.
    #[error("{0}")]
    Config(String),
    /// Nothing was sent.
    #[error(
        "{cause}; the model was not asked: check model.base_url (MODEL_BASE_URL) and the proxy variables"
    )]
    Unreachable {
        /// Who, and what the network said.
        cause: String,
    },
    /// Something was sent, and no answer came back.
    #[error("{cause}; the provider may still have charged this call")]
    Unknown {
        /// Who, and what was seen.
        cause: String,
    },
    /// Asked to wait.
    #[error("{target} limits the rate: {message}")]
    RateLimited {
        /// host:port.
        target: String,
        /// The provider's words.
        message: String,
        /// How long, where it says so.
        after: Option<Duration>,
    },
    /// Waiting will not help.
    #[error(
        "the account at {target} has no quota or credit left, and waiting will not help: {message}"
    )]
    OutOfQuota {
        /// host:port.
        target: String,
        /// The provider's words.
        message: String,
    },
    /// The key is wrong.
    #[error("{target} rejected the API key; check model.api_key (MODEL_API_KEY): {message}")]
    Unauthorized {
        /// host:port.
        target: String,
        /// The provider's words.
        message: String,
    },
    /// Wrong model or wrong address.
    #[error(
        "{url} answered {status}: {message}; is the model's name right, and is /v1 missing or doubled in model.base_url?"
    )]
    NotFound {
        /// Address without query.
        url: String,
        /// Usually 404.
        status: u16,
        /// The provider's words.
        message: String,
    },
    /// The question itself is refused.
    #[error("{target} refused the request ({status}{param}): {message}")]
    Refused {
        /// host:port.
        target: String,
        /// Usually 400.
        status: u16,
        /// `, parameter p`, or empty.
        param: String,
        /// The provider's words.
        message: String,
    },
    /// The question can never be answered: larger than the model or its rate.
    #[error("the prompt is too large for this model, and waiting will not help: {message}")]
    TooLarge {
        /// The provider's words.
        message: String,
    },
    /// This model wants `max_completion_tokens`.
    #[error("{message}; this model wants max_completion_tokens instead of max_tokens")]
    LimitName {
        /// The provider's words.
        message: String,
    },
    /// A content filter objected to prompt or answer.
    #[error("withheld by the provider's content filter: {message}")]
    Filtered {
        /// Categories, or the provider's words.
        message: String,
    },
    /// The other side is in trouble.
    #[error("{target} answered {status}: {message}")]
    Upstream {
        /// host:port.
        target: String,
        /// Usually 5xx.
        status: u16,
        /// The provider's words.
        message: String,
        /// How long to wait, where it says so.
        after: Option<Duration>,
    },
    /// 200 with a page for people.
    #[error(
        "{url} answered 200 with {message} instead of an answer; is model.base_url right, or is a login page in between?"
    )]
    NotAnApi {
        /// Address without query.
        url: String,
        /// What it was.
        message: String,
    },
    /// 200 with something that is no answer.
    #[error("{target} answered 200 with {message}")]
    Malformed {
        /// host:port.
        target: String,
        /// What it was.
        message: String,
    },
    /// An answer without a word.
    #[error("the model gave an empty answer; {0}")]
    Empty(String),
    /// Cut where the whole was needed.
    #[error("the answer was cut at max_tokens, {0}; raise max_tokens")]
    Truncated(String),
    /// JSON was asked for.
    #[error("the model was asked for JSON and answered something else: {0}")]
    NotJson(String),
}

impl LlmError {
    /// `error.type` of span and metric: a word of a small set.
    pub fn error_type(&self) -> String {
        let word = match self {
            Self::Config(_) => "configuration",
            Self::Unreachable { .. } => "connection_error",
            Self::Unknown { .. } => "unknown_outcome",
            Self::RateLimited { .. } => "rate_limit_exceeded",
            Self::OutOfQuota { .. } => "insufficient_quota",
            Self::Unauthorized { .. } => "invalid_api_key",
            Self::TooLarge { .. } => "context_length_exceeded",
            Self::LimitName { .. } => "unsupported_parameter",
            Self::Filtered { .. } => "content_filter",
            Self::NotFound { status, .. }
            | Self::Refused { status, .. }
            | Self::Upstream { status, .. } => return status.to_string(),
            Self::NotAnApi { .. } | Self::Malformed { .. } | Self::NotJson(_) => {
                "malformed_response"
            }
            Self::Empty(_) => "empty_answer",
            Self::Truncated(_) => "truncated",
        };
        word.to_owned()
    }

    /// True when the call may have been billed and no answer says so.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    /// The class of the failure.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unknown { .. } => ErrorClass::UnknownOutcome,
            Self::RateLimited { .. } => ErrorClass::Throttled,
            Self::Unreachable { .. }
            | Self::Upstream { .. }
            | Self::Malformed { .. }
            | Self::Empty(_) => ErrorClass::Retryable,
            Self::Config(_)
            | Self::OutOfQuota { .. }
            | Self::Unauthorized { .. }
            | Self::NotFound { .. }
            | Self::Refused { .. }
            | Self::TooLarge { .. }
            | Self::LimitName { .. }
            | Self::Filtered { .. }
            | Self::NotAnApi { .. }
            | Self::Truncated(_)
            | Self::NotJson(_) => ErrorClass::Permanent,
        }
    }
}

impl From<LlmError> for TaskError {
    fn from(error: LlmError) -> Self {
        let failure = Failure::new(error.class(), &error);
        match error {
            LlmError::RateLimited { after, .. } => {
                let delay = spread(after.unwrap_or(DEFAULT_WAIT));
                Self::Snooze { delay, failure }
            }
            LlmError::Upstream { after, .. } => Self::Retry { failure, after: after.map(spread) },
            _ if failure.class == ErrorClass::Permanent => Self::Permanent(failure),
            _ => Self::Retry { failure, after: None },
        }
    }
}

/// A wait and up to a fifth more, never less.
pub fn spread(wait: Duration) -> Duration {
    let share = rand::rng().random_range(0.0..=f64::from(SPREAD_PERCENT) / 100.0);
    wait + wait.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_never_shorter_than_asked_and_differs_between_workers() {
        let hint = Duration::from_secs(100);
        let waits: Vec<_> = (0..50).map(|_| spread(hint)).collect();
        assert!(waits.iter().all(|wait| (hint..=hint.mul_f64(1.2)).contains(wait)));
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }

    #[test]
    fn a_rate_limit_costs_no_failure_and_an_unknown_outcome_is_called_so() {
        let limited = LlmError::RateLimited {
            target: "h:1".to_owned(),
            message: "slow down".to_owned(),
            after: Some(Duration::from_secs(3)),
        };
        match TaskError::from(limited) {
            TaskError::Snooze { delay, failure } => {
                assert!(delay >= Duration::from_secs(3));
                assert_eq!(failure.class, ErrorClass::Throttled);
            }
            other => panic!("{other}"),
        }
        let unknown = TaskError::from(LlmError::Unknown { cause: "h:1 did not answer".to_owned() });
        assert_eq!(unknown.class(), ErrorClass::UnknownOutcome);
        assert!(matches!(unknown, TaskError::Retry { .. }));
    }
}
