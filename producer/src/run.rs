//! `producer run`: leader or standby; relay, sweeps, inbox, watch and alerts run on both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use shared::broker::{Publisher, Settings, Topology};
use shared::config::Config;
use shared::domain::attempt::Incarnation;
use shared::health::Health;
use shared::process;
use shared::relay::{BACKUP_GRACE, Relay};
use shared::retry::Pauses;
use shared::shutdown::Shutdown;
use shared::store::{Purpose, Registration, Store, StoreOptions};
use shared::sweeps::Sweeps;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::alerts::Alerts;
use crate::inbox::Inbox;
use crate::leader::Candidate;
use crate::mirror::Mirror;
use crate::watch::Watch;

/// Time that the loops get to end.
pub const DRAIN: Duration = Duration::from_secs(10);
/// Pause between updates of the readiness page.
const READINESS: Duration = Duration::from_millis(500);

/// Runs a producer until it is told to stop.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let read = Instant::now();
    let shutdown = Shutdown::new();
    shutdown.listen_for_signals().context("listening for signals")?;
    let label = process::label("producer");
    for note in &config.notes {
        info!(note, "configuration");
    }

    let pools: Vec<String> = config.pools.iter().map(|pool| pool.name.clone()).collect();
    let settings =
        Settings::new(config.amqp_url()?.clone(), &config.rabbitmq.prefix, label.clone())
            .with_lease(config.scheduler.heartbeat_ttl);
    let store = open(&config, &settings)?;
    let topology = Topology::new(&config.rabbitmq.prefix, pools);
    let publisher = Publisher::start(&settings, &topology, &shutdown)?;
    let relay = Relay::new(store.clone(), publisher.clone());

    let health = Health::expecting(&["postgres", "rabbitmq"], shutdown.soft.clone());
    let _server = match config.http_addr {
        Some(address) => Some(health.serve(address).await?),
        None => None,
    };
    let incarnation = Incarnation::new();
    let (interval, ttl) = (config.scheduler.heartbeat_interval, config.scheduler.heartbeat_ttl);
    let who = Registration {
        id: incarnation,
        role: "producer",
        label: label.clone(),
        pools: BTreeMap::new(),
        ttl,
    };
    if !store.wait_until_registered(&who, &shutdown.soft).await {
        return Ok(());
    }
    spawn_heartbeat(store.clone(), who, interval, &shutdown);
    spawn_readiness(store.clone(), &publisher, &relay, health, &shutdown);
    let config = Arc::new(config);
    let inbox = Inbox {
        config: config.clone(),
        store: store.clone(),
        relay: relay.clone(),
        publisher: publisher.clone(),
    };
    spawn_inbox(inbox, &settings, &topology, &shutdown)?;
    let (leads, leading) = watch::channel(false);
    let mirror = Mirror {
        store: store.clone(),
        publisher: publisher.clone(),
        settings,
        topology,
        leading: leading.clone(),
    };
    spawn_mirror(mirror, &shutdown);
    spawn_relay(relay.clone(), leading, &shutdown);
    let sweeps = Sweeps::new(store.clone(), publisher, relay.clone(), &config);
    let until = shutdown.clone();
    shutdown.spawn(async move { sweeps.run(&until).await });
    let alerts = Alerts::new(store.clone(), &config.alerts)?;
    let until = shutdown.clone();
    shutdown.spawn(async move { alerts.run(&until).await });
    let watch = Watch::new(store.clone(), ttl);
    let until = shutdown.clone();
    shutdown.spawn(async move { watch.run(&until).await });
    let candidate =
        Candidate { store, relay, config, read, incarnation, label, interval, ttl, leads };
    let until = shutdown.clone();
    shutdown.spawn(async move { Box::pin(candidate.run(&until)).await });

    shutdown.soft.cancelled().await;
    info!("stopping");
    if tokio::time::timeout(DRAIN, shutdown.drained()).await.is_err() {
        warn!("not everything ended in time; the database holds what is left");
    }
    Ok(())
}

fn open(config: &Config, settings: &Settings) -> anyhow::Result<Store> {
    let dsn = config.database_url()?.clone();
    let mut options = StoreOptions::new(dsn, &settings.label, Purpose::Daemon);
    options.crash_limit = config.limits.crash_limit;
    options.key_retention = config.retention.execution_keys;
    options.place = Some(settings.place()?);
    Ok(Store::open(&options)?)
}

fn spawn_mirror(mirror: Mirror, shutdown: &Shutdown) {
    let until = shutdown.clone();
    shutdown.spawn(async move { mirror.run(&until).await });
}

/// Every producer reads the inbox, leader or not.
fn spawn_inbox(
    inbox: Inbox,
    settings: &Settings,
    topology: &Topology,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let requests = inbox.open(settings, topology, shutdown)?;
    let until = shutdown.clone();
    shutdown.spawn(async move { inbox.run(requests, &until).await });
    Ok(())
}

/// The leader relays everything at once; a standby leaves it what is not late.
fn spawn_relay(relay: Relay, leading: watch::Receiver<bool>, shutdown: &Shutdown) {
    let until = shutdown.clone();
    shutdown.spawn(async move {
        let grace = || if *leading.borrow() { Duration::ZERO } else { BACKUP_GRACE };
        relay.run(grace, &until).await;
    });
}

/// Keeps a registered identity. A producer holds no tasks: its heartbeat is for `workers list`, and a lost identity is only
/// replaced.
fn spawn_heartbeat(store: Store, mut who: Registration, interval: Duration, shutdown: &Shutdown) {
    let soft = shutdown.soft.clone();
    shutdown.spawn(async move {
        let mut pauses = Pauses::new();
        let mut registered = true;
        loop {
            let beat = if registered {
                store.renew(who.id, who.ttl).await.map(|alive| alive.is_some())
            } else {
                store.register(&who).await.map(|()| true)
            };
            let pause = match beat {
                Ok(true) => {
                    registered = true;
                    pauses.reset();
                    interval
                }
                Ok(false) => {
                    who.id = Incarnation::new();
                    registered = false;
                    Duration::ZERO
                }
                Err(error) => {
                    warn!(%error, "a heartbeat failed");
                    pauses.next_pause().min(interval)
                }
            };
            tokio::select! {
                () = soft.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        if registered {
            // Failing that, the lease ends by itself.
            let _ = store.retire(who.id).await;
        }
    });
}

fn spawn_readiness(
    store: Store,
    publisher: &Publisher,
    relay: &Relay,
    health: Health,
    shutdown: &Shutdown,
) {
    let soft = shutdown.soft.clone();
    // Not the publisher itself: its loop ends when nobody holds it any more.
    let (publishing, trouble) = (publisher.readiness(), relay.trouble());
    shutdown.spawn(async move {
        loop {
            let asked = store.ping().await;
            let error = asked.err().or_else(|| trouble.borrow().clone());
            let detail = error.as_ref().map_or_else(|| "answers".to_owned(), ToString::to_string);
            health.set("postgres", error.is_none(), detail);
            let (publishes, how) = publishing.now();
            health.set("rabbitmq", publishes, how);
            tokio::select! {
                () = soft.cancelled() => return,
                () = tokio::time::sleep(READINESS) => {}
            }
        }
    });
}
