//! `producer schedules`: what the file says, what the database has applied, and what comes next.

mod apply;

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};
use shared::config::{Config, suggestion};
use shared::domain::clock;
use shared::domain::schedule::{Schedule, changes};
use shared::store::{ScheduleRow, Store};
use uuid::Uuid;

use super::connect::{self, Context, bounded};
use super::error::{Answer, CommandError};
use super::output::{self, fields, or_dash, time, time_or_dash};

/// Ticks and instants that `show` lists.
const SHOWN: usize = 5;

/// Looks at schedules and pauses them.
#[derive(Debug, Subcommand)]
pub enum Schedules {
    /// Lists schedules with their next and last ticks
    List,
    /// Shows a schedule with its last ticks
    Show(Named),
    /// Lists the next instants of a schedule; needs no service
    Next(Next),
    /// Puts the file's schedules in force now, and says what that changes
    Apply(apply::Apply),
    /// Pauses a schedule: its ticks are recorded as paused and make no tasks
    Pause(Named),
    /// Resumes a schedule that was paused by hand
    Resume(Named),
}

/// A schedule.
#[derive(Debug, Args)]
pub struct Named {
    /// The schedule's name
    name: String,
}

/// Some instants of a schedule.
#[derive(Debug, Args)]
pub struct Next {
    /// The schedule's name
    name: String,
    /// How many
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

/// A schedule as listed. JSON: one object with these keys.
#[derive(Debug, Serialize)]
pub struct Line {
    /// Name.
    pub name: String,
    /// Cron line.
    pub cron: String,
    /// Zone.
    pub timezone: String,
    /// Task type.
    pub task_type: String,
    /// Next instant, paused or not.
    pub next: Option<DateTime<Utc>>,
    /// True when there is none any more because its `end_at` has passed.
    pub ended: bool,
    /// Last tick.
    pub last: Option<DateTime<Utc>>,
    /// Its outcome.
    pub last_outcome: Option<String>,
    /// Its task.
    pub last_task: Option<Uuid>,
    /// True when it makes no tasks now.
    pub paused: bool,
    /// By whom: a person, or `file`.
    pub paused_by: Option<String>,
    /// True when this file has it.
    pub in_file: bool,
    /// True when it is in force.
    pub applied: bool,
    /// True when this file says something else than what is in force.
    pub differs: bool,
}

/// Runs it.
pub async fn run(command: Schedules, context: &Context) -> Answer {
    match command {
        Schedules::List => bounded("schedules list", list(context)).await,
        Schedules::Show(Named { name }) => bounded("schedules show", show(&name, context)).await,
        Schedules::Next(args) => bounded("schedules next", next(&args, context)).await,
        Schedules::Apply(args) => apply::run(&args, context).await,
        Schedules::Pause(Named { name }) => pause(&name, Some(&connect::actor()), context).await,
        Schedules::Resume(Named { name }) => pause(&name, None, context).await,
    }
}

/// All schedules of the file and of the database, by name.
pub async fn lines(config: &Config, store: &Store) -> Result<Vec<Line>, CommandError> {
    let rows = store.schedules(None).await?;
    let now = clock::now();
    let by_name: HashMap<&str, &ScheduleRow> =
        rows.iter().map(|row| (row.name.as_str(), row)).collect();
    let row = |entry: &Schedule| by_name.get(entry.name.as_str()).copied();
    let in_file = config.schedules.iter().map(|entry| line(Some(entry), row(entry), now));
    let named: HashSet<&str> = config.schedules.iter().map(|entry| entry.name.as_str()).collect();
    let others = rows.iter().filter(|row| !named.contains(row.name.as_str()));
    let others = others.map(|row| line(None, Some(row), now));
    let mut all: Vec<Line> = in_file.chain(others).flatten().collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// What is in force wins: that is what ticks. The file is what the next apply makes of it.
fn line(entry: Option<&Schedule>, row: Option<&ScheduleRow>, now: DateTime<Utc>) -> Option<Line> {
    let schedule = in_force(entry, row)?;
    let by_hand = row.and_then(|row| row.paused_by.clone());
    let by_file = schedule.paused.then(|| "file".to_owned());
    let paused_by = by_hand.or(by_file);
    let from = from(row, now);
    Some(Line {
        name: schedule.name.clone(),
        cron: schedule.cron.as_str().to_owned(),
        timezone: schedule.timezone.name().to_owned(),
        task_type: schedule.task_type.clone(),
        next: schedule.next_due(from),
        ended: schedule.has_ended(from),
        last: row.and_then(|row| row.last_at),
        last_outcome: row.and_then(|row| row.last_outcome.clone()),
        last_task: row.and_then(|row| row.last_task),
        paused: paused_by.is_some(),
        paused_by,
        in_file: entry.is_some(),
        applied: row.is_some(),
        differs: row.is_some()
            && entry.is_some_and(|entry| !changes(&schedule, entry).is_empty()),
    })
}

/// The entry that ticks, or would; `None` for a row that a newer binary wrote.
fn in_force(entry: Option<&Schedule>, row: Option<&ScheduleRow>) -> Option<Schedule> {
    match row {
        Some(row) => Schedule::from_spec(&row.name, &row.spec).ok(),
        None => entry.cloned(),
    }
}

/// Instants up to the mark are decided already, whatever this host's clock says.
fn from(row: Option<&ScheduleRow>, now: DateTime<Utc>) -> DateTime<Utc> {
    row.map_or(now, |row| row.mark.max(now))
}

async fn list(context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let lines = lines(&config, &store).await?;
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

fn standing(line: &Line) -> String {
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

async fn show(name: &str, context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let row = store.schedules(Some(name)).await?.pop();
    let entry = config.schedules.iter().find(|entry| entry.name == name);
    let schedule = in_force(entry, row.as_ref()).ok_or_else(|| unknown(name, &config))?;
    let now = clock::now();
    let line = line(entry, row.as_ref(), now).ok_or_else(|| unknown(name, &config))?;
    let ticks = store.ticks(Some(name), SHOWN as i64).await?;
    let upcoming = upcoming(&schedule, from(row.as_ref(), now), SHOWN);
    let meaning = schedule.cron.explain(schedule.timezone);
    if context.json {
        let mut document = json!(line);
        document["explanation"] = meaning.into();
        document["entry"] = schedule.fields().into_iter().collect::<Map<_, _>>().into();
        document["spec"] = row.map_or(Value::Null, |row| row.spec);
        document["upcoming"] = json!(upcoming);
        document["ticks"] = json!(ticks);
        return output::json(&document);
    }
    let past = ticks.iter().map(|tick| {
        let task = tick.task_id.map(|task| format!("  task {task}")).unwrap_or_default();
        let span =
            if tick.count > 1 { format!(" ({} instants)", tick.count) } else { String::new() };
        format!("{}  {}{span}{task}", time(tick.planned_at), tick.outcome)
    });
    output::text(&fields(&[
        ("schedule", Some(line.name.clone())),
        ("cron", Some(format!("{} in {}", line.cron, line.timezone))),
        ("meaning", Some(meaning)),
        ("type", Some(line.task_type.clone())),
        ("state", Some(standing(&line))),
        ("payload", Some(output::pretty(&schedule.payload))),
        ("says", said(&schedule)),
        ("next", Some(upcoming.iter().map(|at| time(*at)).collect::<Vec<_>>().join("\n"))),
        ("last", (!ticks.is_empty()).then(|| past.collect::<Vec<_>>().join("\n"))),
    ]))
}

/// What it says beside its line, zone, type and payload, where that is no default.
fn said(schedule: &Schedule) -> Option<String> {
    let plain = Schedule {
        timezone: schedule.timezone,
        payload: schedule.payload.clone(),
        ..Schedule::new("", schedule.cron.clone(), &schedule.task_type, &schedule.pool)
    };
    let changes = changes(&plain, schedule);
    let lines: Vec<String> = changes
        .iter()
        .map(|change| match &change.new {
            Value::String(text) => format!("{}: {text}", change.field),
            other => format!("{}: {other}", change.field),
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn upcoming(schedule: &Schedule, from: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
    let next = |at: &DateTime<Utc>| schedule.next_due(*at);
    std::iter::successors(next(&from), next).take(count).collect()
}

async fn next(args: &Next, context: &Context) -> Answer {
    let config = context.config()?;
    let row = match applied(&args.name, &config).await {
        Ok(row) => row,
        Err(error) => {
            output::talk(&format!("note: from the file alone, the database is not there: {error}"));
            None
        }
    };
    let entry = config.schedules.iter().find(|entry| entry.name == args.name);
    let schedule = in_force(entry, row.as_ref()).ok_or_else(|| unknown(&args.name, &config))?;
    let now = clock::now();
    if let Some(line) = line(entry, row.as_ref(), now) {
        if let Some(by) = line.paused_by {
            output::talk(&format!("note: paused by {by}; it makes no tasks until it is resumed"));
        }
        if line.differs {
            output::talk(&format!("note: {} says otherwise and is not applied yet", config.name));
        }
    }
    let upcoming = upcoming(&schedule, from(row.as_ref(), now), args.count.into());
    let instants: Vec<String> = upcoming.into_iter().map(time).collect();
    if context.json { output::json(&instants) } else { output::text(&instants.join("\n")) }
}

async fn applied(name: &str, config: &Config) -> Result<Option<ScheduleRow>, CommandError> {
    let store = connect::store(config)?;
    store.check_schema().await?;
    Ok(store.schedules(Some(name)).await?.pop())
}

async fn pause(name: &str, by: Option<&str>, context: &Context) -> Answer {
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
        let lines = lines(&config, &store).await?;
        return output::json(&lines.iter().find(|line| line.name == name));
    }
    output::text(&format!("{name} is {}", if by.is_some() { "paused" } else { "resumed" }))
}

fn unknown(name: &str, config: &Config) -> CommandError {
    let names = config.schedules.iter().map(|entry| entry.name.as_str());
    CommandError::NotFound(format!(
        "there is no schedule {name:?} in {} or in the database{}",
        config.name,
        suggestion(name, names)
    ))
}
