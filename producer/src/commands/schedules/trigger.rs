//! `producer schedules trigger`: one run now, on somebody's word, beside the ticks.
//!
//! It writes no tick row: what the schedule plans goes on as planned. Paused schedules may be
//! triggered; that is what one pauses and then tries.

use std::time::Duration;

use chrono::{DateTime, SubsecRound as _, Utc};
use clap::Args;
use serde_json::{Value, json};
use shared::config::{parse_duration, variable};
use shared::domain::schedule::{Overlap, Schedule};
use shared::domain::task::{Due, TaskId, TaskState};
use shared::store::{Asked, HandRun, HandRunEnd, Store};
use shared::telemetry::spans;

use super::hand::{self, KeyOf};
use crate::commands::announce::Herald;
use crate::commands::connect::{self, Context};
use crate::commands::error::{Answer, CommandError};
use crate::commands::output::{self, time};
use crate::commands::request::instant;
use crate::commands::wait;

/// One run by hand.
#[derive(Debug, Args)]
pub struct Trigger {
    /// The schedule's name
    name: String,
    /// Render key and payload for this instant instead of now; the same instant runs once.
    /// Without an offset it is UTC
    #[arg(long, value_name = "TIME", value_parser = instant)]
    at: Option<Due>,
    /// Run beside an unfinished run, whatever `overlap` says
    #[arg(long)]
    force: bool,
    /// Wait for the end and print the result; exit 5 if it does not complete in this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "60s")]
    wait: Option<Duration>,
}

/// What was made, or found.
struct Made {
    run: HandRun,
    task: TaskId,
    state: TaskState,
    deduplicated: bool,
}

pub(super) async fn trigger(args: Trigger, context: &Context) -> Answer {
    let config = context.config()?;
    let entry = hand::entry(&args.name, &config, context).await?;
    let herald = Herald::start(&config);
    let (_, store) = context.store().await?;
    hand::in_force(entry, &store, &config).await?;
    let made = ask(&args, entry, &store).await?;
    if !made.deduplicated && made.state == TaskState::Queued {
        herald.announce(&store, &[made.task]).await;
    }
    let Some(limit) = args.wait else { return tell(&made, context.json) };
    if !context.json {
        output::talk(&format!("task {} is {}; waiting", made.task, made.state));
    }
    let task = wait::finished(&store, made.task, Some(limit)).await?;
    if context.json {
        let mut document = document(&made);
        document["state"] = json!(task.summary.state);
        document["result"] = json!(task.result);
        document["error"] = wait::error_json(&task);
        output::json(&document)?;
    } else if let Some(result) = &task.result {
        output::text(&output::pretty(result))?;
    }
    wait::verdict(&task)
}

async fn ask(args: &Trigger, entry: &Schedule, store: &Store) -> Result<Made, CommandError> {
    let (at, key) = match args.at {
        Some(Due::At(at)) => (at, KeyOf::Instant),
        // The database's present: the instant is told to the handler, and hosts disagree.
        _ => (store.now().await?.trunc_subsecs(0), KeyOf::Run),
    };
    let mut run = hand::run(entry, at, key)?;
    let span = spans::enqueue(&run.task, variable("TRACEPARENT").as_deref());
    run.task.traceparent = span.traceparent();
    let by = connect::actor();
    let asked = Asked {
        schedule: &entry.name,
        kind: "trigger",
        overlap: if args.force { Overlap::Allow } else { entry.overlap },
        forced: args.force,
        by: &by,
    };
    let ends = store.run_by_hand(&asked, std::slice::from_ref(&run)).await?;
    let Some(end) = ends.map(|ends| ends.into_iter().next()) else {
        return Err(CommandError::Conflict(format!("{} was removed meanwhile", entry.name)));
    };
    match end {
        Some(HandRunEnd::Made(state)) => {
            Ok(Made { task: run.task.id, run, state, deduplicated: false })
        }
        Some(HandRunEnd::Known { task, state, same_payload }) => {
            if !same_payload {
                output::talk(&format!(
                    "note: task {task} ran for {} with another payload; without --at it runs anew",
                    time(at)
                ));
            }
            Ok(Made { task, run, state, deduplicated: true })
        }
        Some(HandRunEnd::Refused { behind }) => Err(refused(entry, at, behind)),
        None => Err(CommandError::Failed("the database answered for no run".to_owned())),
    }
}

fn refused(entry: &Schedule, at: DateTime<Utc>, behind: Option<TaskId>) -> CommandError {
    let behind = behind.map_or_else(|| "an earlier task".to_owned(), |task| format!("task {task}"));
    let why = match entry.overlap {
        Overlap::Queue => "and another waits already (overlap: queue)",
        _ => "(overlap: skip)",
    };
    CommandError::Conflict(format!(
        "{} was not run for {}: {behind} is unfinished {why}; wait for it with `producer tasks wait`, \
         or add --force to run beside it",
        entry.name,
        time(at)
    ))
}

fn document(made: &Made) -> Value {
    json!({
        "task_id": made.task,
        "name": made.run.task.name,
        "execution_key": made.run.task.key(),
        "state": made.state,
        "deduplicated": made.deduplicated,
        "scheduled_for": made.run.scheduled_for,
    })
}

fn tell(made: &Made, json: bool) -> Answer {
    if json {
        return output::json(&document(made));
    }
    let at = time(made.run.scheduled_for);
    let known = if made.deduplicated { " (it was triggered for that instant before)" } else { "" };
    output::text(&format!("task {} for {at} is {}{known}", made.task, made.state))
}
