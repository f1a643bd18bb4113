//! `producer status`: everything at a glance, and the name of whatever is away.
//!
//! The database and the broker are asked side by side; one that is silent does not hide the other.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;
use shared::broker::Found;
use shared::config::Config;
use shared::domain::task::TaskState;
use shared::store::{Leadership, OpenMatters, TaskCount, WorkerRow};

use super::connect::{self, Context, bounded};
use super::error::{Answer, CommandError};
use super::output::{self, counted, or_dash, time, time_or_dash};
use super::schedules::{self, Line};

/// What the database knows.
#[derive(Debug, Serialize)]
struct Known {
    leader: Option<Leadership>,
    producers: Vec<WorkerRow>,
    workers: Vec<WorkerRow>,
    tasks: BTreeMap<&'static str, i64>,
    tasks_by_type: Vec<TaskCount>,
    open: OpenMatters,
    schedules: Vec<Line>,
}

/// Runs it.
pub async fn run(context: &Context) -> Answer {
    let config = context.config()?;
    let (known, queues) =
        tokio::join!(bounded("status", known(&config)), bounded("status", queues(&config)),);
    if context.json {
        output::json(&document(&known, &queues))?;
    } else {
        output::text(&told(&known, &queues).join("\n"))?;
    }
    match (known.err(), queues.err()) {
        (None, None) => Ok(()),
        (Some(error), None) | (None, Some(error)) => Err(error),
        (Some(first), Some(second)) => super::error::all(vec![first, second]),
    }
}

async fn known(config: &Config) -> Result<Known, CommandError> {
    let store = connect::store(config)?;
    store.check_schema().await?;
    let tasks_by_type = store.counts().await?;
    let mut tasks: BTreeMap<&'static str, i64> =
        TaskState::ALL.iter().map(|state| (state.as_str(), 0)).collect();
    for count in &tasks_by_type {
        *tasks.entry(count.state.as_str()).or_default() += count.tasks;
    }
    let (producers, workers) =
        store.workers(false).await?.into_iter().partition(|row| row.role == "producer");
    Ok(Known {
        leader: store.leader().await?.filter(|leader| leader.alive),
        producers,
        workers,
        tasks,
        tasks_by_type,
        open: store.open_matters().await?,
        schedules: schedules::lines(config, &store).await?,
    })
}

/// The queues that say something; those of the delay ladder only when a message is in them.
async fn queues(config: &Config) -> Result<Vec<Found>, CommandError> {
    let topology = connect::topology(config);
    let operator = connect::operator(config).await?;
    let found = operator.show(&topology).await?;
    operator.close().await;
    let ladder = format!("{}.retry.", config.rabbitmq.prefix);
    let tells = |found: &Found| !found.name.starts_with(&ladder) || found.messages != Some(0);
    Ok(found.into_iter().filter(|found| found.kind == "queue" && tells(found)).collect())
}

type Part<T> = Result<T, CommandError>;

fn document(known: &Part<Known>, queues: &Part<Vec<Found>>) -> serde_json::Value {
    let away = |service: &str, error: Option<&CommandError>| {
        error.map(|error| json!({ "service": service, "error": error.to_string() }))
    };
    let unreachable: Vec<_> =
        [away("postgres", known.as_ref().err()), away("rabbitmq", queues.as_ref().err())]
            .into_iter()
            .flatten()
            .collect();
    let known = known.as_ref().ok();
    json!({
        "leader": known.map(|known| &known.leader),
        "producers": known.map(|known| &known.producers),
        "workers": known.map(|known| &known.workers),
        "tasks": known.map(|known| &known.tasks),
        "tasks_by_type": known.map(|known| &known.tasks_by_type),
        "dead_letters_open": known.map(|known| known.open.dead_letters),
        "alerts_unsent": known.map(|known| known.open.unsent_alerts),
        "schedules": known.map(|known| &known.schedules),
        "queues": queues.as_ref().ok(),
        "unreachable": unreachable,
    })
}

fn told(known: &Part<Known>, queues: &Part<Vec<Found>>) -> Vec<String> {
    let mut lines = Vec::new();
    match known {
        Ok(known) => known_lines(known, &mut lines),
        Err(_) => lines.push("database       unknown, see below".to_owned()),
    }
    match queues {
        Ok(queues) => lines.extend(queues.iter().map(queue_line)),
        Err(_) => lines.push("queues         unknown, see below".to_owned()),
    }
    lines
}

fn known_lines(known: &Known, lines: &mut Vec<String>) {
    let leader = known.leader.as_ref().map_or_else(
        || format!("nobody: {}", schedules::NOBODY_LEADS),
        |leader| format!("{} since {} (term {})", leader.label, time(leader.since), leader.epoch),
    );
    lines.push(format!("leader         {leader}"));
    lines.push(format!("producers      {}", known.producers.len()));
    lines.push(format!("workers        {}", known.workers.len()));
    for worker in &known.workers {
        lines.push(format!("  {}  {} running  {}", worker.label, worker.running, worker.pools));
    }
    let tasks: Vec<String> = known
        .tasks
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(state, n)| format!("{n} {state}"))
        .collect();
    let tasks = if tasks.is_empty() { "none".to_owned() } else { tasks.join(", ") };
    lines.push(format!("tasks          {tasks}"));
    lines.push(format!("dead letters   {} open", known.open.dead_letters));
    lines.push(format!("alerts         {} unsent", known.open.unsent_alerts));
    for line in &known.schedules {
        lines.push(format!(
            "schedule       {}  last {} {}  next {}{}{}",
            line.name,
            time_or_dash(line.last),
            or_dash(line.last_outcome.as_ref()),
            time_or_dash(line.next),
            line.paused_by.as_ref().map(|by| format!("  paused by {by}")).unwrap_or_default(),
            schedules::behind(line).map(|behind| format!("  {behind}")).unwrap_or_default()
        ));
    }
}

fn queue_line(queue: &Found) -> String {
    match queue.messages {
        None => format!("queue          {}  missing; `producer topology declare`", queue.name),
        Some(messages) => format!(
            "queue          {}  {} ready, {}",
            queue.name,
            messages,
            counted(queue.consumers.unwrap_or(0) as usize, "consumer")
        ),
    }
}
