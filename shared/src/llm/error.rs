//! What can go wrong with a model call, by what becomes of the task; the one `From` that says so.
//!
//! Messages are for the person who reads the dead letter: what happened, and what to do. They never
//! hold the key.

use std::time::Duration;

use rand::Rng;

use crate::domain::answer::AnswerFault;
use crate::domain::outcome::{ErrorClass, Failure, TaskError};

/// Wait after a 429 that names no time.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);
/// Most that is added to a wait, in per cent: workers must not come back in the same instant.
const SPREAD_PERCENT: u32 = 20;
/// How often a call may be repeated that was perhaps billed for nothing, or that a proxy dropped.
const AGAIN: u32 = 1;

/// Which part of the configuration is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// This host: its certificates, its HTTP client.
    Host,
    /// The address.
    BaseUrl,
    /// The key.
    Key,
    /// The model's name.
    Model,
}

/// When another model may be asked in place of one that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandIn {
    /// Not at all: the question, the account or the configuration is at fault, or it may be billed.
    Never,
    /// Now: this model will not answer this question.
    AtOnce,
    /// Once it has failed a few times: it may come back.
    AfterRetries,
}

/// A failed model call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LlmError {
    /// The configuration does not say enough, or says it wrong.
    #[error("{message}")]
    Config {
        /// Which part.
        part: Part,
        /// What is wrong, and what to do.
        message: String,
    },
    /// Nothing was sent.
    #[error("{cause}; the model was not asked: check {check}")]
    Unreachable {
        /// Who, and what the network said.
        cause: String,
        /// Settings to look at.
        check: String,
        /// The proxy on the way.
        proxy: Option<String>,
    },
    /// Something was sent, and no answer came back, or only a part of one.
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
    #[error("{target} rejected the API key; check {setting}: {message}")]
    Unauthorized {
        /// host:port.
        target: String,
        /// Where the key is set.
        setting: String,
        /// The provider's words.
        message: String,
    },
    /// The key was right once: tokens of OAuth live for hours.
    #[error("the token for {target} has expired; get a new one and set {setting}: {message}")]
    Expired {
        /// host:port.
        target: String,
        /// Where the token is set.
        setting: String,
        /// The provider's words.
        message: String,
    },
    /// Wrong model.
    #[error(
        "{target} has no model {model:?} for this key: {message}; is the name right, and is it served there?"
    )]
    ModelNotFound {
        /// host:port.
        target: String,
        /// Asked for.
        model: String,
        /// The provider's words.
        message: String,
    },
    /// Wrong address.
    #[error("{url} answered {status}: {message}; is /v1 missing or doubled in {setting}?")]
    NotFound {
        /// Address without query.
        url: String,
        /// Usually 404.
        status: u16,
        /// Where the address is set.
        setting: String,
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
    #[error(
        "{target} refused the request: {message}; this model wants max_completion_tokens instead of max_tokens"
    )]
    LimitName {
        /// host:port.
        target: String,
        /// The provider's words.
        message: String,
    },
    /// A content filter objected to the prompt.
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
        "{url} answered 200 with {message} instead of an answer; is {setting} right, or is a login page in between?"
    )]
    NotAnApi {
        /// Address without query.
        url: String,
        /// Where the address is set.
        setting: String,
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
    /// 200 with more than is read.
    #[error("the answer of {target} is longer than {limit} bytes")]
    TooLong {
        /// host:port.
        target: String,
        /// What is read at most.
        limit: usize,
    },
    /// An answer that was paid and is not what was asked for.
    #[error("{0}")]
    Answer(AnswerFault),
}

impl LlmError {
    /// `error.type` of span and metric: a word of a small set.
    pub fn error_type(&self) -> String {
        let word = match self {
            Self::Config { .. } => "configuration",
            Self::Unreachable { .. } => "connection_error",
            Self::Unknown { .. } => "unknown_outcome",
            Self::RateLimited { .. } => "rate_limit_exceeded",
            Self::OutOfQuota { .. } => "insufficient_quota",
            Self::Unauthorized { .. } => "invalid_api_key",
            Self::Expired { .. } => "token_expired",
            Self::ModelNotFound { .. } => "model_not_found",
            Self::TooLarge { .. } => "context_length_exceeded",
            Self::LimitName { .. } => "unsupported_parameter",
            Self::Filtered { .. } => "content_filter",
            Self::NotFound { status, .. }
            | Self::Refused { status, .. }
            | Self::Upstream { status, .. } => return status.to_string(),
            Self::NotAnApi { .. } | Self::Malformed { .. } => "malformed_response",
            Self::TooLong { .. } => "response_too_large",
            Self::Answer(fault) => fault.class().as_str(),
        };
        word.to_owned()
    }

    /// True when the call may have been billed and no answer says so.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    /// Most repeats of the same question after this, whatever the task's policy allows; `None`
    /// leaves it to the policy.
    pub fn again_at_most(&self) -> Option<u32> {
        match self {
            // The provider may have worked, and been paid, for what cannot be read.
            Self::Malformed { .. } | Self::Upstream { status: 424 | 425, .. } => Some(AGAIN),
            _ => None,
        }
    }

    /// Whether another model may be asked instead.
    pub fn stand_in(&self) -> StandIn {
        match self {
            Self::ModelNotFound { .. } | Self::Filtered { .. } | Self::Answer(_) => StandIn::AtOnce,
            Self::Unreachable { .. } | Self::Upstream { .. } | Self::Malformed { .. } => {
                StandIn::AfterRetries
            }
            Self::Config { .. }
            | Self::Unknown { .. }
            | Self::RateLimited { .. }
            | Self::OutOfQuota { .. }
            | Self::Unauthorized { .. }
            | Self::Expired { .. }
            | Self::NotFound { .. }
            | Self::Refused { .. }
            | Self::TooLarge { .. }
            | Self::LimitName { .. }
            | Self::NotAnApi { .. }
            | Self::TooLong { .. } => StandIn::Never,
        }
    }

    /// The class of the failure.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unknown { .. } => ErrorClass::UnknownOutcome,
            Self::RateLimited { .. } => ErrorClass::Throttled,
            Self::Unreachable { .. } | Self::Upstream { .. } | Self::Malformed { .. } => {
                ErrorClass::Retryable
            }
            Self::Filtered { .. } => ErrorClass::AnswerRefused,
            Self::Answer(fault) => fault.class(),
            Self::Config { .. }
            | Self::OutOfQuota { .. }
            | Self::Unauthorized { .. }
            | Self::Expired { .. }
            | Self::ModelNotFound { .. }
            | Self::NotFound { .. }
            | Self::Refused { .. }
            | Self::TooLarge { .. }
            | Self::LimitName { .. }
            | Self::NotAnApi { .. }
            | Self::TooLong { .. } => ErrorClass::Permanent,
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
            LlmError::Unreachable { .. }
            | LlmError::Unknown { .. }
            | LlmError::Malformed { .. } => Self::Retry { failure, after: None },
            _ => Self::Permanent(failure),
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
