//! `worker run`: everything a worker is made of, from its start to its drained end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use shared::broker::{Consumers, Publisher, Settings, Subscription, Topology};
use shared::config::{Config, Pool};
use shared::health::Health;
use shared::process;
use shared::relay::{BACKUP_GRACE, Relay};
use shared::shutdown::Shutdown;
use shared::store::{Purpose, Store, StoreOptions};
use shared::sweeps::Sweeps;
use shared::telemetry::metrics;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::consumer;
use crate::context::House;
use crate::gate::Gate;
use crate::handler::Handlers;
use crate::heartbeat::{Heartbeat, Who};
use crate::llm::Models;
use crate::outage::Outage;
use crate::places::{Places, SlotsLost};
use crate::processor::Processor;
use crate::slots::Slots;

/// Time for given-back tasks to be recorded after a hard stop.
pub const GIVE_BACK: Duration = Duration::from_secs(5);
/// Pause between looks for cancelled tasks, while something runs.
pub const CANCEL_POLL: Duration = Duration::from_secs(1);
/// Pause between updates of the readiness page.
const READINESS: Duration = Duration::from_millis(500);
/// Connections of the handlers' own pool.
const HANDLER_CONNECTIONS: usize = 4;

/// What the command line may narrow.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only these pools; all when empty.
    pub pools: Vec<String>,
    /// Slots of each pool, instead of the file's.
    pub max_workers: Option<usize>,
}

/// Runs a worker until SIGTERM or SIGINT, and until it has drained.
pub async fn run(config: Config, options: Options, handlers: Handlers) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    shutdown.listen_for_signals().context("listening for signals")?;
    serve(config, options, handlers, shutdown).await
}

/// Runs a worker until the soft token of `shutdown`, and until it has drained: for programs that
/// hold a worker among other things.
pub async fn serve(
    config: Config,
    options: Options,
    handlers: Handlers,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let pools = chosen(&config, &options)?;
    let label = process::label("worker");
    let threads = HandlerThreads(Some(handler_runtime()?));

    let worker = Worker::open(config, pools, handlers, label, shutdown, &threads.handle())?;
    worker.run().await
}

/// The handlers' runtime; handlers that ignore their end do not keep the process.
struct HandlerThreads(Option<tokio::runtime::Runtime>);

impl HandlerThreads {
    fn handle(&self) -> tokio::runtime::Handle {
        self.0.as_ref().expect("taken only when dropped").handle().clone()
    }
}

impl Drop for HandlerThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

struct Worker {
    config: Arc<Config>,
    pools: Vec<Pool>,
    processor: Processor,
    publisher: Publisher,
    settings: Settings,
    topology: Topology,
    relay: Relay,
    shutdown: Shutdown,
    /// Cancelled when too many slots are lost.
    restart: CancellationToken,
    stop_heart: CancellationToken,
    heart: std::thread::JoinHandle<()>,
}

impl Worker {
    fn open(
        config: Config,
        pools: Vec<Pool>,
        handlers: Handlers,
        label: String,
        shutdown: Shutdown,
        runtime: &tokio::runtime::Handle,
    ) -> anyhow::Result<Self> {
        let mut options =
            StoreOptions::new(config.database_url()?.clone(), &label, Purpose::Daemon);
        options.crash_limit = config.limits.crash_limit;
        options.key_retention = config.retention.execution_keys;
        let settings =
            Settings::new(config.amqp_url()?.clone(), &config.rabbitmq.prefix, label.clone())
                .with_lease(config.scheduler.heartbeat_ttl);
        options.place = Some(settings.place()?);
        let store = Store::open(&options)?;
        let handler_options = StoreOptions { pool_size: HANDLER_CONNECTIONS, ..options.clone() };
        let handler_store = Store::open(&handler_options)?;

        let all: Vec<String> = config.pools.iter().map(|pool| pool.name.clone()).collect();
        let topology = Topology::new(&config.rabbitmq.prefix, all);
        let publisher = Publisher::start(&settings, &topology, &shutdown)?;
        let relay = Relay::new(store.clone(), publisher.clone());

        let slots = Slots::new();
        let stop_heart = CancellationToken::new();
        let who = Who {
            label: label.clone(),
            pools: pools
                .iter()
                .map(|pool| (pool.name.clone(), pool.max_workers))
                .collect::<BTreeMap<_, _>>(),
            interval: config.scheduler.heartbeat_interval,
            ttl: config.scheduler.heartbeat_ttl,
        };
        let (heartbeat, heart) = Heartbeat::start(options, who, slots.clone(), stop_heart.clone())?;
        metrics::known_task_types(handlers.iter().map(|handler| handler.task_type().to_owned()));
        metrics::known_models(config.model_names().into_iter().map(str::to_owned));
        let config = Arc::new(config);
        let processor = Processor {
            store,
            house: House {
                store: handler_store,
                models: Models::from_config(&config),
                config: config.clone(),
            },
            handlers: Arc::new(handlers),
            heartbeat,
            slots,
            outage: Outage::new(shutdown.hard.clone()),
            runtime: runtime.clone(),
            relay: relay.clone(),
            gate: Gate::new(),
            shutdown: shutdown.clone(),
            label,
        };
        Ok(Self {
            config,
            pools,
            processor,
            publisher,
            settings,
            topology,
            relay,
            shutdown,
            restart: CancellationToken::new(),
            stop_heart,
            heart,
        })
    }

    async fn run(self) -> anyhow::Result<()> {
        let health =
            Health::expecting(&["postgres", "rabbitmq", "heartbeat"], self.shutdown.soft.clone());
        let _server = match self.config.http_addr {
            Some(address) => Some(health.serve(address).await?),
            None => None,
        };
        self.processor.store.wait_until_usable(&self.shutdown.soft).await;
        self.processor.store.begin_quotas(&self.config.quotas(), &self.shutdown.soft).await;
        self.spawn_sweeps();
        self.spawn_cancel_poll();
        self.spawn_restart();
        let loops = self.start_consumers(&health)?;
        if !self.shutdown.soft.is_cancelled() {
            info!(worker.label = %self.processor.label, "ready to take tasks");
        }

        let drained = futures::future::join_all(loops);
        let ended = tokio::select! {
            _ = drained => true,
            () = self.hard_stop() => false,
        };
        if !ended {
            warn!("giving back what still runs");
            // Slots record the give-back; what cannot is rescued after the lease.
            let _ = tokio::time::timeout(GIVE_BACK, self.until_idle()).await;
        }
        self.shutdown.soft.cancel();
        self.stop_heart.cancel();
        let heart = self.heart;
        let _ = tokio::task::spawn_blocking(move || heart.join()).await;
        drop(self.relay);
        drop(self.publisher);
        self.shutdown.hard.cancel();
        let _ = tokio::time::timeout(GIVE_BACK, self.shutdown.drained()).await;
        info!("stopped");
        if self.restart.is_cancelled() { Err(SlotsLost.into()) } else { Ok(()) }
    }

    /// Resolves at the hard token, or when a soft stop has lasted for `limits.drain`.
    async fn hard_stop(&self) {
        tokio::select! {
            () = self.shutdown.hard.cancelled() => {}
            () = async {
                self.shutdown.soft.cancelled().await;
                tokio::time::sleep(self.config.limits.drain).await;
            } => self.shutdown.hard.cancel(),
        }
    }

    async fn until_idle(&self) {
        while !self.processor.slots.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn spawn_sweeps(&self) {
        let (relay, shutdown) = (self.relay.clone(), self.shutdown.clone());
        self.shutdown.spawn(async move { relay.run(|| BACKUP_GRACE, &shutdown).await });
        let sweeps = Sweeps::new(
            self.processor.store.clone(),
            self.publisher.clone(),
            self.relay.clone(),
            &self.config,
        );
        let shutdown = self.shutdown.clone();
        self.shutdown.spawn(async move { sweeps.run(&shutdown).await });
    }

    /// Stops softly when too many slots are lost: what can end, ends first.
    fn spawn_restart(&self) {
        let (restart, shutdown) = (self.restart.clone(), self.shutdown.clone());
        self.shutdown.spawn(async move {
            tokio::select! {
                () = restart.cancelled() => {
                    error!("{SlotsLost}: draining");
                    shutdown.soft.cancel();
                }
                () = shutdown.soft.cancelled() => {}
            }
        });
    }

    /// Tells handlers of cancelled tasks, also while draining.
    fn spawn_cancel_poll(&self) {
        let (store, slots) = (self.processor.store.clone(), self.processor.slots.clone());
        let hard = self.shutdown.hard.clone();
        self.shutdown.spawn(async move {
            loop {
                tokio::select! {
                    () = hard.cancelled() => return,
                    () = tokio::time::sleep(CANCEL_POLL) => {}
                }
                let running = slots.tasks();
                if running.is_empty() {
                    continue;
                }
                // A failed look is followed by another.
                for (_, token) in store.cancelling(&running).await.unwrap_or_default() {
                    slots.cancel(token);
                }
            }
        });
    }

    fn start_consumers(&self, health: &Health) -> anyhow::Result<Vec<tokio::task::JoinHandle<()>>> {
        let subscriptions = self
            .pools
            .iter()
            .map(|pool| Subscription {
                queue: self.topology.pool_queue(&pool.name),
                prefetch: u16::try_from(pool.max_workers).unwrap_or(u16::MAX),
                tag: process::tag(&pool.name),
            })
            .collect();
        let consumers =
            Consumers::start(&self.settings, &self.topology, subscriptions, &self.shutdown)?;
        let connected = consumers.iter().map(shared::broker::Consumer::is_connected).collect();
        self.spawn_readiness(health.clone(), connected);
        let draining = self.processor.heartbeat.draining();
        Ok(consumers
            .into_iter()
            .zip(&self.pools)
            .map(|(consumer, pool)| {
                let one = Arc::new(consumer::Pool {
                    queue: self.topology.pool_queue(&pool.name),
                    places: Places::new(&pool.name, pool.max_workers, self.restart.clone()),
                    ack_early_above: self.config.limits.ack_early_above,
                    processor: self.processor.clone(),
                    publisher: self.publisher.clone(),
                });
                self.shutdown.spawn(one.run(consumer, draining.clone()))
            })
            .collect())
    }

    fn spawn_readiness(&self, health: Health, connected: Vec<tokio::sync::watch::Receiver<bool>>) {
        let (heartbeat, outage) = (self.processor.heartbeat.clone(), self.processor.outage.clone());
        let (publishing, trouble) = (self.publisher.readiness(), self.relay.trouble());
        let hard = self.shutdown.hard.clone();
        self.shutdown.spawn(async move {
            while !hard.is_cancelled() {
                let consuming = connected.iter().filter(|c| *c.borrow()).count();
                let (publishes, how) = publishing.now();
                let detail = format!("consuming {consuming} of {} queues, {how}", connected.len());
                health.set("rabbitmq", consuming == connected.len() && publishes, detail);
                health.set("heartbeat", heartbeat.is_alive(), "lease of this process");
                let answers = !outage.is_down() && trouble.borrow().is_none();
                health.set("postgres", answers && heartbeat.is_alive(), "claims and records");
                tokio::select! {
                    () = hard.cancelled() => return,
                    () = tokio::time::sleep(READINESS) => {}
                }
            }
        });
    }
}

/// Handlers run on threads of their own, so that one that blocks starves nothing but handlers.
fn handler_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.max(2))
        .thread_name("handler")
        .enable_all()
        .build()
        .context("starting the handlers' threads")
}

/// A pool was named on the command line that the configuration does not have.
#[derive(Debug, thiserror::Error)]
#[error("there is no pool {name:?} in task_pools; known: {known}")]
pub struct UnknownPool {
    name: String,
    known: String,
}

/// The pools this process serves.
fn chosen(config: &Config, options: &Options) -> Result<Vec<Pool>, UnknownPool> {
    for name in &options.pools {
        if !config.pools.iter().any(|pool| pool.name == *name) {
            let known: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
            return Err(UnknownPool { name: name.clone(), known: known.join(", ") });
        }
    }
    if config.pools.is_empty() {
        let known = "task_pools is empty".to_owned();
        return Err(UnknownPool { name: "any".to_owned(), known });
    }
    let mut pools: Vec<Pool> = config
        .pools
        .iter()
        .filter(|pool| options.pools.is_empty() || options.pools.contains(&pool.name))
        .cloned()
        .collect();
    if let Some(slots) = options.max_workers {
        for pool in &mut pools {
            pool.max_workers = slots;
        }
    }
    Ok(pools)
}
