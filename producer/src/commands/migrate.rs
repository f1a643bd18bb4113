//! `producer migrate`: brings the database's schema to this binary's version.

use clap::Args;
use secrecy::ExposeSecret as _;
use shared::store::{self, SCHEMA_VERSION};

use super::connect::{self, Context, bounded};
use super::error::Answer;
use super::output::{self, counted};

/// Brings the database's schema to this version; safe to repeat and to run at once from many hosts.
#[derive(Debug, Args)]
pub struct Migrate {
    /// Only say whether it is needed: exit 1 if so
    #[arg(long)]
    check: bool,
}

/// Runs it.
pub async fn run(args: Migrate, context: &Context) -> Answer {
    if args.check {
        return bounded("migrate --check", check(context)).await;
    }
    let config = context.config()?;
    let report = store::migrate(config.database_url()?.expose_secret()).await?;
    if context.json {
        return output::json(&report);
    }
    for file in &report.applied {
        output::talk(&format!("applied {file}"));
    }
    let what = match report.applied.len() {
        0 => "nothing to do".to_owned(),
        n => format!("{} applied", counted(n, "migration")),
    };
    output::text(&format!("schema version {}: {what}", report.version))
}

async fn check(context: &Context) -> Answer {
    connect::store(&context.config()?)?.check_schema().await?;
    if context.json {
        return output::json(&serde_json::json!({ "version": SCHEMA_VERSION, "applied": [] }));
    }
    output::text(&format!("schema version {SCHEMA_VERSION}: nothing to do"))
}
