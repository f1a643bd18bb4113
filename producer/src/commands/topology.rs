//! `producer topology`: the exchanges and queues, looked at, compared and declared by hand.
//!
//! Daemons declare what is missing by themselves; this is for operators, and for brokers where the
//! daemons' user may not configure.

use clap::{Args, Subcommand};
use serde_json::json;
use shared::broker::{Diff, Found};

use super::connect::{Context, bounded, broker_settings, operator, topology};
use super::error::{Answer, CommandError};
use super::output::{self, counted, or_dash};

/// Looks at the exchanges and queues, and declares them.
#[derive(Debug, Subcommand)]
pub enum Topology {
    /// Declares everything that is missing
    Declare,
    /// Shows what exists, with messages and consumers
    Show,
    /// Says what is missing or differs: exit 1 if anything does
    Diff,
    /// Prints a definitions file for RabbitMQ's import; needs no service
    Export(Export),
}

/// For which vhost.
#[derive(Debug, Args)]
pub struct Export {
    /// The vhost in the file. Default: that of the RabbitMQ URL, else /
    #[arg(long)]
    vhost: Option<String>,
}

/// Runs it.
pub async fn run(command: Topology, context: &Context) -> Answer {
    match command {
        // Some thirty declarations, each of which a quorum of nodes has to take.
        Topology::Declare => declare(context).await,
        Topology::Show => bounded("topology show", show(context)).await,
        Topology::Diff => bounded("topology diff", diff(context)).await,
        Topology::Export(args) => export(args, context),
    }
}

async fn declare(context: &Context) -> Answer {
    let config = context.config()?;
    let wanted = topology(&config);
    let operator = operator(&config).await?;
    operator.declare(&wanted).await?;
    operator.close().await;
    let (exchanges, queues) = (wanted.exchanges().len(), wanted.queues().len());
    if context.json {
        return output::json(&json!({ "exchanges": exchanges, "queues": queues }));
    }
    output::text(&format!(
        "{} and {} are there",
        counted(exchanges, "exchange"),
        counted(queues, "queue")
    ))
}

async fn show(context: &Context) -> Answer {
    let config = context.config()?;
    let operator = operator(&config).await?;
    let found = operator.show(&topology(&config)).await?;
    operator.close().await;
    if context.json {
        return output::json(&found);
    }
    let listed = |found: &Found| {
        vec![
            found.name.clone(),
            found.kind.to_owned(),
            if found.exists { "yes" } else { "missing" }.to_owned(),
            or_dash(found.messages),
            or_dash(found.consumers),
        ]
    };
    let header = ["NAME", "KIND", "EXISTS", "READY", "CONSUMERS"];
    output::table(&header, found.iter().map(listed).collect())
}

async fn diff(context: &Context) -> Answer {
    let config = context.config()?;
    let operator = operator(&config).await?;
    let diff = operator.diff(&topology(&config)).await?;
    operator.close().await;
    if context.json {
        output::json(&diff)?;
    } else {
        output::text(&told(&diff).join("\n"))?;
    }
    if diff.is_empty() {
        return Ok(());
    }
    Err(CommandError::Failed(
        "the broker differs; `producer topology declare` adds what is missing, a conflicting queue \
         has to be emptied and deleted first"
            .to_owned(),
    ))
}

fn told(diff: &Diff) -> Vec<String> {
    if diff.is_empty() {
        return vec!["everything is as it should be".to_owned()];
    }
    let missing = diff.missing.iter().map(|name| format!("missing      {name}"));
    let differs = diff.conflicting.iter().map(|(name, how)| format!("conflicting  {name}: {how}"));
    let unchecked = diff.unchecked.iter().map(|(name, why)| format!("unchecked    {name}: {why}"));
    missing.chain(differs).chain(unchecked).collect()
}

fn export(args: Export, context: &Context) -> Answer {
    let config = context.config()?;
    let of_url = || Some(broker_settings(&config).ok()?.address().ok()?.vhost);
    let vhost = args.vhost.or_else(of_url).unwrap_or_else(|| "/".to_owned());
    output::json(&topology(&config).export(&vhost))
}
