//! `producer schedules list`: what is next, what was last, and how often each really runs.

use std::collections::HashMap;

use serde::Serialize;
use shared::domain::clock;
use shared::store::RecentTicks;

use super::cadence::{Cadence, Gaps, MEASURED};
use super::line::{self, Line};
use crate::commands::connect::Context;
use crate::commands::error::Answer;
use crate::commands::output::{self, or_dash, time_or_dash};

/// A schedule as listed, with how often it runs. JSON: the keys of [`Line`] and `cadence`.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    line: Line,
    cadence: Cadence,
}

pub(super) async fn list(context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let rows = store.schedules(None).await?;
    let recent = store.recent_ticks(None).await?.into_iter();
    let mut recent: HashMap<String, RecentTicks> =
        recent.map(|ticks| (ticks.schedule.clone(), ticks)).collect();
    let now = clock::now();
    let listed = |(entry, row)| {
        let line: Line = line::line(entry, row, now)?;
        let schedule = line::in_force(entry, row)?;
        let instants = line::upcoming(&schedule, line::from(row, now), MEASURED);
        let cadence = Cadence { planned: Gaps::of(&instants), recent: recent.remove(&line.name) };
        Some(Listed { line, cadence })
    };
    let all: Vec<Listed> = line::known(&config, &rows).into_iter().filter_map(listed).collect();
    if context.json {
        return output::json(&all);
    }
    if all.is_empty() {
        output::talk(&format!("{} has no schedules (`tasks:`)", config.name));
        return Ok(());
    }
    let header = ["NAME", "CRON", "ZONE", "TYPE", "NEXT", "LAST", "OUTCOME", "STATE", "CADENCE"];
    output::table(&header, all.iter().map(cells).collect())
}

fn cells(Listed { line, cadence }: &Listed) -> Vec<String> {
    vec![
        line.name.clone(),
        line.cron.clone(),
        line.timezone.clone(),
        line.task_type.clone(),
        time_or_dash(line.next),
        time_or_dash(line.last),
        outcome(line, cadence),
        standing(line),
        cadence.effective(),
    ]
}

/// The last tick's outcome, and what went wrong with the last task.
pub(super) fn outcome(line: &Line, cadence: &Cadence) -> String {
    let told = [line.last_outcome.clone(), cadence.trouble()];
    let told: Vec<String> = told.into_iter().flatten().collect();
    or_dash((!told.is_empty()).then(|| told.join(", ")))
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
