//! `producer`: reads the command line, runs one command, ends with its exit code.

use std::process::ExitCode;

use clap::Parser;
use producer::cli::{self, Cli};
use producer::commands::error::{self, CommandError};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(cause) => {
            let failed = CommandError::Failed(format!("no threads could be started: {cause}"));
            return error::report(Err(failed));
        }
    };
    let answer = runtime.block_on(cli::execute(cli));
    // A name that is still being looked up must not hold the exit.
    runtime.shutdown_background();
    error::report(answer)
}
