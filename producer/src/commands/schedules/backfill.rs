//! `producer schedules backfill`: the planned instants of a range, those that ran already left out.
//!
//! Each task has the key that its instant's tick has or would have had, so that the work of an
//! instant is done once, by the tick or by this; running the same command again goes on where it
//! stopped. Nothing is run that the ticker has yet to decide.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use shared::domain::schedule::{Overlap, Schedule};
use shared::domain::task::{Due, TaskId, TaskState};
use shared::store::{Asked, HandRun, HandRunEnd, InstantRow, Store};
use shared::telemetry::spans;
use uuid::Uuid;

use super::hand::{self, KeyOf};
use crate::commands::announce::Herald;
use crate::commands::connect::{self, Context};
use crate::commands::error::{Answer, CommandError};
use crate::commands::output::{self, counted, or_dash, time};
use crate::commands::request::instant;

/// Instants of one backfill unless `--limit` says otherwise.
pub const DEFAULT_LIMIT: u64 = 100;
/// Most that `--limit` may say: each is rendered and listed.
pub const MOST: u64 = 10_000;
/// Runs of one transaction, which must be short.
const CHUNK: usize = 100;

/// Planned instants that are to be run now.
#[derive(Debug, Args)]
pub struct Backfill {
    /// The schedule's name
    name: String,
    /// First instant; without an offset it is UTC
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Due,
    /// Last instant; what the ticker has yet to decide is left to it
    #[arg(long, value_name = "TIME", value_parser = instant)]
    to: Due,
    /// At most so many planned instants; more are refused as a whole
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT,
          value_parser = clap::value_parser!(u64).range(1..=MOST))]
    limit: u64,
    /// Only say what would be run
    #[arg(long)]
    dry_run: bool,
}

/// What is to become, or became, of an instant. JSON: one object with these keys.
#[derive(Debug, Serialize)]
struct Item {
    planned_at: DateTime<Utc>,
    /// Outcome of its tick; null where there is none.
    tick: Option<String>,
    action: Action,
    execution_key: String,
    task_id: Option<Uuid>,
    state: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// It has a task now; in a dry run, it would have.
    Run,
    /// Its tick made or found a task.
    Ticked,
    /// Its key is known: an earlier backfill, or another instant with the same key.
    Known,
}

/// JSON: one object with these keys.
#[derive(Debug, Serialize)]
struct Document<'a> {
    schedule: &'a str,
    dry_run: bool,
    run: usize,
    ticked: usize,
    known: usize,
    instants: &'a [Item],
}

pub(super) async fn backfill(args: Backfill, context: &Context) -> Answer {
    let config = context.config()?;
    let entry = hand::entry(&args.name, &config, context).await?;
    let (Due::At(from), Due::At(to)) = (args.from, args.to) else {
        return Err(CommandError::Usage("--from and --to are instants".to_owned()));
    };
    if to < from {
        return Err(CommandError::Usage("--to is before --from".to_owned()));
    }
    let (_, store) = context.store().await?;
    let row = hand::in_force(entry, &store, &config).await?;
    let to = decided(entry, to, row.mark);
    let planned = planned(entry, from, to, args.limit)?;
    let mut items = look(entry, &planned, &store).await?;
    let run = items.iter().filter(|item| item.action == Action::Run).count();
    if run > 0 {
        warn_of_ticks(entry, run);
    }
    if !args.dry_run && run > 0 {
        let herald = Herald::start(&config);
        let made = work(entry, &mut items, &store).await?;
        herald.announce(&store, &made).await;
    }
    tell(entry, &items, args.dry_run, context.json)
}

/// The end of the range, or the mark before it: later instants are the ticker's.
fn decided(entry: &Schedule, to: DateTime<Utc>, mark: DateTime<Utc>) -> DateTime<Utc> {
    if to > mark && entry.next_due(mark).is_some_and(|next| next <= to) {
        output::talk(&format!(
            "note: {} is decided up to {}; later instants are left to its ticks",
            entry.name,
            time(mark)
        ));
    }
    to.min(mark)
}

fn planned(
    entry: &Schedule,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    limit: u64,
) -> Result<Vec<DateTime<Utc>>, CommandError> {
    let planned: Vec<DateTime<Utc>> =
        hand::instants(entry, from, to).take(limit as usize + 1).collect();
    if planned.len() as u64 <= limit {
        return Ok(planned);
    }
    let all = entry.cron.count(from - TimeDelta::nanoseconds(1), to, entry.timezone);
    let (most, last) = (planned[limit as usize - 1], time(to));
    Err(CommandError::Usage(format!(
        "{all} instants are planned up to {last}, more than --limit {limit}, and nothing was run; end \
         with --to {} and go on from there, or raise --limit (at most {MOST})",
        time(most)
    )))
}

/// What each instant's tick and key say.
async fn look(
    entry: &Schedule,
    planned: &[DateTime<Utc>],
    store: &Store,
) -> Result<Vec<Item>, CommandError> {
    let ticks = store.ticks_at(&entry.name, planned).await?;
    let ticks: HashMap<DateTime<Utc>, InstantRow> = ticks.into_iter().map(|t| (t.at, t)).collect();
    let keys = planned
        .iter()
        .map(|at| Ok(hand::tick_key(entry, *at)?.to_string()))
        .collect::<Result<Vec<String>, CommandError>>()?;
    let known = store.known_keys(&entry.name, &keys).await?;
    let mut known: HashMap<String, (Option<Uuid>, Option<String>)> =
        known.into_iter().map(|k| (k.execution_key, (Some(k.task_id), k.state))).collect();
    let mut items = Vec::with_capacity(planned.len());
    for (at, execution_key) in planned.iter().zip(keys) {
        let tick = ticks.get(at);
        let ran = tick.filter(|tick| tick.task_id.is_some());
        let (action, task_id, state) = if let Some(tick) = ran {
            (Action::Ticked, tick.task_id, tick.state.clone())
        } else if let Some((task, state)) = known.get(&execution_key) {
            (Action::Known, *task, state.clone())
        } else {
            // Later instants of the same key are this one's.
            known.insert(execution_key.clone(), (None, None));
            (Action::Run, None, None)
        };
        let tick = tick.map(|tick| tick.outcome.clone());
        items.push(Item { planned_at: *at, tick, action, execution_key, task_id, state });
    }
    Ok(items)
}

/// A backfill is runs of its schedule, and its ticks meet them as they meet any run.
fn warn_of_ticks(entry: &Schedule, run: usize) {
    let what = match entry.overlap {
        Overlap::Allow | Overlap::QueueAll => return,
        Overlap::Replace => "the next tick cancels what is left of it",
        Overlap::Skip | Overlap::Queue => "ticks that come due meanwhile are skipped",
    };
    output::talk(&format!(
        "note: overlap is {}: {} one after another, and {what}",
        format!("{:?}", entry.overlap).to_lowercase(),
        if run == 1 { "1 instant runs".to_owned() } else { format!("{run} instants run") }
    ));
}

/// Makes the tasks, in order; answers those that start now.
async fn work(
    entry: &Schedule,
    items: &mut [Item],
    store: &Store,
) -> Result<Vec<TaskId>, CommandError> {
    let by = connect::actor();
    let overlap = if entry.overlap == Overlap::Allow { Overlap::Allow } else { Overlap::QueueAll };
    let asked = Asked { schedule: &entry.name, kind: "backfill", overlap, forced: false, by: &by };
    let mut todo: Vec<&mut Item> =
        items.iter_mut().filter(|item| item.action == Action::Run).collect();
    let bar = progress(todo.len());
    let mut starting = Vec::new();
    for chunk in todo.chunks_mut(CHUNK) {
        let runs = rendered(entry, chunk)?;
        let at = chunk[0].planned_at;
        let ends = store.run_by_hand(&asked, &runs).await.map_err(|e| stopped(at, &e.into()))?;
        let ends = ends.ok_or_else(|| {
            CommandError::Conflict(format!("{} was removed meanwhile", entry.name))
        })?;
        for ((item, run), end) in chunk.iter_mut().zip(&runs).zip(ends) {
            let (action, task, state) = match end {
                HandRunEnd::Made(state) => (Action::Run, run.task.id, state),
                HandRunEnd::Known { task, state, same_payload } => {
                    if !same_payload {
                        bar.suspend(|| other_payload(item, task));
                    }
                    (Action::Known, task, state)
                }
                // Neither policy of a backfill refuses.
                HandRunEnd::Refused { .. } => continue,
            };
            item.action = action;
            item.task_id = Some(task.0);
            item.state = Some(state.to_string());
            if action == Action::Run && state == TaskState::Queued {
                starting.push(task);
            }
        }
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    Ok(starting)
}

/// As for a tick: the task that has the key stands, and nothing new runs.
fn other_payload(item: &Item, task: TaskId) {
    output::talk(&format!(
        "note: {} is not run: its key {} belongs to task {task}, with another payload",
        time(item.planned_at),
        item.execution_key
    ));
}

fn rendered(entry: &Schedule, chunk: &[&mut Item]) -> Result<Vec<HandRun>, CommandError> {
    chunk
        .iter()
        .map(|item| {
            let mut run = hand::run(entry, item.planned_at, KeyOf::Tick)?;
            run.task.traceparent = spans::enqueue(&run.task, None).traceparent();
            Ok(run)
        })
        .collect()
}

/// The same error, with where it happened and how to go on.
fn stopped(at: DateTime<Utc>, error: &CommandError) -> CommandError {
    let said = format!(
        "{error}\nthe backfill stopped before {}; run the same command again to go on, what was made \
         is known by its keys",
        time(at)
    );
    match error {
        CommandError::Unreachable(_) => CommandError::Unreachable(said),
        _ => CommandError::Failed(said),
    }
}

/// Drawn on stderr, and only on a terminal.
fn progress(runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} instants, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn tell(entry: &Schedule, items: &[Item], dry_run: bool, json: bool) -> Answer {
    let of = |action| items.iter().filter(|item| item.action == action).count();
    let (run, ticked, known) = (of(Action::Run), of(Action::Ticked), of(Action::Known));
    if json {
        let schedule = &entry.name;
        return output::json(&Document { schedule, dry_run, run, ticked, known, instants: items });
    }
    if !items.is_empty() {
        let header = ["INSTANT", "TICK", "BACKFILL", "KEY", "TASK", "STATE"];
        output::table(&header, items.iter().map(|item| cells(item, dry_run)).collect())?;
    }
    let would = if dry_run { "would run" } else { "run now" };
    output::talk(&format!(
        "{}: {run} {would}, {ticked} ticked already, {known} known by their keys",
        counted(items.len(), "planned instant")
    ));
    Ok(())
}

fn cells(item: &Item, dry_run: bool) -> Vec<String> {
    let action = match (item.action, dry_run) {
        (Action::Run, true) => "would run",
        (Action::Run, false) => "runs now",
        (Action::Ticked, _) => "not again, ticked",
        (Action::Known, _) => "not again, its key is known",
    };
    vec![
        time(item.planned_at),
        or_dash(item.tick.as_ref()),
        action.to_owned(),
        item.execution_key.clone(),
        or_dash(item.task_id),
        or_dash(item.state.as_ref()),
    ]
}
