//! The door of `loadtest`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loadtest::stub_llm::{self, StubOptions};

/// Measures and attacks a Belfry house.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves an OpenAI-compatible model that answers, fails and counts as told.
    StubLlm(StubOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::StubLlm(options) => stub_llm::run(options).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
