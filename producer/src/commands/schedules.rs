//! `producer schedules`: what the file says, what the database has applied, and what comes next.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};
use shared::config::{Config, suggestion};
use shared::domain::clock;
use shared::domain::cron::{Cron, parse_zone};
use shared::domain::schedule::Schedule;
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
    /// True when a leader has applied it.
    pub applied: bool,
}

/// Runs it.
pub async fn run(command: Schedules, context: &Context) -> Answer {
    match command {
        Schedules::List => bounded("schedules list", list(context)).await,
        Schedules::Show(Named { name }) => bounded("schedules show", show(&name, context)).await,
        Schedules::Next(args) => bounded("schedules next", next(&args, context)).await,
        Schedules::Pause(Named { name }) => pause(&name, Some(&connect::actor()), context).await,
        Schedules::Resume(Named { name }) => pause(&name, None, context).await,
    }
}

/// All schedules of the file and of the database, by name.
pub async fn lines(config: &Config, store: &Store) -> Result<Vec<Line>, CommandError> {
    let rows = store.schedules(None).await?;
    let now = clock::now();
    let row = |name: &str| rows.iter().find(|row| row.name == name);
    let in_file = config.schedules.iter().map(|entry| line(Some(entry), row(&entry.name), now));
    let known = |row: &&ScheduleRow| config.schedules.iter().all(|entry| entry.name != row.name);
    let others = rows.iter().filter(known).map(|row| line(None, Some(row), now));
    let mut all: Vec<Line> = in_file.chain(others).flatten().collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// The file's words win: they are what the next leader applies.
fn line(entry: Option<&Schedule>, row: Option<&ScheduleRow>, now: DateTime<Utc>) -> Option<Line> {
    let said =
        |from_file: Option<&str>, from_row: Option<&str>| from_file.or(from_row).map(str::to_owned);
    let (cron, zone) = plan(entry, row)?;
    let by_hand = row.and_then(|row| row.paused_by.clone());
    let by_file = entry.is_some_and(|entry| entry.paused).then(|| "file".to_owned());
    let paused_by = by_hand.or(by_file);
    Some(Line {
        name: said(entry.map(|e| e.name.as_str()), row.map(|r| r.name.as_str()))?,
        cron: cron.as_str().to_owned(),
        timezone: zone.name().to_owned(),
        task_type: said(entry.map(|e| e.task_type.as_str()), row.map(|r| r.task_type.as_str()))?,
        next: cron.next_after(from(row, now), zone),
        last: row.and_then(|row| row.last_at),
        last_outcome: row.and_then(|row| row.last_outcome.clone()),
        last_task: row.and_then(|row| row.last_task),
        paused: paused_by.is_some(),
        paused_by,
        in_file: entry.is_some(),
        applied: row.is_some(),
    })
}

/// Cron line and zone; `None` for a row that a newer binary wrote.
fn plan(entry: Option<&Schedule>, row: Option<&ScheduleRow>) -> Option<(Cron, Tz)> {
    if let Some(entry) = entry {
        return Some((entry.cron.clone(), entry.timezone));
    }
    let row = row?;
    Some((Cron::parse(&row.cron).ok()?, parse_zone(&row.timezone).ok()?))
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
    match (&line.paused_by, line.in_file, line.applied) {
        (Some(by), _, _) => format!("paused by {by}"),
        (None, true, true) => "active".to_owned(),
        (None, true, false) => "not applied yet (no producer has read this file)".to_owned(),
        (None, false, _) => "active, but not in this file".to_owned(),
    }
}

async fn show(name: &str, context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let row = store.schedules(Some(name)).await?.pop();
    let entry = config.schedules.iter().find(|entry| entry.name == name);
    let (cron, zone) = plan(entry, row.as_ref()).ok_or_else(|| unknown(name, &config))?;
    let now = clock::now();
    let line = line(entry, row.as_ref(), now).ok_or_else(|| unknown(name, &config))?;
    let ticks = store.ticks(Some(name), SHOWN as i64).await?;
    let upcoming = upcoming(&cron, zone, from(row.as_ref(), now), SHOWN);
    if context.json {
        let mut document = json!(line);
        document["explanation"] = cron.explain(zone).into();
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
        ("meaning", Some(cron.explain(zone))),
        ("type", Some(line.task_type.clone())),
        ("state", Some(standing(&line))),
        ("payload", entry.map(|entry| output::pretty(&entry.payload))),
        ("next", Some(upcoming.iter().map(|at| time(*at)).collect::<Vec<_>>().join("\n"))),
        ("last", (!ticks.is_empty()).then(|| past.collect::<Vec<_>>().join("\n"))),
    ]))
}

fn upcoming(cron: &Cron, zone: Tz, from: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
    let next = |at: &DateTime<Utc>| cron.next_after(*at, zone);
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
    let (cron, zone) = plan(entry, row.as_ref()).ok_or_else(|| unknown(&args.name, &config))?;
    let line = line(entry, row.as_ref(), clock::now());
    if let Some(by) = line.and_then(|line| line.paused_by) {
        output::talk(&format!("note: it is paused by {by} and makes no tasks until it is resumed"));
    }
    let from = from(row.as_ref(), clock::now());
    let instants: Vec<String> =
        upcoming(&cron, zone, from, args.count.into()).into_iter().map(time).collect();
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
