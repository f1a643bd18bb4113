//! `producer alerts`: what was, or could not be, told to the webhook, and whether it can be told.

use clap::{Args, Subcommand};
use serde_json::json;
use shared::http;
use shared::store::Alert;

use super::connect::{self, Context, bounded};
use super::error::{Answer, CommandError};
use super::output::{self, or_dash, short, time};
use crate::alerts::post;

/// Looks at alerts, and tries the webhook.
#[derive(Debug, Subcommand)]
pub enum Alerts {
    /// Lists alerts, newest first
    List(List),
    /// Posts an alert to the webhook now and says what it answered; exit 1 if it did not accept
    Test,
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
    match command {
        Alerts::List(List { limit }) => bounded("alerts list", list(limit, context)).await,
        Alerts::Test => bounded("alerts test", test(context)).await,
    }
}

/// Posted from here, by this file's webhook, and kept among the alerts; daemons leave it alone.
async fn test(context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let webhook = config.alerts.webhook.as_ref().ok_or_else(|| {
        CommandError::Usage(format!(
            "{} names no alerts.webhook: alerts are kept as rows and logged, and nobody is told",
            config.name
        ))
    })?;
    let by = connect::actor();
    let text = format!("A test by {by}: Belfry's alerts arrive here");
    let alert = store.test_alert(&text).await?;
    let client = http::trusted_client().map_err(|error| CommandError::Failed(error.to_string()))?;
    if let Err(error) = post(&client, webhook, &alert).await {
        store.alert_failed(alert.id, &error).await?;
        return Err(CommandError::Failed(format!(
            "alert {} was not accepted: {error}; look at alerts.webhook in {}",
            alert.id, config.name
        )));
    }
    store.alert_sent(alert.id).await?;
    if context.json {
        return output::json(&json!({ "alert_id": alert.id, "accepted": true }));
    }
    output::text(&format!("alert {} was accepted by the webhook", alert.id))
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
    let header =
        ["ALERT", "CREATED", "KIND", "STAGE", "LETTER", "SENT", "TRIES", "TEXT", "LAST ERROR"];
    output::table(&header, alerts.iter().map(listed).collect())
}

fn listed(alert: &Alert) -> Vec<String> {
    vec![
        alert.id.to_string(),
        time(alert.created_at),
        alert.kind.clone(),
        alert.stage.clone(),
        or_dash(alert.dead_letter_id),
        alert.sent_at.map_or_else(|| "not yet".to_owned(), time),
        alert.tries.to_string(),
        short(&alert.text, 80),
        or_dash(alert.last_error.as_deref().map(|error| short(error, 60))),
    ]
}
