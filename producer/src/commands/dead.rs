//! `producer dead`: lists, shows, claims, replays and discards dead letters.
//!
//! A letter is closed once: the statement that replays it repeats that it is open, so that two
//! people cannot send one task twice.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use shared::domain::task::TaskId;
use shared::store::{DeadFilter, DeadLetter, Replayed, Store};
use shared::telemetry::spans;

use super::announce::Herald;
use super::connect::{self, Context, bounded};
use super::error::{self, Answer, CommandError};
use super::output::{self, fields, or_dash, short, time};
use super::request::one_line;
use super::tasks;

/// Most letters that `--all` replays at once.
const MOST: i64 = 10_000;

/// Looks after the tasks that were given up.
#[derive(Debug, Subcommand)]
pub enum Dead {
    /// Lists open dead letters, newest first
    List(List),
    /// Shows a dead letter with its task
    Show(One),
    /// Says who looks after an open dead letter: its alert is not repeated
    Claim(Claim),
    /// Gives a claimed dead letter up: its alert is repeated again
    Unclaim(One),
    /// Sends dead tasks again; their attempts, steps and paid answers stay
    Replay(Replay),
    /// Closes a dead letter without another run
    Discard(One),
}

/// Which letters.
#[derive(Debug, Args)]
pub struct List {
    /// Resolved ones too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    of: Of,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=MOST))]
    limit: i64,
}

/// A filter.
#[derive(Debug, Args)]
pub struct Of {
    /// Of this task type
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    /// Of this name
    #[arg(long)]
    name: Option<String>,
}

/// A letter.
#[derive(Debug, Args)]
pub struct One {
    /// The letter's number
    id: i64,
}

/// A letter and who looks after it.
#[derive(Debug, Args)]
pub struct Claim {
    /// The letter's number
    id: i64,
    /// Who looks after it. Default: you, as user@host
    #[arg(long, value_name = "NAME", value_parser = person)]
    by: Option<String>,
}

/// Letters to be sent again.
#[derive(Debug, Args)]
pub struct Replay {
    /// The letters' numbers
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<i64>,
    /// Every open letter, or those of --type and --name
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    of: Of,
    /// Only say which would be sent
    #[arg(long)]
    dry_run: bool,
}

/// Runs it.
pub async fn run(command: Dead, context: &Context) -> Answer {
    match command {
        Dead::List(args) => bounded("dead list", list(args, context)).await,
        Dead::Show(One { id }) => bounded("dead show", show(id, context)).await,
        Dead::Claim(args) => bounded("dead claim", claim(args, context)).await,
        Dead::Unclaim(One { id }) => bounded("dead unclaim", unclaim(id, context)).await,
        Dead::Replay(args) => replay(args, context).await,
        Dead::Discard(One { id }) => discard(id, context).await,
    }
}

fn filter(of: &Of, all: bool) -> DeadFilter {
    DeadFilter { all, id: None, task_type: of.task_type.clone(), name: of.name.clone() }
}

async fn letter(store: &Store, id: i64) -> Result<DeadLetter, CommandError> {
    let filter = DeadFilter { all: true, id: Some(id), ..DeadFilter::default() };
    store.dead_letters(&filter, 1).await?.pop().ok_or_else(|| {
        CommandError::NotFound(format!(
            "there is no dead letter {id}; `producer dead list --all` shows them"
        ))
    })
}

async fn list(args: List, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let letters = store.dead_letters(&filter(&args.of, args.all), args.limit).await?;
    tell(&letters, context)
}

fn tell(letters: &[DeadLetter], context: &Context) -> Answer {
    if context.json {
        return output::json(&letters);
    }
    if letters.is_empty() {
        output::talk("no dead letters match");
        return Ok(());
    }
    let header =
        ["LETTER", "DIED", "NAME", "TYPE", "TASK", "CLASS", "ERROR", "CLAIMED BY", "CLOSED"];
    output::table(&header, letters.iter().map(listed).collect())
}

fn listed(letter: &DeadLetter) -> Vec<String> {
    vec![
        letter.id.to_string(),
        time(letter.created_at),
        or_dash(letter.name.as_ref()),
        or_dash(letter.task_type.as_ref()),
        or_dash(letter.task_id),
        letter.error_class.clone(),
        short(&letter.error_message, 60),
        or_dash(letter.claimed_by.as_ref()),
        or_dash(closed(letter)),
    ]
}

/// `replayed by X at T`, of a closed one.
fn closed(letter: &DeadLetter) -> Option<String> {
    let resolution = letter.resolution.as_ref()?;
    let by = letter.resolved_by.as_deref().unwrap_or("unknown");
    Some(format!("{resolution} by {by} at {}", output::time_or_dash(letter.resolved_at)))
}

async fn show(id: i64, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let letter = letter(&store, id).await?;
    let task = match letter.task_id {
        Some(task) => store.task(TaskId(task)).await?,
        None => None,
    };
    if context.json {
        let mut document = json!(letter);
        document["task"] = task.as_ref().map(tasks::document).transpose()?.unwrap_or(Value::Null);
        return output::json(&document);
    }
    let head = fields(&[
        ("letter", Some(letter.id.to_string())),
        ("died", Some(time(letter.created_at))),
        ("error", Some(format!("{}: {}", letter.error_class, letter.error_message))),
        ("body", letter.body.clone()),
        ("looked after", letter.claimed_by.clone()),
        ("closed", closed(&letter)),
    ]);
    let sheet = task.map_or_else(String::new, |task| format!("\n\n{}", tasks::sheet(&task)));
    output::text(&format!("{head}{sheet}"))
}

async fn replay(args: Replay, context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let letters = chosen(&args, &store).await?;
    if args.dry_run {
        return tell(&letters, context);
    }
    let herald = Herald::start(&config);
    let by = connect::actor();
    let (mut done, mut errors) = (Vec::new(), Vec::new());
    for letter in &letters {
        match replay_one(&store, letter, &by).await {
            Ok(task) => done.push((letter.id, task)),
            Err(error) => errors.push(error),
        }
    }
    let tasks: Vec<TaskId> = done.iter().map(|(_, task)| *task).collect();
    if !tasks.is_empty() {
        herald.announce(&store, &tasks).await;
    }
    if context.json {
        let sent: Vec<Value> = done
            .iter()
            .map(|(id, task)| json!({ "id": id, "task_id": task, "state": "queued" }))
            .collect();
        output::json(&sent)?;
    } else {
        for (id, task) in &done {
            output::text(&format!("letter {id}: task {task} is queued again"))?;
        }
        if letters.is_empty() {
            output::talk("no open dead letters match");
        }
    }
    error::all(errors)
}

/// The named letters, or all open ones, oldest first.
async fn chosen(args: &Replay, store: &Store) -> Result<Vec<DeadLetter>, CommandError> {
    if args.all {
        let mut letters = store.dead_letters(&filter(&args.of, false), MOST).await?;
        // An unreadable message has no task that could run again.
        letters.retain(|letter| letter.task_id.is_some());
        letters.reverse();
        return Ok(letters);
    }
    let mut letters = Vec::with_capacity(args.ids.len());
    for &id in &args.ids {
        letters.push(letter(store, id).await?);
    }
    Ok(letters)
}

async fn replay_one(store: &Store, open: &DeadLetter, by: &str) -> Result<TaskId, CommandError> {
    let id = open.id;
    match store.replay(id, by).await? {
        Replayed::Queued(task) => {
            traced(store, task, by).await?;
            Ok(task)
        }
        Replayed::Unknown => Err(CommandError::NotFound(format!("there is no dead letter {id}"))),
        // Read again: another may have closed it since it was chosen.
        Replayed::NotOpen => Err(not_open(&letter(store, id).await?)),
    }
}

/// The replay in the traces, linked to where the task began and to its last attempt.
async fn traced(store: &Store, task: TaskId, by: &str) -> Answer {
    let row = store.task(task).await?;
    let row = row.as_ref();
    let origin = row.and_then(|row| row.traceparent.as_deref());
    let last = row.and_then(|row| row.attempts.last()?["traceparent"].as_str());
    let task_type = row.map_or("unknown", |row| row.summary.task_type.as_str());
    drop(spans::replay(&task.to_string(), task_type, by, origin, last));
    Ok(())
}

fn not_open(letter: &DeadLetter) -> CommandError {
    let id = letter.id;
    CommandError::Conflict(match closed(letter) {
        Some(closed) => format!("dead letter {id} was already {closed}"),
        None if letter.task_id.is_none() => format!(
            "dead letter {id} is a message that could not be read: there is no task to run again; \
             `producer dead discard {id}` closes it"
        ),
        None => format!("the task of dead letter {id} is not dead (any more); nothing was sent"),
    })
}

fn person(name: &str) -> Result<String, String> {
    match one_line(name).trim() {
        "" => Err("a name has at least one letter".to_owned()),
        name => Ok(name.to_owned()),
    }
}

async fn claim(args: Claim, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let (id, by) = (args.id, args.by.unwrap_or_else(connect::actor));
    if !store.claim_letter(id, &by).await? {
        let letter = letter(&store, id).await?;
        return Err(match (&letter.resolved_at, &letter.claimed_by) {
            (None, Some(other)) => CommandError::Conflict(format!(
                "dead letter {id} is claimed by {other} since {}; `producer dead unclaim {id}` \
                 takes it from them",
                output::time_or_dash(letter.claimed_at)
            )),
            _ => not_open(&letter),
        });
    }
    owned(&store, id, context, &format!("dead letter {id} is claimed by {by}")).await
}

async fn unclaim(id: i64, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    if !store.unclaim_letter(id).await? {
        return Err(not_open(&letter(&store, id).await?));
    }
    owned(&store, id, context, &format!("dead letter {id} is claimed by nobody")).await
}

/// The letter as it is now, or a sentence about it.
async fn owned(store: &Store, id: i64, context: &Context, sentence: &str) -> Answer {
    if context.json {
        return output::json(&letter(store, id).await?);
    }
    output::text(sentence)
}

async fn discard(id: i64, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let by = connect::actor();
    if !store.discard(id, &by).await? {
        return Err(not_open(&letter(&store, id).await?));
    }
    owned(&store, id, context, &format!("dead letter {id} is discarded")).await
}
