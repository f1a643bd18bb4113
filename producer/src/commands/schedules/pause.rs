//! `producer schedules pause` and `resume`: each may be repeated, and says what it found.

use shared::domain::schedule::Schedule;
use shared::store::Paused;

use super::absent::{absent, ever, unapplied};
use super::line::{self, in_force};
use crate::commands::connect::Context;
use crate::commands::error::{Answer, CommandError};
use crate::commands::output;

pub(super) async fn pause(name: &str, by: Option<&str>, context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let entry = config.schedules.iter().find(|entry| entry.name == name);
    let Some(Paused { row, was_paused_by: was }) = store.pause_schedule(name, by).await? else {
        let row = ever(name, &store).await?;
        let advice = match by {
            Some(_) => "start `producer run`, or write `paused: true` into the file",
            None => "there is no pause to lift",
        };
        return Err(match entry {
            Some(_) => CommandError::Conflict(unapplied(name, &config, row.as_ref(), advice)),
            None => absent(name, &config, row.as_ref()),
        });
    };
    let says_paused = |schedule: Schedule| schedule.paused;
    let is_of_file = in_force(None, Some(&row)).is_some_and(says_paused);
    if by.is_none() && !is_of_file && entry.is_some_and(|entry| entry.paused) {
        output::talk(&format!(
            "note: {} says `paused: true` for it, and pauses it once it is applied",
            config.name
        ));
    }
    if context.json {
        output::json(&line::line(entry, Some(&row)))?;
    }
    let told = match (by, was) {
        (None, was) if is_of_file => {
            let lifted = was.map(|who| format!("; the pause by {who} is lifted"));
            return Err(CommandError::Conflict(format!(
                "{name} stays paused: the entry in force says `paused: true`; take that out of {} and run \
                 `producer schedules apply`{}",
                config.name,
                lifted.unwrap_or_default()
            )));
        }
        (None, None) => format!("{name} was not paused"),
        (None, Some(_)) => format!("{name} is resumed"),
        (Some(_), None) => format!("{name} is paused"),
        (Some(_), Some(who)) => format!("{name} was paused already, by {who}"),
    };
    if context.json { Ok(()) } else { output::text(&told) }
}
