//! `producer schedules list`.

use super::line::{self, Line};
use crate::commands::connect::Context;
use crate::commands::error::Answer;
use crate::commands::output::{self, or_dash, time_or_dash};

pub(super) async fn list(context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let lines = line::lines(&config, &store).await?;
    if context.json {
        return output::json(&lines);
    }
    if lines.is_empty() {
        output::talk(&format!("{} has no schedules (`tasks:`)", config.name));
        return Ok(());
    }
    let header = ["NAME", "CRON", "ZONE", "TYPE", "NEXT", "LAST", "OUTCOME", "STATE"];
    output::table(&header, lines.iter().map(listed).collect())
}

fn listed(line: &Line) -> Vec<String> {
    vec![
        line.name.clone(),
        line.cron.clone(),
        line.timezone.clone(),
        line.task_type.clone(),
        time_or_dash(line.next),
        time_or_dash(line.last),
        or_dash(line.last_outcome.as_ref()),
        standing(line),
    ]
}

/// Whether it ticks, in words.
pub(super) fn standing(line: &Line) -> String {
    let state = match (&line.paused_by, line.ended) {
        (_, true) => "ended".to_owned(),
        (Some(by), false) => format!("paused by {by}"),
        (None, false) => "active".to_owned(),
    };
    match (line.in_file, line.applied) {
        (true, true) if line.differs => format!("{state}, and this file says otherwise"),
        (true, true) => state,
        (true, false) => "not applied yet (no producer has read this file)".to_owned(),
        (false, _) => format!("{state}, but not in this file"),
    }
}
