//! `producer artifacts`: lists finished reports and fetches one.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use shared::store::{Artifact, Store};

use super::connect::{Context, bounded};
use super::error::{Answer, CommandError};
use super::output::{self, time};

/// Looks at finished reports.
#[derive(Debug, Subcommand)]
pub enum Artifacts {
    /// Lists artifacts, newest first
    List(List),
    /// Writes an artifact to stdout or a file
    Get(Get),
}

/// Which.
#[derive(Debug, Args)]
pub struct List {
    /// Of this report
    report: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

/// Which one, and where to.
#[derive(Debug, Args)]
pub struct Get {
    /// Its number, or its report (the newest one), or REPORT@DATE
    #[arg(value_name = "ID|REPORT[@DATE]")]
    which: String,
    /// Write it to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs it.
pub async fn run(command: Artifacts, context: &Context) -> Answer {
    match command {
        Artifacts::List(args) => bounded("artifacts list", list(args, context)).await,
        Artifacts::Get(args) => bounded("artifacts get", get(args, context)).await,
    }
}

async fn list(args: List, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let artifacts = store.artifacts(args.report.as_deref(), args.limit).await?;
    if context.json {
        return output::json(&artifacts);
    }
    if artifacts.is_empty() {
        output::talk("no artifacts match");
        return Ok(());
    }
    let header = ["ARTIFACT", "REPORT", "DATE", "TYPE", "BYTES", "CREATED", "TASK"];
    output::table(&header, artifacts.iter().map(listed).collect())
}

fn listed(artifact: &Artifact) -> Vec<String> {
    vec![
        artifact.id.to_string(),
        artifact.report.clone(),
        artifact.date.clone(),
        artifact.content_type.clone(),
        artifact.bytes.to_string(),
        time(artifact.created_at),
        artifact.task_id.to_string(),
    ]
}

async fn get(args: Get, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let (found, body) = find(&store, &args.which).await?;
    if let Some(path) = &args.output {
        write(path, &body)?;
    }
    if context.json {
        let mut document = json!(found);
        // Binary content has no place in a JSON text; `-o` writes it.
        document["content"] = String::from_utf8(body).ok().into();
        return output::json(&document);
    }
    match args.output {
        None => output::bytes(&body),
        Some(path) => {
            let (of, size) = (format!("{}@{}", found.report, found.date), found.bytes);
            output::talk(&format!("{of}: {size} bytes in {}", path.display()));
            Ok(())
        }
    }
}

/// By number; else by report and date; else the newest of the report.
async fn find(store: &Store, which: &str) -> Result<(Artifact, Vec<u8>), CommandError> {
    let kept = if let Ok(id) = which.parse() {
        store.artifact(Some(id), None, None).await?
    } else {
        let (report, date) = match which.split_once('@') {
            Some((report, date)) => (report, Some(date)),
            None => (which, None),
        };
        store.artifact(None, Some(report), date).await?
    };
    kept.ok_or_else(|| {
        CommandError::NotFound(format!(
            "there is no artifact {which:?}; `producer artifacts list` shows them"
        ))
    })
}

fn write(path: &Path, content: &[u8]) -> Answer {
    std::fs::write(path, content).map_err(|error| {
        CommandError::Failed(format!("{} cannot be written: {error}", path.display()))
    })
}
