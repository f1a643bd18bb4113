//! What the fleet may ask of a model, and what a schedule may spend: limits as values.
//!
//! It counts nothing: the counters are rows, and the statement that admits a call decides.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde_json::{Value, json};

/// Most that is written as a rate a minute or calls at a time.
pub const MAX_RATE: u32 = 10_000_000;
/// Default burst, as a share of a minute: ten seconds' worth may go at once after a pause.
const BURST_SHARE: u64 = 6;

/// Whose calls a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All calls of a model.
    Model,
    /// All calls of a schedule's tasks.
    Schedule,
}

impl Scope {
    /// The name in the database, in JSON and in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Schedule => "schedule",
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "model" => Ok(Self::Model),
            "schedule" => Ok(Self::Schedule),
            other => Err(format!("unknown scope {other:?}")),
        }
    }
}

/// What becomes of a task whose call needs more than is left of the day's budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OverBudget {
    /// It waits for the next day (the default).
    #[default]
    Park,
    /// It is given up.
    Dead,
    /// Another model is asked.
    Downgrade(String),
}

impl fmt::Display for OverBudget {
    /// As in the database, in JSON and on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Park => f.write_str("park"),
            Self::Dead => f.write_str("dead"),
            Self::Downgrade(model) => write!(f, "downgrade: {model}"),
        }
    }
}

impl OverBudget {
    /// The model that is asked instead, where one is.
    pub fn instead(&self) -> Option<&str> {
        match self {
            Self::Downgrade(model) => Some(model),
            Self::Park | Self::Dead => None,
        }
    }
}

/// The way of downgrades from a model, if it leads back to the model. `next`: which is asked instead.
pub fn circle(from: &str, next: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut way = vec![from.to_owned()];
    loop {
        let model = next(way.last()?)?;
        let seen = way.contains(&model);
        let back = model == from;
        way.push(model);
        if seen {
            return back.then(|| way.join(" → "));
        }
    }
}

impl FromStr for OverBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        match (text, text.split_once(':')) {
            ("park", _) => Ok(Self::Park),
            ("dead", _) => Ok(Self::Dead),
            (_, Some(("downgrade", model))) if !model.trim().is_empty() => {
                Ok(Self::Downgrade(model.trim().to_owned()))
            }
            _ => Err("expected park, dead, or downgrade: MODEL".to_owned()),
        }
    }
}

/// Which limit stands in the way of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A budget of money, and a model without a price.
    Unpriced,
    /// Larger than the limit itself: it can never fit.
    TooLarge,
    /// What is left of the day's tokens is less than the call may need.
    DailyTokens,
    /// What is left of the day's money is less than the call may cost.
    DailyCost,
    /// The provider has closed the model.
    Closed,
    /// One call finds out whether it is open again.
    Probing,
    /// Calls under way hold what is left of the day.
    Held,
    /// As many calls are under way as may be.
    InFlight,
    /// The model has not answered yet, and a few calls find out whether it does.
    Untried,
    /// Requests a minute.
    Requests,
    /// Tokens a minute.
    Tokens,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::Unpriced,
        Self::TooLarge,
        Self::DailyTokens,
        Self::DailyCost,
        Self::Closed,
        Self::Probing,
        Self::Held,
        Self::InFlight,
        Self::Untried,
        Self::Requests,
        Self::Tokens,
    ];

    /// The name in the database, in metrics and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unpriced => "unpriced",
            Self::TooLarge => "too_large",
            Self::DailyTokens => "daily_tokens",
            Self::DailyCost => "daily_cost",
            Self::Closed => "closed",
            Self::Probing => "probing",
            Self::Held => "held",
            Self::InFlight => "in_flight",
            Self::Untried => "untried",
            Self::Requests => "requests",
            Self::Tokens => "tokens",
        }
    }
}

impl FromStr for Reason {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|reason| reason.as_str() == text);
        found.ok_or_else(|| format!("unknown reason {text:?}"))
    }
}

/// The limits of a quota; what is absent is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests a minute.
    pub requests_per_minute: Option<u32>,
    /// Requests that may go at once after a pause; `None` takes [`Limits::burst`].
    pub burst: Option<u32>,
    /// Tokens a minute, input and output together.
    pub tokens_per_minute: Option<u64>,
    /// Calls under way at a time.
    pub in_flight: Option<u32>,
    /// Tokens a day, input and output together.
    pub daily_tokens: Option<u64>,
    /// Millionths of a US dollar a day, by `model.prices`.
    pub daily_cost_micro: Option<u64>,
    /// Whose midnight ends the day.
    pub timezone: chrono_tz::Tz,
    /// What then becomes of tasks.
    pub over_budget: OverBudget,
}

impl Limits {
    /// Requests that may go at once: as said, else ten seconds' worth, at least one.
    pub fn burst(&self) -> Option<u32> {
        let per_minute = self.requests_per_minute?;
        Some(self.burst.unwrap_or((per_minute / BURST_SHARE as u32).max(1)))
    }

    /// Tokens that may go at once: ten seconds' worth. A larger call goes when nothing is owed.
    pub fn token_burst(&self) -> Option<u64> {
        Some((self.tokens_per_minute? / BURST_SHARE).max(1))
    }

    /// The entry as one value: what tells an edit from a restart.
    pub fn spec(&self) -> Value {
        json!({
            "requests_per_minute": self.requests_per_minute,
            "burst": self.burst(),
            "tokens_per_minute": self.tokens_per_minute,
            "in_flight": self.in_flight,
            "daily_tokens": self.daily_tokens,
            "daily_cost_micro": self.daily_cost_micro,
            "timezone": self.timezone.name(),
            "over_budget": self.over_budget.to_string(),
        })
    }
}

/// A quota as the file says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// A model's or a schedule's.
    pub scope: Scope,
    /// Its name.
    pub name: String,
    /// Its limits.
    pub limits: Limits,
}

/// US dollars as millionths.
pub fn micro(dollars: f64) -> u64 {
    (dollars * 1e6).round() as u64
}

/// Millionths as US dollars.
pub fn dollars(micro: i64) -> f64 {
    micro as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        for policy in [OverBudget::Park, OverBudget::Dead, OverBudget::Downgrade("m:7b".into())] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for wrong in ["", "downgrade", "downgrade:", "wait", "downgrade m"] {
            assert!(wrong.parse::<OverBudget>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_way_that_leads_back_is_a_circle_for_those_who_are_on_it() {
        let next = |model: &str| match model {
            "a" => Some("b".to_owned()),
            "b" | "c" => Some("c".to_owned()),
            _ => None,
        };
        assert_eq!(circle("c", next).as_deref(), Some("c → c"));
        assert_eq!(circle("a", next), None, "it leads into a circle and not back");
        assert_eq!(circle("d", next), None);
    }

    #[test]
    fn a_burst_is_ten_seconds_worth_unless_said() {
        let limits = |requests, burst| Limits {
            requests_per_minute: requests,
            burst,
            tokens_per_minute: Some(6000),
            ..Limits::default()
        };
        assert_eq!(limits(Some(60), None).burst(), Some(10));
        assert_eq!(limits(Some(3), None).burst(), Some(1));
        assert_eq!(limits(Some(60), Some(5)).burst(), Some(5));
        assert_eq!(limits(None, None).burst(), None);
        assert_eq!(limits(None, None).token_burst(), Some(1000));
    }
}
