//! `loadtest schedules`: what a producer with many schedules costs, and how late its ticks are.
//!
//! It runs the shipped `producer` on ground of its own, with a file of as many entries as asked for:
//! most are spread over the day, some are due in the same second again and again, and one ticks every
//! second. No worker runs: what is measured ends with the confirmed message. It ends with the ledger.

mod document;
mod file;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use chrono::{DateTime, Utc};
use clap::Args;
use shared::config::{self, parse_duration};
use shared::shutdown::Shutdown;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

pub use document::{Document, Lateness, Setup, Start};

use crate::fleet::{Ground, Member, Role};
use crate::{database, ledger, report};

/// Pause between two looks at the database: the error of a start's time.
const LOOK: Duration = Duration::from_millis(10);
/// Time for a process to stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time after which a burst's messages have their marks, if they ever get them.
const SETTLED: Duration = Duration::from_secs(3);

/// What the command line says.
#[derive(Args, Clone, Debug)]
pub struct SchedulesOptions {
    /// Schedules in the file
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub count: usize,
    /// Of them, due in the same second every ten seconds
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub due: usize,
    /// How many such seconds are measured
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub bursts: u32,
    /// The whole run may take this long
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub limit: Duration,
    /// As one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Measures, prints, and fails if a promise is broken.
pub async fn run(path: Option<&Path>, options: SchedulesOptions) -> anyhow::Result<()> {
    ensure!(options.due > 0 && options.due < options.count, "some must be due, and not all");
    let base = config::load(path)?;
    let yaml = file::of(&options);
    let file_bytes = yaml.len();
    let ground = Ground::prepare(&base, "schedules", &yaml).await?;
    drop(yaml);
    let stop = Shutdown::new();
    stop.listen_for_signals().context("listening for signals")?;
    let measured = tokio::select! {
        measured = measure(&ground, &options, file_bytes) => measured,
        () = sleep(options.limit) => Err(anyhow::anyhow!("not done within {:?}", options.limit)),
        () = stop.soft.cancelled() => Err(anyhow::anyhow!("interrupted")),
    };
    let cleared = ground.clear().await;
    let document = measured?;
    cleared?;
    if options.json {
        report::print_json(&document)?;
    } else {
        print!("{}", report::schedules(&document));
    }
    match document.ledger_broken {
        Some(broken) => bail!(broken),
        None => Ok(()),
    }
}

async fn measure(
    ground: &Ground,
    options: &SchedulesOptions,
    file_bytes: usize,
) -> anyhow::Result<Document> {
    let client = database::connect(ground.config().database_url()?).await?;
    let (first, producer) = start(ground, &client).await?;
    producer.stop(PATIENCE).await?;
    let (again, producer) = start(ground, &client).await?;

    let since = burst(&client, DateTime::UNIX_EPOCH, options).await?;
    let before = producer.usage()?;
    let quiet = Instant::now();
    let mut last = since;
    for _ in 0..options.bursts {
        last = burst(&client, last, options).await?;
    }
    let used = producer.usage()?;
    let seconds = quiet.elapsed().as_secs_f64();
    let ticks = client.query_one(include_str!("schedules/ticks.sql"), &[&since]).await?;
    let [decided, published] = lateness(&client, since).await?;
    producer.stop(PATIENCE).await?;
    let ledger = ledger::audit(ground.config(), &ledger::Options::default()).await?;
    let ticks: i64 = ticks.get("ticks");
    Ok(Document {
        setup: Setup {
            count: options.count,
            due: options.due,
            bursts: options.bursts,
            file_bytes,
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        },
        first_start: first,
        restart: again,
        decided,
        published,
        ticks_per_second: ticks as f64 / seconds,
        cpu_micros_per_tick: (used.cpu_micros - before.cpu_micros) as f64 / ticks as f64,
        cpu_share: (used.cpu_micros - before.cpu_micros) as f64 / 1e6 / seconds,
        peak_rss_bytes: used.peak_rss,
        ledger_ok: ledger.ok,
        ledger_broken: ledger.broken(),
    })
}

/// Starts a producer; the clock runs until its first tick is committed.
async fn start(ground: &Ground, client: &Client) -> anyhow::Result<(Start, Member)> {
    let newest = include_str!("schedules/newest.sql");
    let before: Option<DateTime<Utc>> = client.query_one(newest, &[]).await?.get("decided_at");
    let producer = Member::start(ground, Role::Producer)?;
    loop {
        let now: Option<DateTime<Utc>> = client.query_one(newest, &[]).await?.get("decided_at");
        if now > before {
            break;
        }
        sleep(LOOK).await;
    }
    let usage = producer.usage()?;
    let seconds = producer.started.elapsed().as_secs_f64();
    let cpu_seconds = usage.cpu_micros as f64 / 1e6;
    Ok((Start { seconds, cpu_seconds, peak_rss_bytes: usage.peak_rss }, producer))
}

/// Waits for a second after `since` in which all the due ones were ticked and published; answers it.
async fn burst(
    client: &Client,
    since: DateTime<Utc>,
    options: &SchedulesOptions,
) -> anyhow::Result<DateTime<Utc>> {
    let due = i64::try_from(options.due)?;
    let sql = include_str!("schedules/burst.sql");
    loop {
        let row = client.query_opt(sql, &[&since, &due, &SETTLED.as_secs_f64()]).await?;
        if let Some(row) = row {
            return Ok(row.get("planned_at"));
        }
        sleep(LOOK * 10).await;
    }
}

/// How late the ticks of the bursts after an instant were: their rows, and their messages' marks.
async fn lateness(client: &Client, since: DateTime<Utc>) -> anyhow::Result<[Lateness; 2]> {
    let row = client.query_one(include_str!("schedules/lateness.sql"), &[&since]).await?;
    let read = |column: &str| {
        let found: Option<Vec<f64>> = row.get(column);
        let [p50_ms, p99_ms, max_ms] =
            found.and_then(|found| found.try_into().ok()).context("no tick was due")?;
        anyhow::Ok(Lateness { p50_ms, p99_ms, max_ms })
    };
    Ok([read("decided")?, read("published")?])
}
