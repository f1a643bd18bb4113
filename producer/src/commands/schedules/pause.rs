//! `producer schedules pause` and `resume`.

use super::line::{self, unknown};
use crate::commands::connect::Context;
use crate::commands::error::{Answer, CommandError};
use crate::commands::output;

pub(super) async fn pause(name: &str, by: Option<&str>, context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let entry = config.schedules.iter().find(|entry| entry.name == name);
    if !store.pause_schedule(name, by).await? {
        return Err(match entry {
            Some(_) => CommandError::Conflict(format!(
                "{name} is in {} but no producer has applied it yet; start `producer run`, or write \
                 `paused: true` into the file",
                config.name
            )),
            None => unknown(name, &config),
        });
    }
    if by.is_none() && entry.is_some_and(|entry| entry.paused) {
        output::talk(&format!("note: {} still says `paused: true` for it", config.name));
    }
    if context.json {
        let lines = line::lines(&config, &store).await?;
        return output::json(&lines.iter().find(|line| line.name == name));
    }
    output::text(&format!("{name} is {}", if by.is_some() { "paused" } else { "resumed" }))
}
