//! The worker's door.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use worker::commands;

/// Runs tasks: claims them, runs their handlers, records what came of it.
#[derive(Parser)]
#[command(name = "worker", version)]
struct Cli {
    /// Configuration file, else BELFRY_CONFIG, else ./belfry.yaml.
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Takes tasks until it is told to stop; the first SIGTERM drains, the second gives back.
    Run {
        /// Serve only this pool; may be given more than once.
        #[arg(long = "pool", value_name = "NAME")]
        pools: Vec<String>,
        /// Slots of each pool, instead of the file's.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
        max_workers: Option<u16>,
    },
    /// Lists the task types that this worker runs.
    Handlers {
        /// As JSON, with each payload's schema.
        #[arg(long)]
        json: bool,
    },
    /// Checks what a worker needs.
    Doctor,
    /// Asks the worker on this host whether it is ready.
    #[command(hide = true)]
    Health,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = cli.config.as_deref();
    commands::exit(match cli.command {
        Command::Run { pools, max_workers } => commands::run(config, pools, max_workers),
        Command::Handlers { json } => commands::handlers(config, json),
        Command::Doctor => commands::doctor(config),
        Command::Health => commands::health(config),
    })
}
