//! `producer workers list`: the processes of the fleet and what each runs now.

use clap::{Args, Subcommand};
use shared::store::WorkerRow;

use super::connect::{Context, bounded};
use super::error::Answer;
use super::output::{self, time};

/// Looks at the processes of the fleet.
#[derive(Debug, Subcommand)]
pub enum Workers {
    /// Lists living workers and producers
    List(List),
}

/// Which processes.
#[derive(Debug, Args)]
pub struct List {
    /// Stopped and lost ones too
    #[arg(long)]
    all: bool,
}

/// Runs it.
pub async fn run(command: Workers, context: &Context) -> Answer {
    let Workers::List(List { all }) = command;
    bounded("workers list", list(all, context)).await
}

async fn list(all: bool, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let rows = store.workers(all).await?;
    if context.json {
        return output::json(&rows);
    }
    if rows.is_empty() {
        output::talk("no process is alive; start `producer run` and `worker run`");
        return Ok(());
    }
    let header = ["PROCESS", "ROLE", "STATE", "RUNNING", "POOLS", "STARTED", "SEEN", "VERSION"];
    output::table(&header, rows.iter().map(listed).collect())
}

fn listed(row: &WorkerRow) -> Vec<String> {
    let pools = row.pools.as_object().into_iter().flatten();
    let pools: Vec<String> = pools.map(|(pool, slots)| format!("{pool}:{slots}")).collect();
    vec![
        row.label.clone(),
        row.role.clone(),
        standing(row).to_owned(),
        row.running.to_string(),
        if pools.is_empty() { "-".to_owned() } else { pools.join(" ") },
        time(row.started_at),
        time(row.seen_at),
        row.version.clone(),
    ]
}

fn standing(row: &WorkerRow) -> &'static str {
    match (row.alive, row.draining, row.stopped_at) {
        (_, _, Some(_)) => "stopped",
        (false, _, None) => "lost",
        (true, true, None) => "draining",
        (true, false, None) => "alive",
    }
}
