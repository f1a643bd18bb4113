//! `loadtest throughput`: how many tasks the shipped programs accept and finish, and what that costs.
//!
//! It runs on ground of its own, stops no clock before the store holds every task as completed and
//! the queues are empty, and ends with the ledger: a fast run that broke a promise is a failed one.
//! It compares with nobody; that is for whoever has two documents.

mod document;
mod observer;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use shared::config::{self, parse_duration};
use shared::domain::task::NewTask;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub use document::{Document, Drain, Publish, Setup, Steady};

use crate::fleet::{Door, Ground, Member, Role, Usage};
use crate::{ledger, report};
use observer::Observer;

/// The pool of the run.
const POOL: &str = "bench";
/// What the tasks of each phase are called.
const DRAINED: &str = "drained";
const WARM_UP: &str = "warm_up";
const STEADY: &str = "steady";
/// Tasks of one statement, and statements at once: as `producer publish --batch` does.
const CHUNK: usize = 500;
const AT_ONCE: usize = 2;
/// Time for a process to be ready, and to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the command line says.
#[derive(Args, Clone, Debug)]
pub struct ThroughputOptions {
    /// Tasks to accept and to drain
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub tasks: usize,
    /// Slots of each worker
    #[arg(long, value_name = "M", default_value_t = 500,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub slots: u16,
    /// Worker processes
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub workers: usize,
    /// Size of the text in each payload
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub payload_bytes: usize,
    /// Tasks a second of the steady feed
    #[arg(long, value_name = "N", default_value_t = 200,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub steady_rate: u32,
    /// Length of the steady feed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub steady_for: Duration,
    /// The whole run may take this long
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    pub limit: Duration,
    /// As one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Measures, prints, and fails if tasks are missing or a promise is broken.
pub async fn run(path: Option<&Path>, options: ThroughputOptions) -> anyhow::Result<()> {
    ensure!(options.tasks > 0 && options.workers > 0, "there must be a task and a worker");
    let base = config::load(path)?;
    let yaml =
        format!("task_pools:\n  {POOL}: {{max_workers: {}, task_types: [probe]}}\n", options.slots);
    let ground = Ground::prepare(&base, "bench", &yaml).await?;
    let document = ground.measure(options.limit, async |at| measure(at, &options).await).await?;
    if options.json {
        report::print_json(&document)?;
    } else {
        print!("{}", report::throughput(&document));
    }
    match document.ledger_broken {
        Some(broken) => bail!(broken),
        None => Ok(()),
    }
}

async fn measure(ground: &Ground, options: &ThroughputOptions) -> anyhow::Result<Document> {
    let observer = Observer::open(ground).await?;
    let publish = publish(ground, &observer, options).await?;
    let drain = drain(ground, &observer, options).await?;
    let steady = steady(ground, &observer, options).await?;
    let settled = ledger::Options { expect_settled: true, management: None };
    let ledger = ledger::audit(ground.config(), &settled).await?;
    Ok(Document {
        setup: Setup {
            tasks: options.tasks,
            slots: options.slots,
            workers: options.workers,
            payload_bytes: options.payload_bytes,
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        },
        publish,
        drain,
        steady,
        ledger_ok: ledger.ok,
        ledger_broken: ledger.broken(),
    })
}

async fn publish(
    ground: &Ground,
    observer: &Observer<'_>,
    options: &ThroughputOptions,
) -> anyhow::Result<Publish> {
    let door = Door::open(ground).await?;
    let payload = payload(options.payload_bytes);
    let before = observer.counters(false).await?;
    let started = Instant::now();

    let sizes = (0..options.tasks).step_by(CHUNK).map(|from| CHUNK.min(options.tasks - from));
    let chunks = stream::iter(sizes).map(|size| {
        let tasks: Vec<NewTask> = (0..size).map(|_| task(DRAINED, &payload)).collect();
        let door = &door;
        async move { door.accept(&tasks).await }
    });
    chunks.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    door.accept_the_rest().await?;

    let seconds = started.elapsed().as_secs_f64();
    let after = observer.counters(false).await?;
    door.close().await;
    let tasks = options.tasks as f64;
    Ok(Publish {
        seconds,
        per_second: tasks / seconds,
        wal_bytes_per_task: (after.wal_bytes - before.wal_bytes) as f64 / tasks,
    })
}

async fn drain(
    ground: &Ground,
    observer: &Observer<'_>,
    options: &ThroughputOptions,
) -> anyhow::Result<Drain> {
    let before = observer.counters(true).await?;
    let started = Instant::now();
    let mut workers = start(ground, options.workers)?;
    // Until all are ready the first have begun, so that the clock begins with the first result.
    let working = observer.first_completed(DRAINED).await?;
    let idle = used(&workers)?;
    ready(&mut workers).await?;
    let start_up_seconds = started.elapsed().as_secs_f64();

    let settled_at = observer.settled().await?;
    let used = used(&workers)?;
    let wal = observer.counters(false).await?.wal_bytes - before.wal_bytes;
    stop(workers).await?;

    let (completed, first_at) = observer.finished(DRAINED).await?;
    ensure!(
        usize::try_from(completed).ok() == Some(options.tasks),
        "{completed} of {} tasks completed",
        options.tasks
    );
    let messages_returned = observer.left_in_queues().await?;
    let commits = observer.counters(true).await?.commits - before.commits;
    let first_at = first_at.context("nothing finished")?;
    let seconds = (settled_at - first_at).as_seconds_f64();
    let tasks = options.tasks as f64;
    Ok(Drain {
        start_up_seconds,
        messages_returned,
        seconds,
        per_second: tasks / seconds,
        worker_cpu_micros_per_task: (used.cpu_micros - idle.cpu_micros) as f64
            / (tasks - working as f64).max(1.0),
        worker_peak_rss_bytes: used.peak_rss,
        commits_per_task: commits as f64 / tasks,
        wal_bytes_per_task: wal as f64 / tasks,
    })
}

async fn steady(
    ground: &Ground,
    observer: &Observer<'_>,
    options: &ThroughputOptions,
) -> anyhow::Result<Steady> {
    let mut workers = start(ground, options.workers)?;
    ready(&mut workers).await?;
    let door = Door::open(ground).await?;
    let payload = payload(options.payload_bytes);
    let warm_up = options.steady_rate as usize;
    let tasks = (f64::from(options.steady_rate) * options.steady_for.as_secs_f64()) as usize;
    let mut beat = interval(Duration::from_secs(1) / options.steady_rate);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = Vec::with_capacity(warm_up + tasks);
    for n in 0..warm_up + tasks {
        beat.tick().await;
        let task = task(if n < warm_up { WARM_UP } else { STEADY }, &payload);
        let own = door.clone();
        calls.push(door.shutdown.spawn(async move { own.accept(&[task]).await }));
    }
    for call in calls {
        call.await??;
    }
    door.accept_the_rest().await?;
    observer.settled().await?;
    stop(workers).await?;
    door.close().await;

    let (completed, _) = observer.finished(STEADY).await?;
    ensure!(usize::try_from(completed).ok() == Some(tasks), "{completed} of {tasks} completed");
    let [p50_ms, p95_ms, p99_ms] = observer.latencies(STEADY).await?;
    Ok(Steady { per_second: options.steady_rate, tasks, p50_ms, p95_ms, p99_ms })
}

fn start(ground: &Ground, workers: usize) -> anyhow::Result<Vec<Member>> {
    (0..workers).map(|_| Member::start(ground, Role::Worker)).collect()
}

async fn ready(workers: &mut [Member]) -> anyhow::Result<()> {
    for worker in workers {
        worker.ready(PATIENCE).await?;
    }
    Ok(())
}

async fn stop(workers: Vec<Member>) -> anyhow::Result<()> {
    for worker in workers {
        let status = worker.stop(PATIENCE).await?;
        ensure!(status.success(), "a worker ended with {status}");
    }
    Ok(())
}

fn used(workers: &[Member]) -> anyhow::Result<Usage> {
    workers.iter().try_fold(Usage::default(), |sum, worker| Ok(sum.with(worker.usage()?)))
}

fn payload(bytes: usize) -> Value {
    json!({"echo": "x".repeat(bytes)})
}

fn task(name: &str, payload: &Value) -> NewTask {
    NewTask { name: name.to_owned(), ..NewTask::ad_hoc("probe", POOL, payload.clone()) }
}
