//! Tokens of a call, as billed, in whatever dress they come; and what they cost.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Price;

/// More tokens than any model takes or gives in one call: a provider that names more has miscounted,
/// and one such number would fill every sum that it is added to.
pub const MAX_BELIEVABLE_TOKENS: i64 = 1_000_000_000;
/// Most that one call is thought to cost, in millionths of a US dollar: as much as a day's budget may
/// be, so that sums of calls stay within their columns.
const MAX_COST_MICRO: f64 = 1e15;
/// Longest quote of a usage that nobody believes.
const QUOTED: usize = 200;

/// Where counts are, by their names: in, out, cached, reasoning, all together.
const INPUT: &[&str] = &["/prompt_tokens", "/input_tokens"];
const OUTPUT: &[&str] = &["/completion_tokens", "/output_tokens"];
const CACHED: &[&str] = &[
    "/prompt_tokens_details/cached_tokens",
    "/input_tokens_details/cached_tokens",
    "/prompt_cache_hit_tokens",
];
const REASONING: &[&str] =
    &["/completion_tokens_details/reasoning_tokens", "/output_tokens_details/reasoning_tokens"];

/// Tokens of a call, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// In, cached ones included.
    pub input_tokens: i64,
    /// Out, reasoning included.
    pub output_tokens: i64,
    /// Of the input, read from the provider's cache.
    #[serde(default)]
    pub cached_tokens: Option<i64>,
    /// Of the output, spent on reasoning.
    #[serde(default)]
    pub reasoning_tokens: Option<i64>,
    /// The provider did not say, or not all; this is our estimate.
    #[serde(default)]
    pub estimated: bool,
}

impl AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        let both = |one: Option<i64>, two: Option<i64>| match (one, two) {
            (None, None) => None,
            (one, two) => Some(one.unwrap_or(0).saturating_add(two.unwrap_or(0))),
        };
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = both(self.cached_tokens, other.cached_tokens);
        self.reasoning_tokens = both(self.reasoning_tokens, other.reasoning_tokens);
        self.estimated = self.estimated || other.estimated;
    }
}

impl TokenUsage {
    /// From a completion's `usage`; what is missing or nonsense is the estimate, and marked so.
    pub(super) fn of(usage: &Value, estimated_input: i64, estimated_output: i64) -> Self {
        let first =
            |names: &[&str]| names.iter().find_map(|name| usage.pointer(name).and_then(count));
        let (input, output) = (first(INPUT), first(OUTPUT));
        let (cached, reasoning) = (first(CACHED), first(REASONING));
        let total = first(&["/total_tokens"]);
        // Some providers count reasoning beside the output; the total tells.
        let beside = match (input, output, reasoning, total) {
            (Some(input), Some(output), Some(reasoning), Some(total))
                if reasoning > 0 && Some(total) == sum(&[input, output, reasoning]) =>
            {
                reasoning
            }
            _ => 0,
        };
        Self {
            input_tokens: input.unwrap_or(estimated_input),
            output_tokens: output.map_or(estimated_output, |output| output.saturating_add(beside)),
            cached_tokens: cached,
            reasoning_tokens: reasoning,
            estimated: input.is_none() || output.is_none(),
        }
    }

    /// What a `usage` says that nobody believes, in its own words; `None` where it says nothing or
    /// something sensible.
    pub(super) fn doubt(usage: &Value) -> Option<String> {
        let named = |name: &&str| usage.pointer(name).filter(|value| !value.is_null());
        let counts = [INPUT, OUTPUT, CACHED, REASONING].into_iter().flatten();
        let odd = match usage {
            Value::Null => false,
            Value::Object(_) => counts.filter_map(named).any(|value| count(value).is_none()),
            _ => true,
        };
        odd.then(|| usage.to_string().chars().take(QUOTED).collect())
    }

    /// What it costs in millionths of a US dollar.
    pub fn cost_micro(&self, price: &Price) -> i64 {
        let cached = self.cached_tokens.unwrap_or(0).clamp(0, self.input_tokens.max(0));
        let reasoning = self.reasoning_tokens.unwrap_or(0).clamp(0, self.output_tokens.max(0));
        let parts = [
            (self.input_tokens - cached, price.input),
            (cached, price.cached_input.unwrap_or(price.input)),
            (self.output_tokens - reasoning, price.output),
            (reasoning, price.reasoning.unwrap_or(price.output)),
        ];
        // Dollars per million tokens are millionths per token.
        let cost = parts.iter().map(|(tokens, price)| *tokens as f64 * price).sum::<f64>();
        cost.min(MAX_COST_MICRO).round() as i64
    }
}

fn sum(parts: &[i64]) -> Option<i64> {
    parts.iter().try_fold(0_i64, |sum, part| sum.checked_add(*part))
}

/// A count in whatever dress: integer, float, text. Negative is none, and so is more than can be.
fn count(value: &Value) -> Option<i64> {
    let number = match value {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|n| n as i64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| (0..=MAX_BELIEVABLE_TOKENS).contains(number))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn tokens(usage: &Value, input: i64, output: i64, estimated: bool) {
        let seen = TokenUsage::of(usage, 7, 2);
        assert_eq!(
            (seen.input_tokens, seen.output_tokens, seen.estimated),
            (input, output, estimated),
            "{usage}"
        );
    }

    #[test]
    fn case_23_missing_or_odd_usage_is_estimated_and_said_so() {
        tokens(&json!({"prompt_tokens": 5, "completion_tokens": 3}), 5, 3, false);
        tokens(&json!({"prompt_tokens": "5", "completion_tokens": 3.0}), 5, 3, false);
        tokens(&json!({"input_tokens": 5, "output_tokens": 3}), 5, 3, false);
        tokens(&json!({"prompt_tokens": -5, "completion_tokens": 3}), 7, 3, true);
        tokens(&json!({"prompt_tokens": null, "completion_tokens": {}}), 7, 2, true);
        tokens(&Value::Null, 7, 2, true);
        tokens(&json!("many"), 7, 2, true);
        tokens(&json!([1]), 7, 2, true);
    }

    /// One such number would fill every sum that it is added to.
    #[test]
    fn what_nobody_believes_is_estimated_and_quoted() {
        for odd in [
            json!(i64::MAX),
            json!(u64::MAX),
            json!(5e18),
            json!(1e30),
            json!(1e300),
            json!(MAX_BELIEVABLE_TOKENS + 1),
            json!("9223372036854775807"),
            json!(-1),
            json!(true),
            json!("many"),
        ] {
            let usage = json!({"prompt_tokens": odd, "completion_tokens": 3});
            tokens(&usage, 7, 3, true);
            assert_eq!(TokenUsage::doubt(&usage), Some(usage.to_string()));
            let usage = json!({"prompt_tokens": odd, "completion_tokens": odd});
            tokens(&usage, 7, 2, true);
            let details = json!({"prompt_tokens": 5, "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": odd},
                "completion_tokens_details": {"reasoning_tokens": odd}});
            tokens(&details, 5, 3, false);
            let seen = TokenUsage::of(&details, 7, 2);
            assert_eq!((seen.cached_tokens, seen.reasoning_tokens), (None, None));
            assert!(TokenUsage::doubt(&details).is_some());
        }
        let most = json!({"prompt_tokens": MAX_BELIEVABLE_TOKENS, "completion_tokens": 3.7});
        tokens(&most, MAX_BELIEVABLE_TOKENS, 3, false);
        for sensible in [most, Value::Null, json!({}), json!({"prompt_tokens": null})] {
            assert_eq!(TokenUsage::doubt(&sensible), None, "{sensible}");
        }
        let long = TokenUsage::doubt(&json!("x".repeat(1_000_000))).expect("a quote");
        assert_eq!(long.len(), QUOTED);
    }

    #[test]
    fn no_price_makes_a_cost_that_no_sum_can_hold() {
        let dear = Price { input: 1e300, output: 1e300, ..Price::default() };
        let usage = TokenUsage { input_tokens: 5, output_tokens: 3, ..TokenUsage::default() };
        assert_eq!(usage.cost_micro(&dear), 1_000_000_000_000_000);
    }

    #[test]
    fn reasoning_that_is_counted_beside_the_output_belongs_to_it() {
        let of = |total| {
            json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": total,
                "completion_tokens_details": {"reasoning_tokens": 4}})
        };
        tokens(&of(19), 10, 9, false);
        tokens(&of(15), 10, 5, false);
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let usage = TokenUsage {
            input_tokens: 100,
            output_tokens: 50,
            cached_tokens: Some(40),
            reasoning_tokens: Some(20),
            estimated: false,
        };
        let plain = Price { input: 2.0, output: 10.0, ..Price::default() };
        assert_eq!(usage.cost_micro(&plain), 700);
        let fine = Price { cached_input: Some(0.5), reasoning: Some(20.0), ..plain };
        assert_eq!(usage.cost_micro(&fine), 60 * 2 + 20 + 30 * 10 + 20 * 20);
        let nonsense = TokenUsage { cached_tokens: Some(1_000), ..usage };
        assert_eq!(nonsense.cost_micro(&fine), 50 + 30 * 10 + 20 * 20);
    }

    #[test]
    fn sums_keep_what_is_unknown_unknown() {
        let mut sum = TokenUsage::default();
        let one = TokenUsage { input_tokens: 1, output_tokens: 2, ..TokenUsage::default() };
        sum += one;
        assert_eq!((sum.input_tokens, sum.cached_tokens, sum.estimated), (1, None, false));
        sum += TokenUsage { cached_tokens: Some(1), estimated: true, ..one };
        assert_eq!((sum.output_tokens, sum.cached_tokens, sum.estimated), (4, Some(1), true));
    }
}
