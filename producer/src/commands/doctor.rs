//! `producer doctor`: one line a check, with the mend where it failed.
//!
//! It changes nothing, and asks each service with a limit of its own. Only `--model` costs something:
//! one small question, by the way that the workers take.

mod checks;
mod ping;

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use shared::config::{Config, parse_duration};
use tokio::time::Instant;

use super::connect::Context;
use super::error::{Answer, CommandError};
use super::output::{self, counted};

/// Pause between two rounds of `--wait`.
const PAUSE: Duration = Duration::from_secs(1);

/// Checks configuration, services and their settings.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Repeat until everything is well, at most for this long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Ask a model one small, paid question instead: the default model, or this one
    #[arg(long, value_name = "NAME", num_args = 0..=1, conflicts_with = "wait")]
    #[expect(clippy::option_option, reason = "clap's shape of a flag with an optional value")]
    model: Option<Option<String>>,
}

/// The answer of one check. JSON: one object with these keys.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was checked.
    pub check: &'static str,
    /// True when it is well.
    pub ok: bool,
    /// What was found.
    pub detail: String,
    /// What to do; empty when it is well.
    pub mend: String,
    /// Which setting or side is at fault, in a word; only of a model that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// True when a service did not answer.
    #[serde(skip)]
    pub unreachable: bool,
    /// True when the configuration is wrong.
    #[serde(skip)]
    pub misconfigured: bool,
}

impl Check {
    /// It is well.
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self {
            check,
            ok: true,
            detail: detail.into(),
            mend: String::new(),
            cause: None,
            unreachable: false,
            misconfigured: false,
        }
    }

    /// It is not.
    fn failed(check: &'static str, detail: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { ok: false, mend: mend.into(), ..Self::ok(check, detail) }
    }

    /// It could not be asked, or the answer was an error.
    fn of_error(check: &'static str, error: &CommandError, mend: &str) -> Self {
        let unreachable = matches!(error, CommandError::Unreachable(_));
        Self { unreachable, ..Self::failed(check, error.to_string(), mend) }
    }
}

/// Runs it.
pub async fn run(args: Doctor, context: &Context) -> Answer {
    let config = context.config()?;
    if let Some(model) = args.model {
        let checks = vec![ping::ping(&config, model).await];
        tell(&checks, context.json)?;
        return verdict(&checks);
    }
    let deadline = args.wait.map(|wait| Instant::now() + wait);
    let checks = loop {
        let checks = examine(&config).await;
        let well = checks.iter().all(|check| check.ok);
        if well || deadline.is_none_or(|deadline| Instant::now() + PAUSE > deadline) {
            break checks;
        }
        tokio::time::sleep(PAUSE).await;
    };
    tell(&checks, context.json)?;
    verdict(&checks)
}

async fn examine(config: &Config) -> Vec<Check> {
    let (database, broker, model) =
        tokio::join!(checks::database(config), checks::broker(config), checks::model(config));
    let mut all = vec![checks::configuration(config)];
    all.extend(database);
    all.extend(broker);
    all.extend(model);
    all.push(checks::alerts(config));
    all
}

fn tell(checks: &[Check], json: bool) -> Answer {
    if json {
        let ok = checks.iter().all(|check| check.ok);
        return output::json(&json!({ "ok": ok, "checks": checks }));
    }
    let line = |check: &Check| {
        let mend = if check.mend.is_empty() { String::new() } else { format!("; {}", check.mend) };
        let word = if check.ok { "ok" } else { "FAILED" };
        format!("{word:7} {:14} {}{mend}", check.check, check.detail.replace('\n', " "))
    };
    output::text(&checks.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn verdict(checks: &[Check]) -> Answer {
    let failed = checks.iter().filter(|check| !check.ok).count();
    if failed == 0 {
        return Ok(());
    }
    let said = format!("{} failed", counted(failed, "check"));
    Err(if checks.iter().any(|check| check.unreachable) {
        CommandError::Unreachable(said)
    } else if checks.iter().any(|check| check.misconfigured) {
        CommandError::Usage(said)
    } else {
        CommandError::Failed(said)
    })
}
