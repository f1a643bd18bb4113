//! What was asked of models and what it cost: sums over the journal.

use chrono::NaiveDate;
use serde::Serialize;

use super::connect::Store;
use super::error::Error;
use crate::domain::quota::dollars;

/// What sums are made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageBy {
    /// Model asked for.
    Model,
    /// Schedule; calls of ad-hoc tasks share one without a name.
    Schedule,
    /// Task type.
    Type,
    /// Day, in the zone of the model's quota.
    Day,
}

impl UsageBy {
    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Schedule => "schedule",
            Self::Type => "type",
            Self::Day => "day",
        }
    }
}

/// Sums of calls. JSON: one object with these keys; money in US dollars.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageRow {
    /// The model, schedule, type or day; empty for none.
    pub key: String,
    /// Calls that were sent.
    pub calls: i64,
    /// Of those, with an answer.
    pub answered: i64,
    /// Failed: refused, or paid for nothing.
    pub failed: i64,
    /// Of unknown outcome: they may have been billed.
    pub unknown: i64,
    /// Under way.
    pub in_flight: i64,
    /// Whose tokens are our estimate.
    pub estimated: i64,
    /// Tokens in, cached ones included.
    pub input_tokens: i64,
    /// Tokens out, reasoning included.
    pub output_tokens: i64,
    /// Of the input, cached.
    pub cached_tokens: i64,
    /// Of the output, reasoning.
    pub reasoning_tokens: i64,
    /// What was billed, by `model.prices`.
    pub cost: f64,
    /// Tokens that calls of unknown outcome may have used, by estimate; in no other sum.
    pub unknown_tokens: i64,
    /// Their cost.
    pub unknown_cost: f64,
}

impl Store {
    /// Sums of the calls that count on these days, both ends included.
    pub async fn usage(
        &self,
        by: UsageBy,
        from: Option<NaiveDate>,
        to: Option<NaiveDate>,
    ) -> Result<Vec<UsageRow>, Error> {
        let rows = self.query(include_str!("sql/usage.sql"), &[&by.as_str(), &from, &to]).await?;
        Ok(rows
            .iter()
            .map(|row| UsageRow {
                key: row.get("key"),
                calls: row.get("calls"),
                answered: row.get("answered"),
                failed: row.get("failed"),
                unknown: row.get("unknown"),
                in_flight: row.get("in_flight"),
                estimated: row.get("estimated"),
                input_tokens: row.get("input_tokens"),
                output_tokens: row.get("output_tokens"),
                cached_tokens: row.get("cached_tokens"),
                reasoning_tokens: row.get("reasoning_tokens"),
                cost: dollars(row.get("cost_micro")),
                unknown_tokens: row.get("unknown_tokens"),
                unknown_cost: dollars(row.get("unknown_cost_micro")),
            })
            .collect())
    }
}

impl UsageRow {
    /// The sum of rows, without a key.
    pub fn total(rows: &[Self]) -> Self {
        rows.iter().fold(Self::default(), |sum, row| Self {
            key: String::new(),
            calls: sum.calls.saturating_add(row.calls),
            answered: sum.answered.saturating_add(row.answered),
            failed: sum.failed.saturating_add(row.failed),
            unknown: sum.unknown.saturating_add(row.unknown),
            in_flight: sum.in_flight.saturating_add(row.in_flight),
            estimated: sum.estimated.saturating_add(row.estimated),
            input_tokens: sum.input_tokens.saturating_add(row.input_tokens),
            output_tokens: sum.output_tokens.saturating_add(row.output_tokens),
            cached_tokens: sum.cached_tokens.saturating_add(row.cached_tokens),
            reasoning_tokens: sum.reasoning_tokens.saturating_add(row.reasoning_tokens),
            cost: sum.cost + row.cost,
            unknown_tokens: sum.unknown_tokens.saturating_add(row.unknown_tokens),
            unknown_cost: sum.unknown_cost + row.unknown_cost,
        })
    }
}
