//! `producer publish`: makes one task, or one per line of a file, and tells the broker at once.
//!
//! The commit in Postgres is the acknowledgement. Everything after it only makes the task start
//! sooner, or waits for it.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use shared::config::{parse_duration, variable};
use shared::domain::payloads;
use shared::domain::task::{Due, Enqueued, TaskState};
use shared::store::{Store, TaskRow};
use shared::telemetry::spans;

use super::announce::Herald;
use super::batch;
use super::connect::Context;
use super::error::{Answer, CommandError};
use super::numbers;
use super::output;
use super::request::{Request, delay, instant};
use super::wait;

/// Largest text that is read as a payload; what is kept is smaller still.
const MAX_PAYLOAD_TEXT: u64 = 4 * 1024 * 1024;

/// Makes a task and tells the broker at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  producer publish http_call --payload '{\"url\": \"https://example.org/\"}' --wait
  producer publish report_generation --payload @report.json --key daily_2026-12-01 --delay 10m
  producer publish --batch tasks.jsonl

A batch file has one object a line: {\"type\", \"payload\"?, \"key\"?, \"name\"?, \"delay\"?, \"timeout\"?,
\"max_retry\"?}. Run it again to go on where it stopped: rows are recognised by their keys.")]
pub struct Publish {
    /// Which handler runs it
    #[arg(value_name = "TYPE", required_unless_present = "batch")]
    task_type: Option<String>,
    /// The handler's input: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON", default_value = "{}", allow_negative_numbers = true)]
    payload: String,
    /// Execution key: the same key never makes a second task. Default: the task's id
    #[arg(long, conflicts_with = "batch")]
    key: Option<String>,
    /// Scope of the key. Default: the task type
    #[arg(long, conflicts_with = "batch")]
    name: Option<String>,
    /// Start no sooner than after this: 30s, 10m, 2h, 3d
    #[arg(long, value_parser = delay, conflicts_with_all = ["at", "batch"])]
    delay: Option<Due>,
    /// Start no sooner than at this instant: 2026-12-01T09:00:00+08:00; without an offset it is UTC
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with = "batch")]
    at: Option<Due>,
    /// Time for one attempt. Default: 5m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "batch")]
    timeout: Option<Duration>,
    /// Retries after the first failure. Default: scheduler.max_retry
    #[arg(long, value_name = "N", conflicts_with = "batch")]
    max_retry: Option<u32>,
    /// Wait for the end and print the result; exit 5 if it does not complete in this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "60s", conflicts_with = "batch")]
    wait: Option<Duration>,
    /// One task a line from a JSONL file, or - for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "task_type")]
    batch: Option<String>,
    /// Enqueue the valid lines of a batch although others are not
    #[arg(long, conflicts_with = "task_type")]
    skip_invalid: bool,
}

/// Runs it.
pub async fn run(args: Publish, context: &Context) -> Answer {
    if let Some(file) = &args.batch {
        return batch::run(file, args.skip_invalid, context).await;
    }
    let config = context.config()?;
    let limit = args.wait;
    let mut task = request(args)?.task(&config).map_err(CommandError::Usage)?;
    // The caller's trace goes on in the task's.
    let span = spans::enqueue(&task, variable("TRACEPARENT").as_deref());
    task.traceparent = span.traceparent();

    if payloads::schema(&task.task_type).is_none() {
        output::talk(&format!(
            "note: no handler of the house runs {:?}; the task waits until a worker brings one",
            task.task_type
        ));
    }
    let herald = Herald::start(&config);
    let (_, store) = context.store().await?;
    let enqueued = store.enqueue(task).await?;
    if !enqueued.state.is_finished() && enqueued.state != TaskState::Scheduled {
        span.in_scope(herald.announce(&store, &[enqueued.task_id])).await;
    }
    drop(span);
    match limit {
        None => tell(&enqueued, context.json),
        Some(limit) => wait_for(&enqueued, limit, &store, context.json).await,
    }
}

fn request(args: Publish) -> Result<Request, CommandError> {
    Ok(Request {
        task_type: args.task_type.unwrap_or_default(),
        payload: payload(&args.payload)?,
        key: args.key,
        name: args.name,
        due: args.delay.or(args.at).unwrap_or_default(),
        timeout: args.timeout,
        max_retry: args.max_retry,
    })
}

fn tell(enqueued: &Enqueued, json: bool) -> Answer {
    if json {
        return output::json(enqueued);
    }
    let known =
        if enqueued.deduplicated { " (this key with this payload exists already)" } else { "" };
    output::text(&format!("task {} is {}{known}", enqueued.task_id, enqueued.state))
}

async fn wait_for(enqueued: &Enqueued, limit: Duration, store: &Store, json: bool) -> Answer {
    if !json {
        output::talk(&format!("task {} is {}; waiting", enqueued.task_id, enqueued.state));
    }
    let task = wait::finished(store, enqueued.task_id, Some(limit)).await?;
    if json {
        output::json(&document(enqueued, &task))?;
    } else if let Some(result) = &task.result {
        output::text(&output::pretty(result))?;
    }
    wait::verdict(&task)
}

fn document(enqueued: &Enqueued, task: &TaskRow) -> Value {
    json!({
        "task_id": enqueued.task_id,
        "name": enqueued.name,
        "execution_key": enqueued.execution_key,
        "state": task.summary.state,
        "deduplicated": enqueued.deduplicated,
        "result": task.result,
        "error": wait::error_json(task),
    })
}

/// JSON, `@FILE` or `-`.
fn payload(source: &str) -> Result<Value, CommandError> {
    let cannot = |what: &str, error: std::io::Error| {
        CommandError::Usage(format!("--payload: {what} cannot be read: {error}"))
    };
    let text = if source == "-" {
        limited(std::io::stdin().lock()).map_err(|error| cannot("stdin", error))?
    } else if let Some(path) = source.strip_prefix('@') {
        let file = std::fs::File::open(Path::new(path)).map_err(|error| cannot(path, error))?;
        limited(file).map_err(|error| cannot(path, error))?
    } else {
        source.to_owned()
    };
    let payload = serde_json::from_str(&text).map_err(|error| {
        CommandError::Usage(format!(
            "--payload is not JSON: {error}; give JSON in quotes, @FILE, or - for stdin"
        ))
    })?;
    numbers::check(text.as_bytes())
        .map_err(|what| CommandError::Usage(format!("--payload: {what}")))?;
    Ok(payload)
}

fn limited(from: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(MAX_PAYLOAD_TEXT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_PAYLOAD_TEXT {
        return Err(std::io::Error::other("it is larger than 4 MiB"));
    }
    Ok(text)
}
