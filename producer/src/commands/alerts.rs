//! `producer alerts list`: what was, or could not be, told to the webhook.

use clap::{Args, Subcommand};
use shared::store::Alert;

use super::connect::{Context, bounded};
use super::error::Answer;
use super::output::{self, or_dash, short, time};

/// Looks at alerts.
#[derive(Debug, Subcommand)]
pub enum Alerts {
    /// Lists alerts, newest first
    List(List),
}

/// How many.
#[derive(Debug, Args)]
pub struct List {
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

/// Runs it.
pub async fn run(command: Alerts, context: &Context) -> Answer {
    let Alerts::List(List { limit }) = command;
    bounded("alerts list", list(limit, context)).await
}

async fn list(limit: i64, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let alerts = store.alerts(limit).await?;
    if context.json {
        return output::json(&alerts);
    }
    if alerts.is_empty() {
        output::talk("there are no alerts");
        return Ok(());
    }
    let header = ["ALERT", "CREATED", "LETTER", "SENT", "TRIES", "TEXT", "LAST ERROR"];
    output::table(&header, alerts.iter().map(listed).collect())
}

fn listed(alert: &Alert) -> Vec<String> {
    vec![
        alert.id.to_string(),
        time(alert.created_at),
        or_dash(alert.dead_letter_id),
        alert.sent_at.map_or_else(|| "not yet".to_owned(), time),
        alert.tries.to_string(),
        short(&alert.text, 80),
        or_dash(alert.last_error.as_deref().map(|error| short(error, 60))),
    ]
}
