//! The door of `loadtest`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loadtest::drill::{self, DrillOptions};
use loadtest::ledger::{self, LedgerOptions};
use loadtest::report;
use loadtest::schedules::{self, SchedulesOptions};
use loadtest::stub_llm::{self, StubOptions};
use loadtest::throughput::{self, ThroughputOptions};

/// Measures and attacks a Belfry house.
#[derive(Debug, Parser)]
#[command(name = "loadtest", version)]
struct Cli {
    /// Configuration file, else BELFRY_CONFIG, else ./belfry.yaml.
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Breaks a fleet of its own in every way it claims to survive, and audits what is left.
    Drill(DrillOptions),
    /// Audits the promises on database and broker; exit 1 names what is broken.
    Ledger(LedgerOptions),
    /// Measures what a producer with many schedules costs and how late its ticks are.
    Schedules(SchedulesOptions),
    /// Serves an OpenAI-compatible model that answers, fails and counts as told.
    StubLlm(StubOptions),
    /// Measures how many tasks the programs beside this one accept and finish, and what it costs.
    Throughput(ThroughputOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = cli.config.as_deref();
    report::exit(match cli.command {
        Command::Drill(options) => drill::run(options).await,
        Command::Ledger(options) => ledger::run(config, options).await,
        Command::Schedules(options) => schedules::run(config, options).await,
        Command::StubLlm(options) => stub_llm::run(options).await,
        Command::Throughput(options) => throughput::run(config, options).await,
    })
}
