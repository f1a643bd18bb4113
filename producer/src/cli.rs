//! The command line: global options, one variant per command, one function each.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use shared::config;
use shared::store::SCHEMA_VERSION;
use shared::telemetry::{self, Telemetry};

use crate::commands::connect::Context;
use crate::commands::error::Answer;
use crate::commands::{dead, migrate, publish, tasks};

/// Version of the binary, of the schema it needs and of its time zone data.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("BELFRY_COMMIT").unwrap_or("unknown commit");
    format!(
        "{} ({commit}, schema {SCHEMA_VERSION}, tz {})",
        env!("CARGO_PKG_VERSION"),
        chrono_tz::IANA_TZDB_VERSION
    )
});

/// Belfry's producer: turns cron ticks into tasks, and is the operator's command line.
#[derive(Debug, Parser)]
#[command(name = "producer", version = VERSION.as_str(), propagate_version = true, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Global {
    /// The configuration file. Default: $BELFRY_CONFIG, else ./belfry.yaml, else the environment
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    /// One JSON document on stdout instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Publish(publish::Publish),
    #[command(subcommand)]
    Tasks(tasks::Tasks),
    #[command(subcommand)]
    Dead(dead::Dead),
    Migrate(migrate::Migrate),
}

/// Runs the command.
pub async fn execute(cli: Cli) -> Answer {
    let context = Context { config: cli.global.config, json: cli.global.json };
    let telemetry = traced();
    let answer = match cli.command {
        Command::Publish(args) => publish::run(args, &context).await,
        Command::Tasks(command) => tasks::run(command, &context).await,
        Command::Dead(command) => dead::run(command, &context).await,
        Command::Migrate(args) => migrate::run(args, &context).await,
    };
    if let Some(telemetry) = telemetry {
        telemetry.shutdown().await;
    }
    answer
}

/// A command's spans are sent where the environment names a collector; it logs only when asked,
/// since its own words say what went wrong.
fn traced() -> Option<Telemetry> {
    let asked = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "RUST_LOG"];
    if asked.into_iter().all(|name| config::variable(name).is_none()) {
        return None;
    }
    telemetry::init("producer", &std::process::id().to_string()).ok()
}
