//! `producer completions`: a completion script for a shell.

use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate};

use super::error::Answer;
use super::output;
use crate::cli::Cli;

/// Prints a completion script.
#[derive(Debug, Args)]
#[command(after_help = "Example: producer completions bash > /etc/bash_completion.d/producer")]
pub struct Completions {
    /// For which shell
    shell: Shell,
}

/// Runs it.
pub fn run(args: &Completions) -> Answer {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "producer", &mut script);
    output::bytes(&script)
}
