//! `producer schedules list`: what is next, what was last, and how often each really runs.

use std::collections::HashMap;

use clap::Args;
use serde::Serialize;
use shared::store::RecentTicks;

use super::cadence::Cadence;
use super::line::{self, Line};
use crate::commands::connect::Context;
use crate::commands::error::Answer;
use crate::commands::output::{self, counted, or_dash, time, time_or_dash};

/// What is wrong with a tick that was `deduplicated` by work of another kind.
pub(super) const OTHER_PAYLOAD: &str = "its key holds another payload";

/// A schedule as listed, with how often it runs. JSON: the keys of [`Line`] and `cadence`.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    line: Line,
    cadence: Cadence,
}

/// Which ones.
#[derive(Debug, Args)]
pub struct List {
    /// Removed ones too
    #[arg(long)]
    all: bool,
}

pub(super) async fn list(args: &List, context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let rows =
        if args.all { store.schedules_ever(None).await? } else { store.schedules(None).await? };
    let recent = store.recent_ticks(None).await?.into_iter();
    let mut recent: HashMap<String, RecentTicks> =
        recent.map(|ticks| (ticks.schedule.clone(), ticks)).collect();
    let listed = |(entry, row)| {
        let line: Line = line::line(entry, row)?;
        let schedule = line::in_force(entry, row)?;
        let (_, planned) = line::ahead(&schedule, row, 0);
        let cadence = Cadence::of(&planned, recent.remove(&line.name));
        Some(Listed { line, cadence })
    };
    if !rows.is_empty() {
        line::leader(&store).await?;
    }
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
    let other = line.last_other_payload.then(|| OTHER_PAYLOAD.to_owned());
    let told = [line.last_outcome.clone(), other, cadence.trouble()];
    let told: Vec<String> = told.into_iter().flatten().collect();
    or_dash((!told.is_empty()).then(|| told.join(", ")))
}

/// What no producer has decided, in words; `None` where a leader keeps up.
pub fn behind(line: &Line) -> Option<String> {
    let since = time(line.undecided_since?);
    let count = usize::try_from(line.undecided).unwrap_or(usize::MAX);
    Some(format!("behind: {} undecided since {since}", counted(count, "instant")))
}

/// Whether it ticks, in words.
pub(super) fn standing(line: &Line) -> String {
    if let Some(at) = line.removed_at {
        let at = time(at);
        return match (&line.renamed_to, line.heir_removed_at.map(time)) {
            (Some(heir), None) => format!("renamed to {heir} since {at}"),
            (Some(heir), Some(gone)) => {
                format!("renamed to {heir} since {at}, which is removed since {gone}")
            }
            (None, _) => format!("removed since {at}"),
        };
    }
    let paused = line.paused_by.as_ref().map(|by| format!("paused by {by}"));
    let state = match (paused, behind(line)) {
        _ if line.ended => "ended".to_owned(),
        (Some(paused), Some(behind)) => format!("{paused}, {behind}"),
        (Some(state), None) | (None, Some(state)) => state,
        (None, None) => "active".to_owned(),
    };
    match (line.in_file, line.applied) {
        (true, true) if line.differs => format!("{state}, and this file says otherwise"),
        (true, true) => state,
        (true, false) => "not applied yet (no producer has read this file)".to_owned(),
        (false, _) => format!("{state}, but not in this file"),
    }
}
