//! `loadtest drill`: breaks the house in every way it claims to survive, and audits what is left.
//!
//! It starts PostgreSQL and RabbitMQ of its own and a fleet behind links that it can cut, lets work
//! flow, inflicts faults that a seed has drawn one after the other, heals everything, and reads the
//! invariants off the rows. It never touches services or processes that it did not start.

mod book;
mod campaign;
mod draw;
mod fault;
mod faults;
mod field;
mod fleet;
mod house;
mod invariants;
mod kept;
mod load;
mod log;
mod management;
mod recovery;
mod report;
mod rows;
mod services;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;
use shared::config::parse_duration;
use shared::domain::clock;
use shared::shutdown::Shutdown;
use tokio::time::Instant;

pub use book::{Book, End, Entry, Kind};
pub use fault::{Bite, Fault, Measured};
pub use faults::all as faults;
pub use field::{Field, until};
pub use fleet::{Fleet, Post};
pub use house::EFFECTS_TABLE;
pub use invariants::{Account, Invariant};
pub use log::Log;
pub use report::{Document, Seed, Strike};
pub use rows::Rows;
pub use services::{NotStarted, Services};

/// What the command line says.
#[derive(Args, Clone, Debug)]
pub struct DrillOptions {
    /// Decides which faults strike, whom and when; from the clock if not given
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// So many seeds in a row
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// Faults that each seed draws
    #[arg(long = "faults", value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Only this fault; may be given more than once, and then they strike in this order
    #[arg(long = "fault", value_name = "NAME", conflicts_with = "count", value_parser = known)]
    pub only: Vec<String>,
    /// Go on with further seeds until this is over, e.g. 10m
    #[arg(long = "for", value_name = "TIME", value_parser = some_time, conflicts_with = "seeds")]
    pub time: Option<Duration>,
    /// This machine is so many times slower than two idle cores: leases and limits are so much longer
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub slow: u32,
    /// List the faults and end
    #[arg(long)]
    pub list: bool,
    /// The script that starts the drill's own services; else script/services of the checkout
    #[arg(long, value_name = "PATH")]
    pub services: Option<PathBuf>,
    /// As one JSON document
    #[arg(long)]
    pub json: bool,
}

/// A fault as listed. JSON: `{"name","summary"}`.
#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    summary: &'static str,
}

/// Drills, prints the report, and fails on any breach.
pub async fn run(options: DrillOptions) -> anyhow::Result<()> {
    let faults = faults();
    if options.list {
        return list(&faults, options.json);
    }
    let script = match &options.services {
        Some(script) => script.clone(),
        None => Services::script()?,
    };
    let stop = Shutdown::new();
    stop.listen_for_signals().context("listening for signals")?;
    let mut found = Found::default();
    let ended = tokio::select! {
        ended = drill(script, &faults, &options, &mut found) => ended,
        // Whatever was started goes with what holds it.
        () = stop.soft.cancelled() => Err(anyhow::anyhow!("interrupted")),
    };
    // Also of a drill that was cut short: what was found is found.
    let document = Document::of(found.seeds, found.unavailable);
    if document.seeds.is_empty() {
        return ended;
    }
    if options.json {
        crate::report::print_json(&document)?;
    } else {
        print!("{}", report::render(&document));
    }
    ended?;
    match document.broken() {
        Some(broken) => bail!(broken),
        None => Ok(()),
    }
}

/// What a drill has found so far.
#[derive(Default)]
struct Found {
    seeds: Vec<Seed>,
    unavailable: BTreeMap<&'static str, String>,
}

/// A fault's name, as the command line takes it.
fn known(name: &str) -> Result<String, String> {
    let is_known = faults().iter().any(|fault| fault.name() == name);
    is_known.then(|| name.to_owned()).ok_or_else(|| "see loadtest drill --list".to_owned())
}

/// A time in which at least one seed runs.
fn some_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("no seed would run; give a time such as 10m".to_owned()),
        time => Ok(time),
    }
}

fn list(faults: &[Box<dyn Fault>], json: bool) -> anyhow::Result<()> {
    let listed: Vec<Listed> =
        faults.iter().map(|f| Listed { name: f.name(), summary: f.summary() }).collect();
    if json {
        return crate::report::print_json(&listed);
    }
    for fault in listed {
        println!("{:<24}  {}", fault.name, fault.summary);
    }
    Ok(())
}

async fn drill(
    script: PathBuf,
    faults: &[Box<dyn Fault>],
    options: &DrillOptions,
    found: &mut Found,
) -> anyhow::Result<()> {
    let log = Log::new();
    log.tell("starting PostgreSQL and RabbitMQ of the drill's own");
    let services = Arc::new(Services::start(script).await?);
    log.tell(format!("both answer; their data are in {}", services.state().display()));
    let until = options.time.map(|time| Instant::now() + time);
    let first = options.seed.unwrap_or_else(|| clock::now().timestamp().unsigned_abs());
    for seed in first.. {
        let done = found.seeds.len() as u64;
        match until {
            Some(until) if done > 0 && Instant::now() >= until => break,
            None if done >= options.seeds => break,
            _ => {}
        }
        let log = log.fresh();
        log.tell(format!("seed {seed}"));
        let mut field = Field::open(Arc::clone(&services), seed, options.slow, log).await?;
        found.unavailable = missing(faults, &field).await;
        let drawn = chosen(faults, &found.unavailable, seed, options)?;
        found.seeds.push(campaign::campaign(&mut field, seed, &drawn, until).await);
        field.close().await?;
    }
    if let Some(services) = Arc::into_inner(services) {
        services.wipe().await?;
    }
    Ok(())
}

/// What cannot be inflicted here, and why.
async fn missing(faults: &[Box<dyn Fault>], field: &Field) -> BTreeMap<&'static str, String> {
    let mut missing = BTreeMap::new();
    for fault in faults {
        if let Some(why) = fault.unavailable(field).await {
            missing.insert(fault.name(), why);
        }
    }
    missing
}

/// The faults of a seed: those that were asked for, else what it draws.
fn chosen<'a>(
    faults: &'a [Box<dyn Fault>],
    unavailable: &BTreeMap<&'static str, String>,
    seed: u64,
    options: &DrillOptions,
) -> anyhow::Result<Vec<&'a dyn Fault>> {
    let by_name = |name: &str| faults.iter().find(|f| f.name() == name).map(AsRef::as_ref);
    for name in &options.only {
        if let Some(why) = unavailable.get(name.as_str()) {
            bail!("{name} cannot be inflicted here: {why}");
        }
    }
    let names: Vec<&str> =
        faults.iter().map(|f| f.name()).filter(|name| !unavailable.contains_key(name)).collect();
    let drawn = draw::draw(&names, seed, options.count as usize);
    let drawn = if options.only.is_empty() {
        drawn
    } else {
        options.only.iter().map(String::as_str).collect()
    };
    Ok(drawn.into_iter().filter_map(by_name).collect())
}
