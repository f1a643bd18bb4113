//! `producer usage`: what was asked of models and what it cost, from the journal.

use chrono::NaiveDate;
use clap::{Args, ValueEnum};
use serde_json::json;
use shared::store::{UsageBy, UsageRow};

use super::connect::{Context, bounded};
use super::error::{Answer, CommandError};
use super::output;
use super::quota::usd;

/// Sums calls, tokens and cost of models, as the endpoints billed them.
#[derive(Debug, Args)]
pub struct Usage {
    /// What the sums are made by
    #[arg(long, value_enum, default_value_t = By::Model)]
    by: By,
    /// From this day on, e.g. 2026-12-01; days are those of the model's quota (UTC where none is set)
    #[arg(long, value_name = "DAY")]
    from: Option<NaiveDate>,
    /// Up to this day, and with it
    #[arg(long, value_name = "DAY")]
    to: Option<NaiveDate>,
}

/// The choices on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// Model that was asked
    Model,
    /// Schedule of the task
    Schedule,
    /// Task type
    Type,
    /// Day
    Day,
}

impl From<By> for UsageBy {
    fn from(by: By) -> Self {
        match by {
            By::Model => Self::Model,
            By::Schedule => Self::Schedule,
            By::Type => Self::Type,
            By::Day => Self::Day,
        }
    }
}

/// Runs it.
pub async fn run(args: Usage, context: &Context) -> Answer {
    bounded("usage", sums(args, context)).await
}

async fn sums(args: Usage, context: &Context) -> Answer {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        return Err(CommandError::Usage(format!("--from {from} is after --to {to}")));
    }
    let (_, store) = context.store().await?;
    let by = UsageBy::from(args.by);
    let rows = store.usage(by, args.from, args.to).await?;
    let total = UsageRow::total(&rows);
    if context.json {
        return output::json(&json!({
            "by": by.as_str(), "from": args.from, "to": args.to, "rows": rows, "total": total,
        }));
    }
    if rows.is_empty() {
        output::talk("no model was asked in these days");
        return Ok(());
    }
    let key = by.as_str().to_uppercase();
    let header = [
        key.as_str(),
        "CALLS",
        "ANSWERED",
        "FAILED",
        "UNKNOWN",
        "TOKENS IN",
        "OUT",
        "CACHED",
        "REASONING",
        "USD",
        "USD UNKNOWN",
    ];
    let total = UsageRow { key: "total".to_owned(), ..total };
    output::table(&header, rows.iter().chain([&total]).map(listed).collect())
}

fn listed(row: &UsageRow) -> Vec<String> {
    vec![
        if row.key.is_empty() { "-".to_owned() } else { row.key.clone() },
        row.calls.to_string(),
        row.answered.to_string(),
        row.failed.to_string(),
        row.unknown.to_string(),
        row.input_tokens.to_string(),
        row.output_tokens.to_string(),
        row.cached_tokens.to_string(),
        row.reasoning_tokens.to_string(),
        usd(row.cost),
        usd(row.unknown_cost),
    ]
}
