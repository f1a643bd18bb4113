//! What can be wrong with an answer that a model gave and was paid for, and what is done about it.
//!
//! Words and rules, pure; `llm::ChatAnswer::judge` finds the faults, the worker asks again.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::outcome::ErrorClass;

/// Most models that are asked in place of the first: a longer list only hides that none answers.
pub const MAX_FALLBACKS: usize = 5;

/// How many times as many tokens the second try of a cut answer may have.
pub const LARGER_FACTOR: u32 = 4;

/// Most tokens that the second try of a cut answer asks for by itself; a payload may ask for more.
pub const LARGEST_BY_ITSELF: u32 = 32_768;

/// Why a paid answer is not what was asked for. The text is for a person, and may be shown to the
/// model; of the answer itself it repeats nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerFault {
    /// Cut at the limit of tokens where the whole was needed.
    Truncated(String),
    /// Not a word, and no tool asked for.
    Empty(String),
    /// The model, or the provider's filter, would not answer.
    Refused(String),
    /// Not JSON, not by its schema, or tools asked for that cannot be run.
    Invalid(String),
}

impl AnswerFault {
    /// Its class, in rows, dead letters and metrics.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Truncated(_) => ErrorClass::AnswerTruncated,
            Self::Empty(_) => ErrorClass::AnswerEmpty,
            Self::Refused(_) => ErrorClass::AnswerRefused,
            Self::Invalid(_) => ErrorClass::AnswerInvalid,
        }
    }
}

impl fmt::Display for AnswerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(what) => write!(f, "the answer was cut at max_tokens: {what}"),
            Self::Empty(what) => write!(f, "the answer is empty: {what}"),
            Self::Refused(what) => write!(f, "the answer was withheld: {what}"),
            Self::Invalid(what) => write!(f, "the answer is not what was asked for: {what}"),
        }
    }
}

/// What to do with an answer that was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTruncated {
    /// Take the part that came; `finish_reason` says `length`.
    Accept,
    /// Give up.
    Fail,
    /// Ask once more, with [`LARGER_FACTOR`] times the tokens.
    Larger,
}

/// What to do with an answer that is not what was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalid {
    /// Give up.
    #[default]
    Fail,
    /// Show the model its answer and what is wrong with it, once.
    Repair,
    /// Ask the next model of the list.
    Fallback,
    /// Take it as it is; the caller judges.
    Accept,
}

/// What to do with an empty answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnEmpty {
    /// Ask the same once more, in the task's next attempt; then the next model of the list.
    #[default]
    Again,
    /// Ask the next model of the list at once.
    Fallback,
    /// Give up.
    Fail,
}

/// What to do with a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRefused {
    /// Ask the next model of the list; without one, give up.
    #[default]
    Fallback,
    /// Give up.
    Fail,
}

/// What is done about each fault, and which models stand in. JSON: its fields, all optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerPolicy {
    /// By default a cut text is accepted, and cut JSON is not.
    #[serde(default)]
    pub on_truncated: Option<OnTruncated>,
    /// By default the task fails.
    #[serde(default)]
    pub on_invalid: OnInvalid,
    /// By default it is asked once more.
    #[serde(default)]
    pub on_empty: OnEmpty,
    /// By default the next model is asked.
    #[serde(default)]
    pub on_refused: OnRefused,
    /// Models that stand in, best first; `None` takes `model.fallback` of the configuration.
    #[serde(default)]
    pub fallback: Option<Vec<String>>,
}

impl AnswerPolicy {
    /// What is done with a cut answer; half a JSON is none.
    pub fn on_truncated(&self, wants_json: bool) -> OnTruncated {
        let default = if wants_json { OnTruncated::Fail } else { OnTruncated::Accept };
        self.on_truncated.unwrap_or(default)
    }

    /// What is wrong with the policy itself.
    pub fn judge(&self) -> Result<(), String> {
        let models = self.fallback.as_deref().unwrap_or_default();
        if models.len() > MAX_FALLBACKS {
            return Err(format!("fallback names more than {MAX_FALLBACKS} models"));
        }
        if models.iter().any(|model| model.trim().is_empty()) {
            return Err("fallback has an empty name".to_owned());
        }
        Ok(())
    }
}

/// The limit of the second try after an answer that was cut at `limit`; `None` where it would be
/// no larger.
pub fn larger_limit(limit: u32) -> Option<u32> {
    Some(limit.saturating_mul(LARGER_FACTOR).min(LARGEST_BY_ITSELF)).filter(|next| *next > limit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_is_made_of_words() {
        let policy: AnswerPolicy = serde_json::from_value(json!({
            "on_truncated": "larger", "on_invalid": "repair", "on_empty": "fail",
            "on_refused": "fail", "fallback": ["m2"]}))
        .expect("a policy");
        assert_eq!(policy.on_truncated, Some(OnTruncated::Larger));
        assert_eq!(policy.on_invalid, OnInvalid::Repair);
        assert_eq!((policy.on_empty, policy.on_refused), (OnEmpty::Fail, OnRefused::Fail));
        let bare: AnswerPolicy = serde_json::from_value(json!({})).expect("a policy");
        assert_eq!(bare, AnswerPolicy::default());
        assert_eq!(bare.on_truncated(false), OnTruncated::Accept);
        assert_eq!(bare.on_truncated(true), OnTruncated::Fail);
    }

    #[test]
    fn a_list_of_models_has_an_end_and_names() {
        let of = |models: &[&str]| AnswerPolicy {
            fallback: Some(models.iter().map(|&model| model.to_owned()).collect()),
            ..AnswerPolicy::default()
        };
        assert_eq!(of(&["a", "b"]).judge(), Ok(()));
        assert!(of(&["a"; MAX_FALLBACKS + 1]).judge().is_err());
        assert!(of(&["a", " "]).judge().is_err());
    }

    #[test]
    fn a_larger_limit_is_larger_and_has_an_end() {
        assert_eq!(larger_limit(512), Some(2048));
        assert_eq!(larger_limit(20_000), Some(LARGEST_BY_ITSELF));
        assert_eq!(larger_limit(LARGEST_BY_ITSELF), None);
        assert_eq!(larger_limit(u32::MAX), None);
    }
}
