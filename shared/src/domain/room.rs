//! What is left of a quota and what a call may need of it, and why the one does not fit the other.
//!
//! It only tells: whether a call fits is decided where the counters are.

use super::quota::{OverBudget, Scope, dollars};

/// What a quota has room for, as the statement saw it that did not let a call in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Tokens a minute.
    pub tokens_per_minute: Option<i64>,
    /// Tokens a day.
    pub daily_tokens: Option<i64>,
    /// Of those, used today.
    pub used_tokens: i64,
    /// And held by calls under way.
    pub held_tokens: i64,
    /// Millionths of a US dollar a day.
    pub daily_cost_micro: Option<i64>,
    /// Of those, spent today.
    pub used_cost_micro: i64,
    /// And held by calls under way.
    pub held_cost_micro: i64,
}

/// What a call may need at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Tokens in and out.
    pub tokens: i64,
    /// Millionths of a US dollar; `None` without a price.
    pub cost_micro: Option<i64>,
}

impl Room {
    /// A daily budget that has no room for a call, whatever calls under way give back. The article is
    /// the sentence's that it stands in.
    pub fn spent(&self, scope: Scope, name: &str, need: Need) -> String {
        let today = Self { held_tokens: 0, held_cost_micro: 0, ..*self }.today(need);
        format!("daily budget of the {} {name} has no room for this call: {today}", scope.as_str())
    }

    /// The same for an alert, with what becomes of such tasks. `until`: when its next day begins there.
    pub fn alert(
        &self,
        (scope, name): (Scope, &str),
        need: Need,
        over_budget: &OverBudget,
        until: &str,
    ) -> String {
        let fate = match over_budget {
            OverBudget::Park => format!("wait until {until}"),
            OverBudget::Dead => "are given up".to_owned(),
            OverBudget::Downgrade(model) => format!("ask {model} instead"),
        };
        let spent = self.spent(scope, name, need);
        format!("The {spent}. Tasks that need more than is left {fate}")
    }

    /// Why a call does not fit into what is left of the day, in numbers.
    pub fn today(&self, need: Need) -> String {
        let tokens = self.daily_tokens.map(|limit| {
            let left = limit.saturating_sub(self.used_tokens).saturating_sub(self.held_tokens);
            let held = match self.held_tokens {
                0 => String::new(),
                held => format!(", calls under way may need {held}"),
            };
            let need = need.tokens;
            let used = self.used_tokens;
            let said = format!(
                "{used} of {limit} tokens are used today{held} and this call may need up to {need}"
            );
            (need > left, said)
        });
        let cost = self.daily_cost_micro.zip(need.cost_micro).map(|(limit, need)| {
            let left = limit.saturating_sub(self.used_cost_micro);
            let left = left.saturating_sub(self.held_cost_micro);
            let held = match self.held_cost_micro {
                0 => String::new(),
                held => format!(", calls under way may cost {}", dollars(held)),
            };
            let (used, limit) = (dollars(self.used_cost_micro), dollars(limit));
            let said = format!(
                "{used} of {limit} USD are spent today{held} and this call may cost up to {}",
                dollars(need)
            );
            (need > left, said)
        });
        told([tokens, cost])
    }

    /// Which limits are themselves smaller than the call, in numbers.
    pub fn ever(&self, need: Need) -> String {
        let tokens = |limit: Option<i64>, word: &str| {
            let limit = limit?;
            let said = format!("it may need up to {} tokens, and {word} is {limit}", need.tokens);
            Some((need.tokens > limit, said))
        };
        let cost = self.daily_cost_micro.zip(need.cost_micro).map(|(limit, need)| {
            let (limit, cost) = (dollars(limit), dollars(need));
            (cost > limit, format!("it may cost up to {cost} USD, and daily_cost is {limit}"))
        });
        told([
            tokens(self.tokens_per_minute, "tokens_per_minute"),
            tokens(self.daily_tokens, "daily_tokens"),
            cost,
        ])
    }
}

/// Those that stand in the way, one after another.
fn told<const N: usize>(limits: [Option<(bool, String)>; N]) -> String {
    let standing = limits.into_iter().flatten().filter(|(stands, _)| *stands);
    standing.map(|(_, said)| said).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_told_in_numbers_and_nothing_else_is() {
        let room = Room {
            tokens_per_minute: Some(6000),
            daily_tokens: Some(5000),
            used_tokens: 330,
            daily_cost_micro: Some(100_000),
            used_cost_micro: 21,
            ..Room::default()
        };
        let need = |tokens, cost_micro| Need { tokens, cost_micro };
        assert_eq!(
            room.today(need(4800, Some(50))),
            "330 of 5000 tokens are used today and this call may need up to 4800"
        );
        assert_eq!(
            room.today(need(1, Some(99_999))),
            "0.000021 of 0.1 USD are spent today and this call may cost up to 0.099999"
        );
        let held = Room { held_tokens: 4000, held_cost_micro: 99_000, ..room };
        assert_eq!(
            held.today(need(1000, Some(1000))),
            "330 of 5000 tokens are used today, calls under way may need 4000 and this call may \
             need up to 1000; 0.000021 of 0.1 USD are spent today, calls under way may cost 0.099 \
             and this call may cost up to 0.001"
        );
        let ever = |tokens, cost_micro| room.ever(need(tokens, cost_micro));
        assert_eq!(ever(5500, None), "it may need up to 5500 tokens, and daily_tokens is 5000");
        let both = ever(7000, Some(100_001));
        for said in ["tokens_per_minute is 6000", "daily_tokens is 5000", "daily_cost is 0.1"] {
            assert!(both.contains(said), "{both}");
        }
        assert_eq!(ever(10, Some(10)), "");
    }
}
