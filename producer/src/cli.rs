//! The command line: global options, one variant per command, one function each.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use shared::config;
use shared::process;
use shared::store::SCHEMA_VERSION;
use shared::telemetry::{self, Telemetry};

use crate::commands::connect::Context;
use crate::commands::error::{Answer, CommandError};
use crate::commands::{
    self, alerts, artifacts, completions, cron, dead, doctor, health, migrate, output, prune,
    publish, quota, request, schedules, status, tasks, topology, usage, workers,
};
use crate::run;

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
    /// Runs the daemon: leader or standby, relay, sweeps, alerts
    Run,
    Publish(publish::Publish),
    #[command(subcommand)]
    Tasks(tasks::Tasks),
    #[command(subcommand)]
    Dead(dead::Dead),
    #[command(subcommand)]
    Schedules(schedules::Schedules),
    /// Asks what a cron line means, offline
    #[command(subcommand)]
    Cron(cron::CronCommand),
    /// Shows leader, workers, tasks, queues and schedules at a glance
    Status,
    #[command(subcommand)]
    Workers(workers::Workers),
    #[command(subcommand)]
    Alerts(alerts::Alerts),
    #[command(subcommand)]
    Artifacts(artifacts::Artifacts),
    #[command(subcommand)]
    Quota(quota::Quota),
    Usage(usage::Usage),
    Doctor(doctor::Doctor),
    Migrate(migrate::Migrate),
    Prune(prune::Prune),
    #[command(subcommand)]
    Topology(topology::Topology),
    /// Looks at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    Completions(completions::Completions),
    /// Asks the daemon on this host whether it is ready
    #[command(hide = true)]
    Health,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Checks the file offline, payloads included, and lists all its problems
    Check,
}

/// Runs the command.
pub async fn execute(cli: Cli) -> Answer {
    let context = Context { config: cli.global.config, json: cli.global.json };
    let telemetry = traced(matches!(cli.command, Command::Run));
    let answer = Box::pin(dispatch(cli.command, &context)).await;
    if let Some(telemetry) = telemetry {
        telemetry.shutdown().await;
    }
    answer
}

async fn dispatch(command: Command, context: &Context) -> Answer {
    match command {
        Command::Run => daemon(context).await,
        Command::Publish(args) => publish::run(args, context).await,
        Command::Tasks(command) => tasks::run(command, context).await,
        Command::Dead(command) => dead::run(command, context).await,
        Command::Schedules(command) => schedules::run(command, context).await,
        Command::Cron(command) => {
            cron::run(&command).map_err(|error| CommandError::Usage(error.to_string()))
        }
        Command::Status => status::run(context).await,
        Command::Workers(command) => workers::run(command, context).await,
        Command::Alerts(command) => alerts::run(command, context).await,
        Command::Artifacts(command) => artifacts::run(command, context).await,
        Command::Quota(command) => quota::run(command, context).await,
        Command::Usage(args) => usage::run(args, context).await,
        Command::Doctor(args) => doctor::run(args, context).await,
        Command::Migrate(args) => migrate::run(args, context).await,
        Command::Prune(args) => prune::run(args, context).await,
        Command::Topology(command) => topology::run(command, context).await,
        Command::Config(ConfigCommand::Check) => check(context),
        Command::Completions(args) => completions::run(&args),
        Command::Health => health::run(context).await,
    }
}

/// The daemon judges the payloads of its schedules before it starts.
async fn daemon(context: &Context) -> Answer {
    let config = config::load_checked(context.config.as_deref(), &request::check_for)?;
    // An unset variable is only a note until its value is used, and here its schedule is.
    config.require_complete("tasks")?;
    run::run(config).await.map_err(|error| match error.downcast_ref::<config::Missing>() {
        Some(missing) => CommandError::Usage(missing.to_string()),
        None => CommandError::Failed(format!("{error:#}")),
    })
}

fn check(context: &Context) -> Answer {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let path = context.config.as_deref();
    let told =
        commands::config::check(path, context.json, &request::check_for, (&mut out, &mut err));
    let code = told.map_err(|error| CommandError::Failed(error.to_string()))?;
    output::bytes(&out)?;
    output::talk_bytes(&err);
    if code == 0 { Ok(()) } else { Err(CommandError::Told(code)) }
}

/// The daemon logs. A command's spans are sent where the environment names a collector; it logs only
/// when asked, since its own words say what went wrong.
fn traced(is_daemon: bool) -> Option<Telemetry> {
    let asked = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "RUST_LOG"];
    if !is_daemon && asked.into_iter().all(|name| config::variable(name).is_none()) {
        return None;
    }
    telemetry::init("producer", &process::label("producer")).ok()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Every command with its words, the hidden ones left out.
    fn spelled(command: &clap::Command, words: &str, all: &mut Vec<String>) {
        let visible = || command.get_subcommands().filter(|sub| !sub.is_hide_set());
        if visible().next().is_none() {
            all.push(words.to_owned());
        }
        visible().for_each(|sub| spelled(sub, &format!("{words} {}", sub.get_name()), all));
    }

    #[test]
    fn the_command_line_is_consistent_and_its_manual_whole() {
        let command = Cli::command();
        command.clone().debug_assert();
        let manual = include_str!("../../docs/commands.md");
        let mut all = Vec::new();
        spelled(&command, "producer", &mut all);
        assert!(all.len() > 25, "{all:?}");
        for words in all {
            assert!(manual.contains(&words), "docs/commands.md lacks `{words}`");
        }
    }
}
