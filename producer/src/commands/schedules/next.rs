//! `producer schedules next`: the next instants, from the file alone when the database is away.

use clap::Args;
use shared::config::Config;
use shared::store::ScheduleRow;

use super::absent::{absent, away, ever, unapplied};
use super::line::{self, from, in_force, upcoming};
use crate::commands::connect::{self, Context};
use crate::commands::error::{Answer, CommandError};
use crate::commands::output::{self, time};

/// For whoever asks of an entry that is not applied.
const ADVICE: &str = "these instants come once it is";

/// Some instants of a schedule.
#[derive(Debug, Args)]
pub struct Next {
    /// The schedule's name
    name: String,
    /// How many
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

pub(super) async fn next(args: &Next, context: &Context) -> Answer {
    let config = context.config()?;
    let entry = config.schedules.iter().find(|entry| entry.name == args.name);
    let asked = match known(&args.name, &config).await {
        Ok(known) => Some(known),
        Err(error) if entry.is_none() => return Err(away(&args.name, &config, &error)),
        Err(error) => {
            output::talk(&format!(
                "note: from the file alone, since the database cannot say what is in force: {error}"
            ));
            None
        }
    };
    let known = asked.as_ref().and_then(Option::as_ref);
    let row = known.filter(|row| row.removed_at.is_none());
    let schedule = in_force(entry, row);
    let schedule = schedule.ok_or_else(|| absent(&args.name, &config, known))?;
    if let (Some(known), None, Some(_)) = (&asked, row, entry) {
        output::talk(&format!("note: {}", unapplied(&args.name, &config, known.as_ref(), ADVICE)));
    }
    let line = line::line(entry, row);
    if line.as_ref().is_some_and(|line| line.differs) {
        output::talk(&format!("note: {} says otherwise and is not applied yet", config.name));
    }
    if let Some(by) = line.and_then(|line| line.paused_by) {
        output::talk(&format!("note: it is paused by {by} and makes no tasks until it is resumed"));
    }
    let from = from(row);
    let instants: Vec<String> =
        upcoming(&schedule, from, args.count.into()).into_iter().map(time).collect();
    if instants.is_empty() {
        let why = match schedule.end_at {
            Some(end) => format!("it ends at {}", time(end)),
            None => "no time fits its line".to_owned(),
        };
        output::talk(&format!("note: {} has no next instant: {why}", args.name));
        return if context.json { output::json(&instants) } else { Ok(()) };
    }
    if context.json { output::json(&instants) } else { output::text(&instants.join("\n")) }
}

async fn known(name: &str, config: &Config) -> Result<Option<ScheduleRow>, CommandError> {
    let store = connect::store(config)?;
    store.check_schema().await?;
    ever(name, &store).await
}
