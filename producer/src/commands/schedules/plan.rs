//! `producer schedules plan`: a rehearsal of the file's schedules over a range. It asks no service.
//!
//! It says which ticks there will be, what changes of the clocks do to them, which start at the
//! same moment in the same pool, and when most of them come. What will be skipped for overlap or missed
//! it cannot know.

mod rehearsal;
mod told;

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use shared::config::{Config, suggestion};
use shared::domain::schedule::Schedule;
use shared::domain::task::Due;

use crate::commands::connect::Context;
use crate::commands::error::{Answer, CommandError};
use crate::commands::output;
use crate::commands::request::instant;

/// Ticks that are computed; more is an error that says how many there are.
pub const MOST_TICKS: u64 = 200_000;
/// Longest range: changes of the clocks are looked for day by day.
pub const LONGEST: TimeDelta = TimeDelta::days(3660);
/// Ticks that are listed unless `--limit` says otherwise.
pub const DEFAULT_LISTED: usize = 200;

/// A range to rehearse.
#[derive(Debug, Args)]
pub struct Plan {
    /// Only these schedules. Default: all of the file
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// First instant; without an offset it is UTC
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Due,
    /// Last instant
    #[arg(long, value_name = "TIME", value_parser = instant)]
    to: Due,
    /// List at most so many ticks; all are counted
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LISTED)]
    limit: usize,
}

pub(super) fn plan(args: &Plan, context: &Context) -> Answer {
    let config = context.config()?;
    let (Due::At(from), Due::At(to)) = (args.from, args.to) else {
        return Err(CommandError::Usage("--from and --to are instants".to_owned()));
    };
    let chosen = chosen(&args.names, &config)?;
    check(&chosen, from, to)?;
    let rehearsal = rehearsal::rehearse(&chosen, from, to);
    if context.json {
        return output::json(&told::document(&rehearsal, args.limit));
    }
    told::tell(&rehearsal, args.limit)
}

fn chosen<'a>(names: &[String], config: &'a Config) -> Result<Vec<&'a Schedule>, CommandError> {
    let known = || config.schedules.iter().map(|entry| entry.name.as_str());
    if let Some(name) = names.iter().find(|name| known().all(|known| known != *name)) {
        return Err(CommandError::NotFound(format!(
            "there is no schedule {name:?} in {}{}",
            config.name,
            suggestion(name, known())
        )));
    }
    let is_chosen = |entry: &&Schedule| names.is_empty() || names.contains(&entry.name);
    Ok(config.schedules.iter().filter(is_chosen).collect())
}

/// Refuses what would take minutes, with the number that says why.
fn check(chosen: &[&Schedule], from: DateTime<Utc>, to: DateTime<Utc>) -> Answer {
    if to < from {
        return Err(CommandError::Usage("--to is before --from".to_owned()));
    }
    if to - from > LONGEST {
        return Err(CommandError::Usage("a plan covers ten years at most".to_owned()));
    }
    let before = from - TimeDelta::nanoseconds(1);
    let ticks: u64 = chosen.iter().map(|e| e.cron.count(before, to, e.timezone)).sum();
    if ticks > MOST_TICKS {
        return Err(CommandError::Usage(format!(
            "{ticks} ticks lie in that range, and a plan looks at {MOST_TICKS} at most; shorten the \
             range or name schedules"
        )));
    }
    Ok(())
}
