//! The worker's commands: each loads the configuration, does one thing, and ends with the house's
//! exit codes (0 ok, 1 failed, 2 usage or configuration, 4 a service cannot be reached,
//! 75 start me again).

use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use shared::config::{self, Config, Problems};
use shared::process;
use shared::store::{Purpose, Store, StoreOptions};

use crate::handlers;
use crate::places::SlotsLost;
use crate::run::{self, Options};

/// Usage or configuration.
const USAGE: u8 = 2;
/// A service cannot be reached.
const UNREACHABLE: u8 = 4;
/// Only a new process gets its lost slots back: `EX_TEMPFAIL` of sysexits.h.
const START_AGAIN: u8 = 75;

/// Prints an error and answers its exit code.
pub fn exit(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    // Nobody to tell is no second failure.
    let _ = writeln!(std::io::stderr(), "error: {error:#}");
    let unreachable = error
        .downcast_ref::<shared::store::Error>()
        .is_some_and(shared::store::Error::is_unreachable)
        || error.downcast_ref::<shared::broker::Error>().is_some();
    let usage =
        error.is::<Problems>() || error.is::<config::Missing>() || error.is::<run::UnknownPool>();
    if error.is::<SlotsLost>() {
        return ExitCode::from(START_AGAIN);
    }
    ExitCode::from(match (usage, unreachable) {
        (true, _) => USAGE,
        (_, true) => UNREACHABLE,
        _ => 1,
    })
}

/// `worker run`.
pub fn run(path: Option<&Path>, pools: Vec<String>, slots: Option<u16>) -> anyhow::Result<()> {
    let config = load(path)?;
    let handlers = handlers::all(&config);
    let options = Options { pools, max_workers: slots.map(usize::from) };
    with_telemetry(run::run(config, options, handlers))
}

/// `worker handlers`.
pub fn handlers(path: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let config = load(path)?;
    let all = handlers::all(&config);
    if json {
        let list: Vec<serde_json::Value> = all
            .iter()
            .map(|handler| {
                serde_json::json!({
                    "task_type": handler.task_type(),
                    "summary": handler.summary(),
                    "pool": config.pool_of(handler.task_type()).map(|pool| pool.name.clone()),
                    "schema": handler.schema(),
                })
            })
            .collect();
        say(&serde_json::to_string_pretty(&list)?)?;
        return Ok(());
    }
    for handler in all.iter() {
        let pool = config.pool_of(handler.task_type()).map_or("no pool", |pool| &pool.name);
        say(&format!("{:<20} {:<10} {}", handler.task_type(), pool, handler.summary()))?;
    }
    Ok(())
}

/// `worker doctor`.
pub fn doctor(path: Option<&Path>) -> anyhow::Result<()> {
    let config = load(path)?;
    runtime()?.block_on(async {
        let dsn = config.database_url()?.clone();
        let store = Store::open(&StoreOptions::new(dsn, "worker doctor", Purpose::Command))?;
        store.ping().await?;
        say(&format!("ok      PostgreSQL answers at {}", store.address()))?;
        store.check_schema().await?;
        say(&format!("ok      the schema is version {}", shared::store::SCHEMA_VERSION))?;
        let settings = shared::broker::Settings::new(
            config.amqp_url()?.clone(),
            &config.rabbitmq.prefix,
            process::label("worker"),
        );
        let operator = shared::broker::Operator::connect(&settings).await?;
        say("ok      RabbitMQ answers")?;
        operator.close().await;
        for note in &config.notes {
            say(&format!("note    {note}"))?;
        }
        Ok(())
    })
}

/// `worker health`.
pub fn health(path: Option<&Path>) -> anyhow::Result<()> {
    let config = load(path)?;
    let address = config.http_addr.context("http_addr is not set, so there is no page to ask")?;
    shared::http::install_crypto();
    if runtime()?.block_on(shared::health::probe(address)) {
        return Ok(());
    }
    anyhow::bail!("not ready at http://{address}/readyz")
}

/// A line of data. A reader that has gone away has read enough.
fn say(line: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.context("writing to stdout"),
    }
}

fn load(path: Option<&Path>) -> anyhow::Result<Config> {
    Ok(config::load(path)?)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    // At least two threads: exporters and connections must go on when one is busy.
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.max(2))
        .enable_all()
        .build()
        .context("starting the runtime")
}

fn with_telemetry(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    shared::http::install_crypto();
    runtime()?.block_on(async {
        let telemetry = shared::telemetry::init("worker", &process::label("worker"))?;
        let result = work.await;
        telemetry.shutdown().await;
        result
    })
}
