//! `producer cron next` and `producer cron explain`: what a cron line means, offline.
//!
//! They need no configuration and touch no service.

use std::fmt::Write as _;
use std::io::Write as _;

use chrono::{DateTime, SecondsFormat, Utc};
use chrono_tz::Tz;
use clap::{Args, Subcommand};
use serde_json::json;
use shared::domain::clock;
use shared::domain::cron::{Cron, parse_zone};

use super::request::read_instant;

/// Most instants that `cron next` lists.
const MAX_COUNT: u64 = 10_000;

/// What the user wrote cannot be understood: exit code 2.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Questions about a cron line.
#[derive(Debug, Subcommand)]
pub enum CronCommand {
    /// List the next instants of a cron line.
    Next {
        /// The line and its zone.
        #[command(flatten)]
        line: Line,
        /// List instants strictly after this one (RFC 3339; default: now).
        #[arg(long, value_name = "T")]
        from: Option<String>,
        /// How many to list.
        #[arg(long, value_name = "N", default_value_t = 5,
              value_parser = clap::value_parser!(u64).range(1..=MAX_COUNT))]
        count: u64,
    },
    /// Say in words when a cron line fires, and what it does when clocks change.
    Explain {
        /// The line and its zone.
        #[command(flatten)]
        line: Line,
    },
}

/// A cron line and the zone to read it in.
#[derive(Debug, Args)]
pub struct Line {
    /// Five fields, six with leading seconds, or a macro such as @daily. Quote it.
    #[arg(value_name = "EXPR")]
    expr: String,
    /// IANA name of the zone.
    #[arg(long, value_name = "Z", default_value = "UTC")]
    timezone: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Line {
    /// Reads both; an error in the expression names its field.
    fn read(&self) -> Result<(Cron, Tz), UsageError> {
        let cron = Cron::parse(&self.expr).map_err(|error| UsageError(error.to_string()))?;
        let tz = parse_zone(&self.timezone)
            .map_err(|error| UsageError(format!("--timezone: {error}")))?;
        Ok((cron, tz))
    }
}

/// Answers on standard output.
pub fn run(command: &CronCommand) -> Result<(), UsageError> {
    let answer = answer(command, clock::now())?;
    // A closed pipe is the reader's choice (`| head -1`), no failure.
    let _ = std::io::stdout().write_all(answer.as_bytes());
    Ok(())
}

fn answer(command: &CronCommand, now: DateTime<Utc>) -> Result<String, UsageError> {
    match command {
        CronCommand::Next { line, from, count } => {
            let (cron, tz) = line.read()?;
            let from = from.as_deref().map_or(Ok(now), parse_instant)?;
            let next = |at: &DateTime<Utc>| cron.next_after(*at, tz);
            let instants: Vec<_> =
                std::iter::successors(next(&from), next).take(*count as usize).collect();
            Ok(if line.json { told_as_json(&instants) } else { told(&instants, tz) })
        }
        CronCommand::Explain { line } => {
            let (cron, tz) = line.read()?;
            let explanation = cron.explain(tz);
            if !line.json {
                return Ok(explanation + "\n");
            }
            let answer = json!({
                "expression": cron.as_str(),
                "timezone": tz.name(),
                "has_seconds": cron.has_seconds(),
                "explanation": explanation,
            });
            Ok(format!("{answer}\n"))
        }
    }
}

fn parse_instant(text: &str) -> Result<DateTime<Utc>, UsageError> {
    read_instant(text).map_err(|what| UsageError(format!("--from: {text:?}: {what}")))
}

fn utc(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn told_as_json(instants: &[DateTime<Utc>]) -> String {
    let instants: Vec<_> = instants.iter().copied().map(utc).collect();
    format!("{}\n", json!(instants))
}

/// A line each: the instant, and what the clocks of the zone show then.
fn told(instants: &[DateTime<Utc>], tz: Tz) -> String {
    if instants.is_empty() {
        return "no instant is left before 2101\n".to_owned();
    }
    let mut text = String::new();
    for at in instants {
        let local = at.with_timezone(&tz).format("%a %Y-%m-%d %H:%M:%S %:z");
        let _ = writeln!(text, "{}  {local} {tz}", utc(*at));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        command: CronCommand,
    }

    #[track_caller]
    fn check(args: &[&str], expected: Result<&str, &str>) {
        let cli = Cli::try_parse_from([&["cron"], args].concat()).expect("valid arguments");
        let now = "2026-03-28T23:00:00Z".parse().expect("an instant");
        let seen = answer(&cli.command, now).map_err(|UsageError(why)| why);
        assert_eq!(seen.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn next_instants_are_listed_in_utc() {
        let berlin = ["next", "*/15 * * * *", "--timezone", "Europe/Berlin"];
        let after = ["--from", "2026-03-29T00:00:00Z", "--count", "2"];
        check(
            &[&berlin[..], &after[..], &["--json"]].concat(),
            Ok("[\"2026-03-29T00:15:00Z\",\"2026-03-29T00:30:00Z\"]\n"),
        );
        check(
            &[&berlin[..], &["--from", "2026-03-29T00:40:00Z", "--count", "2"]].concat(),
            Ok("2026-03-29T00:45:00Z  Sun 2026-03-29 01:45:00 +01:00 Europe/Berlin\n\
                2026-03-29T01:00:00Z  Sun 2026-03-29 03:00:00 +02:00 Europe/Berlin\n"),
        );
        check(&["next", "@daily", "--count", "1", "--json"], Ok("[\"2026-03-29T00:00:00Z\"]\n"));
        check(
            &["next", "@daily", "--from", "2100-12-31T12:00:00Z"],
            Ok("no instant is left before 2101\n"),
        );
    }

    #[test]
    fn a_line_is_explained() {
        check(&["explain", "0 18 * * *"], Ok("At 18:00 every day, UTC time.\n"));
        check(
            &["explain", " @hourly", "--json"],
            Ok("{\"explanation\":\"At minute 0 of every hour, UTC time.\",\
                \"expression\":\"@hourly\",\"has_seconds\":false,\"timezone\":\"UTC\"}\n"),
        );
    }

    #[test]
    fn mistakes_name_the_field_and_the_mend() {
        check(
            &["next", "5/15 * * * *"],
            Err("cron field minute: \"5/15\" is a step after a single value; write 5-59/15"),
        );
        check(
            &["explain", "* * * *"],
            Err("cron expression: 4 fields, not 5 or 6; \
                 minute hour day-of-month month day-of-week, with seconds in front if wanted"),
        );
        check(
            &["next", "@daily", "--timezone", "Europe/Berln"],
            Err("--timezone: unknown time zone \"Europe/Berln\"; did you mean Europe/Berlin?"),
        );
        check(
            &["next", "@daily", "--from", "yesterday"],
            Err("--from: \"yesterday\": expected 2026-12-01T09:00:00+08:00, \
                 or 2026-12-01T09:00, which is read as UTC"),
        );
    }

    #[test]
    fn a_count_has_bounds() {
        for count in ["0", "10001", "many"] {
            assert!(Cli::try_parse_from(["cron", "next", "@daily", "--count", count]).is_err());
        }
    }
}
