//! The heartbeat: keeps the process's identity alive, from its own thread and connection.
//!
//! No handler can starve it. An identity that could not be renewed in time is over for ever: its
//! handlers are stopped before the lease ends, and a new identity is registered before anything
//! is claimed again. It never touches tasks, except to give back rows that no slot holds.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::domain::attempt::Incarnation;
use shared::retry::Pauses;
use shared::store::{Error, Registration, Store, StoreOptions};
use shared::telemetry::metrics;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::slots::Slots;

/// Left of the lease when the handlers are stopped: time for them to end before it does.
pub const MARGIN: u32 = 5;

/// An identity, as long as it lives.
#[derive(Clone, Debug)]
pub struct Identity {
    /// What the database knows.
    pub incarnation: Incarnation,
    /// Cancelled when it is over: stop, another may have the task.
    pub lost: CancellationToken,
}

/// The heartbeat's readers.
#[derive(Clone)]
pub struct Heartbeat {
    identity: watch::Receiver<Option<Identity>>,
    draining: watch::Receiver<bool>,
}

/// What the heartbeat says of the process.
#[derive(Clone)]
pub struct Who {
    /// `worker@host#pid`.
    pub label: String,
    /// Pool to slots.
    pub pools: BTreeMap<String, usize>,
    /// Pause between renewals.
    pub interval: Duration,
    /// Life of the lease.
    pub ttl: Duration,
}

impl Heartbeat {
    /// Starts the thread. It ends, and retires the identity, when `stop` is cancelled.
    pub fn start(
        mut options: StoreOptions,
        who: Who,
        slots: Slots,
        stop: CancellationToken,
    ) -> std::io::Result<(Self, std::thread::JoinHandle<()>)> {
        options.pool_size = 1;
        let (identity, watched) = watch::channel(None);
        let (draining, drained) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(move || {
            runtime.block_on(async {
                // Opened here, so that its connection is driven by this thread.
                match Store::open(&options) {
                    Ok(store) => Beat { store, who, slots, identity, draining }.run(&stop).await,
                    Err(error) => warn!(%error, "no heartbeat"),
                }
            });
        })?;
        Ok((Self { identity: watched, draining: drained }, thread))
    }

    /// The living identity; waits for one. `None` when the heartbeat has ended.
    pub async fn identity(&self) -> Option<Identity> {
        let mut watched = self.identity.clone();
        let living = watched
            .wait_for(|identity| identity.as_ref().is_some_and(|i| !i.lost.is_cancelled()))
            .await
            .ok()?;
        living.clone()
    }

    /// True while there is a living identity.
    pub fn is_alive(&self) -> bool {
        self.identity.borrow().as_ref().is_some_and(|identity| !identity.lost.is_cancelled())
    }

    /// True when somebody asked the process to take nothing new.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.clone()
    }
}

struct Beat {
    store: Store,
    who: Who,
    slots: Slots,
    identity: watch::Sender<Option<Identity>>,
    draining: watch::Sender<bool>,
}

impl Beat {
    /// One identity after another, until the end.
    async fn run(self, stop: &CancellationToken) {
        let mut pauses = Pauses::new();
        let mut first = true;
        while !stop.is_cancelled() {
            let incarnation = Incarnation::new();
            let asked = Instant::now();
            match self.register(incarnation, first).await {
                Ok(()) => {
                    first = false;
                    pauses.reset();
                    let identity = Identity { incarnation, lost: CancellationToken::new() };
                    info!(worker.id = %incarnation.0, worker.label = %self.who.label, "registered");
                    self.identity.send_replace(Some(identity.clone()));
                    self.keep(&identity, asked, stop).await;
                    identity.lost.cancel();
                }
                Err(error) => {
                    warn!(%error, "cannot register; trying again");
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(pauses.next_pause()) => {}
                    }
                }
            }
        }
    }

    /// The first identity is not taken while another house lives in this database: its processes would
    /// see ours and wait in turn. Who is in does not ask again.
    async fn register(&self, incarnation: Incarnation, first: bool) -> Result<(), Error> {
        let who = self.registration(incarnation);
        if first { self.store.register_first(&who).await } else { self.store.register(&who).await }
    }

    fn registration(&self, id: Incarnation) -> Registration {
        Registration {
            id,
            role: "worker",
            label: self.who.label.clone(),
            pools: self.who.pools.clone(),
            ttl: self.who.ttl,
        }
    }

    /// Renews until the identity is over. `since` is a moment before the last successful renewal
    /// was asked for, so the lease cannot end earlier than we think.
    async fn keep(&self, identity: &Identity, mut since: Instant, stop: &CancellationToken) {
        let safe = self.who.ttl * (MARGIN - 1) / MARGIN;
        let mut due = since + self.who.interval;
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    let retiring = self.store.retire(identity.incarnation);
                    let _ = tokio::time::timeout(Duration::from_secs(2), retiring).await;
                    return;
                }
                () = tokio::time::sleep_until(due.min(since + safe)) => {}
            }
            let asked = Instant::now();
            if asked >= since + safe {
                warn!(
                    "the lease could not be renewed; handlers are stopped and a new identity is taken"
                );
                return;
            }
            let renewing = self.store.renew(identity.incarnation, self.who.ttl);
            match tokio::time::timeout_at(since + safe, renewing).await {
                Ok(Ok(Some(draining))) => {
                    since = asked;
                    due = asked + self.who.interval;
                    self.draining
                        .send_if_modified(|now| std::mem::replace(now, draining) != draining);
                    self.audit(identity, since + safe).await;
                }
                Ok(Ok(None)) => {
                    warn!("the lease was lost: this identity was fenced");
                    return;
                }
                Ok(Err(error)) => {
                    warn!(%error, "a heartbeat failed");
                    due = Instant::now() + (self.who.interval / 4).min(Duration::from_secs(1));
                }
                Err(_) => {}
            }
        }
    }

    async fn audit(&self, identity: &Identity, until: Instant) {
        let held = self.slots.tokens_of(identity.incarnation);
        let auditing = self.store.audit(identity.incarnation, &held);
        match tokio::time::timeout_at(until, auditing).await {
            Ok(Ok(back)) if !back.is_empty() => {
                metrics::given_back("audit", back.len() as u64);
                warn!(tasks = back.len(), "gave back claims that no slot held");
            }
            Ok(Err(error)) => warn!(%error, "the audit failed"),
            Ok(Ok(_)) | Err(_) => {}
        }
    }
}
