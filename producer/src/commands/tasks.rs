//! `producer tasks`: lists, shows, explains, cancels and awaits tasks.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use shared::config::parse_duration;
use shared::domain::quota::dollars;
use shared::domain::task::{TaskId, TaskState};
use shared::store::{Store, TaskFilter, TaskRow, TaskSummary};
use shared::telemetry::context;

use super::connect::{Context, bounded};
use super::error::{self, Answer, CommandError};
use super::output::{self, fields, or_dash, short, time, time_or_dash};
use super::transcript;
use super::wait;
use super::why;

/// Steps and model calls that are shown of each task.
const SHOWN: usize = 50;

/// Looks at tasks, cancels and awaits them.
#[derive(Debug, Subcommand)]
pub enum Tasks {
    /// Lists tasks, newest first
    List(List),
    /// Shows everything that is known of a task
    Show(One),
    /// Explains where a task stands and what happens next
    Why(One),
    /// Cancels tasks; a running handler is told within a second
    Cancel(Many),
    /// Waits for a task's end; exit 5 if it does not complete
    Wait(Wait),
}

/// Which tasks.
#[derive(Debug, Args)]
pub struct List {
    /// scheduled, waiting, queued, running, retrying, completed, dead or cancelled
    #[arg(long, value_parser = state)]
    state: Option<TaskState>,
    /// Of this task type
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    /// Of this name: a schedule's, or the task type of ad-hoc tasks
    #[arg(long)]
    name: Option<String>,
    /// With this execution key
    #[arg(long)]
    key: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

/// A task.
#[derive(Debug, Args)]
pub struct One {
    /// The task's id
    #[arg(value_parser = task_id)]
    id: TaskId,
}

/// Some tasks.
#[derive(Debug, Args)]
pub struct Many {
    /// The tasks' ids
    #[arg(required = true, value_name = "ID", value_parser = task_id)]
    ids: Vec<TaskId>,
}

/// A task and a patience.
#[derive(Debug, Args)]
pub struct Wait {
    /// The task's id
    #[arg(value_parser = task_id)]
    id: TaskId,
    /// Give up after this. Default: never
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

fn state(text: &str) -> Result<TaskState, String> {
    text.parse()
}

/// A task's id from the command line.
pub fn task_id(text: &str) -> Result<TaskId, String> {
    text.parse().map_err(|_| "a task's id is a UUID; `producer tasks list` shows them".to_owned())
}

/// Runs it.
pub async fn run(command: Tasks, context: &Context) -> Answer {
    match command {
        Tasks::List(args) => bounded("tasks list", list(args, context)).await,
        Tasks::Show(One { id }) => bounded("tasks show", show(id, context)).await,
        Tasks::Why(One { id }) => bounded("tasks why", why::run(id, context)).await,
        Tasks::Cancel(Many { ids }) => cancel(&ids, context).await,
        Tasks::Wait(args) => wait_for(args, context).await,
    }
}

async fn list(args: List, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let filter = TaskFilter {
        state: args.state,
        task_type: args.task_type,
        name: args.name,
        execution_key: args.key,
    };
    let tasks = store.tasks(&filter, args.limit).await?;
    if context.json {
        return output::json(&tasks);
    }
    if tasks.is_empty() {
        output::talk("no tasks match");
        return Ok(());
    }
    let header = ["TASK", "NAME", "KEY", "TYPE", "STATE", "RUN", "CREATED", "ERROR"];
    output::table(&header, tasks.iter().map(listed).collect())
}

fn listed(task: &TaskSummary) -> Vec<String> {
    // An ad-hoc key repeats the id.
    let key = Some(&task.execution_key).filter(|key| **key != task.task_id.to_string());
    vec![
        task.task_id.to_string(),
        task.name.clone(),
        or_dash(key),
        task.task_type.clone(),
        task.state.to_string(),
        task.run.to_string(),
        time(task.created_at),
        or_dash(task.error_message.as_deref().map(|message| short(message, 60))),
    ]
}

/// A task that exists.
pub async fn found(store: &Store, id: TaskId) -> Result<TaskRow, CommandError> {
    store.task(id).await?.ok_or_else(|| wait::unknown(id))
}

async fn show(id: TaskId, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let task = found(&store, id).await?;
    if context.json { output::json(&document(&task)?) } else { output::text(&sheet(&task)) }
}

/// The task as DESIGN's JSON: the row, with `error` as one object and the `trace_id`.
pub fn document(task: &TaskRow) -> Result<Value, CommandError> {
    let mut document = serde_json::to_value(task)
        .map_err(|error| CommandError::Failed(format!("not JSON: {error}")))?;
    if let Some(map) = document.as_object_mut() {
        map.remove("error_class");
        map.remove("error_message");
        map.insert("error".to_owned(), wait::error_json(task));
        map.insert("trace_id".to_owned(), trace_id(task).into());
    }
    Ok(document)
}

/// Of the newest attempt that says one, else of the creation.
fn trace_id(task: &TaskRow) -> Option<String> {
    let attempts = task.attempts.iter().rev();
    let mut contexts = attempts
        .filter_map(|attempt| attempt["traceparent"].as_str())
        .chain(task.traceparent.as_deref());
    contexts.find_map(context::parse).map(|context| context.trace_id().to_string())
}

/// The task for people.
pub fn sheet(task: &TaskRow) -> String {
    let summary = &task.summary;
    let progress = task.progress.map(|p| format!("{} done, {} failed", p.done, p.failed));
    let error = summary.error_class.as_ref().map(|_| wait::failure(task));
    let head = fields(&[
        ("task", Some(summary.task_id.to_string())),
        ("type", Some(format!("{} in {}", summary.task_type, summary.pool))),
        ("name", Some(summary.name.clone())),
        ("key", Some(summary.execution_key.clone())),
        ("state", Some(summary.state.to_string())),
        (
            "run",
            Some(format!(
                "{} ({} failures, {} crashes, {} retries allowed)",
                summary.run, summary.failures, summary.crashes, task.max_retry
            )),
        ),
        ("schedule", summary.schedule.clone()),
        ("scheduled for", task.scheduled_for.map(time)),
        ("created", Some(time(summary.created_at))),
        ("due", Some(time(summary.due_at))),
        ("start by", task.start_by.map(time)),
        ("published", task.published_at.map(time)),
        ("deadline", task.deadline_at.map(time)),
        ("cancel asked", task.cancel_requested_at.map(time)),
        ("finished", summary.finished_at.map(time)),
        ("progress", progress),
        ("timeout", Some(format!("{} s", task.timeout_ms as f64 / 1000.0))),
        ("trace", trace_id(task)),
        ("payload", Some(output::pretty(&task.payload))),
        ("result", task.result.as_ref().map(output::pretty)),
        ("error", error),
    ]);
    let attempts = task.attempts.iter().map(attempt_line);
    let steps = lines(&task.steps, "steps", step_line);
    let calls = lines(&task.llm_calls, "model calls", call_line);
    let all = std::iter::once(head).chain(attempts).chain(steps).chain(calls);
    let all = all.chain(transcript::lines(task));
    all.collect::<Vec<_>>().join("\n")
}

/// The last of a list, and how many there are before them.
fn lines(list: &Value, word: &str, line: fn(&Value) -> String) -> Vec<String> {
    let all = list.as_array().map_or(&[][..], Vec::as_slice);
    let hidden = all.len().saturating_sub(SHOWN);
    let before = (hidden > 0).then(|| format!("… {hidden} {word} before (--json shows them)"));
    before.into_iter().chain(all[hidden..].iter().map(line)).collect()
}

fn step_line(step: &Value) -> String {
    let name = step["name"].as_str().unwrap_or_default();
    let took = step["took_ms"].as_i64().unwrap_or(0) as f64 / 1000.0;
    format!("step {name}: kept in attempt {}  {took:.3} s{}", step["run"], cost(step))
}

fn call_line(call: &Value) -> String {
    let text = |key: &str| call[key].as_str();
    let at = |key: &str| text(key).and_then(|at| at.parse::<DateTime<Utc>>().ok());
    let took = at("started_at").zip(at("ended_at")).map(|(from, to)| to - from);
    let tokens = call["input_tokens"].as_i64().zip(call["output_tokens"].as_i64());
    format!(
        "model call {} of {}: {} {}{}{}{}{}{}",
        call["call_no"],
        text("step").unwrap_or_default(),
        text("model").unwrap_or_default(),
        text("state").unwrap_or_default(),
        took.map(|took| format!("  {:.3} s", took.as_seconds_f64())).unwrap_or_default(),
        tokens.map(|(input, output)| format!("  {input} + {output} tokens")).unwrap_or_default(),
        if call["usage_estimated"] == true { " (our estimate)" } else { "" },
        cost(call),
        text("error_class").map(|class| format!("  {class}")).unwrap_or_default(),
    )
}

fn cost(row: &Value) -> String {
    row["cost_micro"].as_i64().map(|micro| format!("  ${:.6}", dollars(micro))).unwrap_or_default()
}

fn attempt_line(attempt: &Value) -> String {
    let text = |key: &str| attempt[key].as_str();
    let instant = |key: &str| time_or_dash(text(key).and_then(|at| at.parse().ok()));
    let error = text("error_class").map(|class| {
        format!("  {class}: {}", short(text("error_message").unwrap_or_default(), 100))
    });
    format!(
        "attempt {}: {}  {} to {}  {}{}",
        attempt["run"],
        text("outcome").unwrap_or("running"),
        instant("started_at"),
        instant("ended_at"),
        text("worker").unwrap_or("-"),
        error.unwrap_or_default()
    )
}

async fn cancel(ids: &[TaskId], context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let (mut done, mut errors) = (Vec::new(), Vec::new());
    for &id in ids {
        match cancel_one(&store, id).await {
            Ok(state) => done.push((id, state)),
            Err(error) => errors.push(error),
        }
    }
    if context.json {
        let list: Vec<Value> =
            done.iter().map(|(id, state)| json!({ "task_id": id, "state": state })).collect();
        output::json(&list)?;
    } else {
        for (id, state) in &done {
            let how = match state {
                TaskState::Running => "is running; its handler is told within a second",
                _ => "is cancelled",
            };
            output::text(&format!("task {id} {how}"))?;
        }
    }
    error::all(errors)
}

async fn cancel_one(store: &Store, id: TaskId) -> Result<TaskState, CommandError> {
    if let Some(state) = store.cancel(id).await? {
        return Ok(state);
    }
    let state = found(store, id).await?.summary.state;
    Err(CommandError::Conflict(format!("task {id} is {state} already; nothing was cancelled")))
}

async fn wait_for(args: Wait, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let task = wait::finished(&store, args.id, args.timeout).await?;
    if context.json {
        output::json(&document(&task)?)?;
    } else if let Some(result) = &task.result {
        output::text(&output::pretty(result))?;
    }
    wait::verdict(&task)
}
