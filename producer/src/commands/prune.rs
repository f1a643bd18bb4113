//! `producer prune`: deletes what is over, now and all of it; the daemons do the same by and by.

use clap::Args;
use serde_json::json;
use shared::store::Pruned;

use super::connect::{Context, bounded};
use super::error::Answer;
use super::output;

/// Deletes what `retention` no longer keeps: finished tasks, closed dead letters, ticks, expired keys.
#[derive(Debug, Args)]
pub struct Prune {
    /// Only say how much would be deleted
    #[arg(long)]
    dry_run: bool,
}

/// Runs it.
pub async fn run(args: Prune, context: &Context) -> Answer {
    if args.dry_run {
        return bounded("prune --dry-run", dry_run(context)).await;
    }
    let (config, store) = context.store().await?;
    let mut all = Pruned::default();
    loop {
        // In chunks, so that nobody waits for a lock; what a chunk has deleted stays deleted.
        let some = store.prune(&config.retention).await?;
        all += some;
        if !some.is_full() {
            break;
        }
    }
    tell(&all, false, context)
}

async fn dry_run(context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    tell(&store.prunable(&config.retention).await?, true, context)
}

fn tell(pruned: &Pruned, dry_run: bool, context: &Context) -> Answer {
    if context.json {
        let mut document = json!(pruned);
        document["dry_run"] = dry_run.into();
        return output::json(&document);
    }
    let kinds = [
        ("tasks", pruned.tasks),
        ("ticks", pruned.ticks),
        ("dead letters", pruned.dead_letters),
        ("alerts", pruned.alerts),
        ("execution keys", pruned.execution_keys),
        ("ended processes", pruned.incarnations),
        ("reports", pruned.artifacts),
    ];
    let rows: Vec<String> = kinds
        .into_iter()
        .filter(|(_, rows)| *rows > 0)
        .map(|(kind, rows)| format!("{rows} {kind}"))
        .collect();
    let what = if rows.is_empty() { "nothing is over".to_owned() } else { rows.join(", ") };
    let verb = if dry_run { "would be deleted" } else { "deleted" };
    output::text(&if rows.is_empty() { what } else { format!("{verb}: {what}") })
}
