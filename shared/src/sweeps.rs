//! The sweeps that need no particular process: rescue, overdue attempts, late starts, lost messages, and
//! in a lane of its own the pruning of what is over.
//!
//! Every producer and every worker runs them, so recovery waits for nobody. They never publish:
//! they clear marks and tell the relay of their process to hurry.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::broker::Publisher;
use crate::config::{Config, Retention};
use crate::domain::task::{TaskId, TaskState};
use crate::relay::Relay;
use crate::shutdown::Shutdown;
use crate::store::{Error, GivenBack, Lost, Store};
use crate::telemetry::metrics;

/// Slowest pace of the sweeps.
pub const SLOWEST: Duration = Duration::from_secs(5);
/// A task that is due and published this long without a claim may have lost its message; also the
/// least pause between two copies of one task.
pub const LOST_GRACE: Duration = Duration::from_secs(15);

/// After the database was away, workers have this long to come back before an ended lease or a passed
/// deadline is held against them. What they hold was done, and its record is repeated within some five
/// seconds ([`crate::retry::LONGEST_PAUSE`]): a rescue that came first would charge a crash and do it again.
pub const AMNESTY: Duration = Duration::from_secs(10);

/// Pause between two looks for what may be pruned.
pub const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// While there is more than a chunk, pruning takes this share of a process's time.
const PRUNE_SHARE: u32 = 10;

/// What the sweeps work with.
#[derive(Clone)]
pub struct Sweeps {
    store: Store,
    publisher: Publisher,
    relay: Relay,
    pools: Vec<String>,
    every: Duration,
    retention: Retention,
}

impl Sweeps {
    /// Sweeps paced by the lease, `min(ttl / 3, 5 s)`, over the pools of a configuration.
    pub fn new(store: Store, publisher: Publisher, relay: Relay, config: &Config) -> Self {
        let pools = config.pools.iter().map(|pool| pool.name.clone()).collect();
        let every = (config.scheduler.heartbeat_ttl / 3).min(SLOWEST);
        Self { store, publisher, relay, pools, every, retention: config.retention.clone() }
    }

    /// Sweeps until the soft token.
    pub async fn run(&self, shutdown: &Shutdown) {
        tokio::join!(self.sweep(shutdown), self.prune(shutdown));
    }

    async fn sweep(&self, shutdown: &Shutdown) {
        let mut outage = Outage::Over(None);
        loop {
            tokio::select! {
                () = shutdown.soft.cancelled() => return,
                () = tokio::time::sleep(self.every) => {}
            }
            let swept = self.once(outage.is_recent(Instant::now())).await;
            if let Err(error) = &swept {
                warn!(%error, "a sweep failed; the next one follows");
            }
            outage.saw(swept.is_ok(), Instant::now());
        }
    }

    /// One round; none is rescued while the database's absence may be why they are late.
    async fn once(&self, spare: bool) -> Result<(), Error> {
        let (mut rescued, mut overdue) = (Vec::new(), Vec::new());
        if spare {
            self.store.ping().await?;
        } else {
            rescued = self.store.rescue().await?;
            tell("rescue", &rescued);
            overdue = self.store.release_overdue().await?;
            tell("deadline", &overdue);
            let calls = self.store.end_lost_calls().await?;
            if calls > 0 {
                info!(calls, "model calls that nobody waits for any more are of unknown outcome");
            }
        }
        let late = self.store.end_late_starts().await?;
        if let Some(first) = late.first() {
            info!(tasks = late.len(), task.id = %first, "not started by their deadline; cancelled");
        }
        let lost = self.find_lost().await?;
        if !lost.is_empty() {
            metrics::given_back("lost_message", lost.len() as u64);
            warn!(tasks = lost.len(), "messages were lost; the relay publishes them again");
        }
        // Also a backup's relay: the leader's may have just looked, and looks seldom under load.
        let given_back = rescued.iter().chain(&overdue).filter(|g| g.state == TaskState::Queued);
        let missing: Vec<TaskId> = given_back.map(|g| g.task).chain(lost).collect();
        if !missing.is_empty() {
            self.relay.hurry(missing);
        }
        Ok(())
    }

    /// Deletes what is over, slowly: a chunk, then a pause.
    async fn prune(&self, shutdown: &Shutdown) {
        let mut pause = self.every;
        loop {
            tokio::select! {
                () = shutdown.soft.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let began = Instant::now();
            pause = match self.store.prune(&self.retention).await {
                Ok(pruned) => {
                    if pruned.total() > 0 {
                        info!(?pruned, "deleted what is over");
                    }
                    if pruned.is_full() { began.elapsed() * PRUNE_SHARE } else { PRUNE_EVERY }
                }
                Err(error) => {
                    warn!(%error, "pruning failed; it is tried again");
                    PRUNE_EVERY
                }
            };
        }
    }

    async fn find_lost(&self) -> Result<Vec<TaskId>, Error> {
        let mut depths = Vec::with_capacity(self.pools.len());
        for pool in &self.pools {
            match self.publisher.ready_count(pool).await {
                // A queue that is gone holds nothing.
                Ok(ready) => {
                    depths.push(Lost { pool: pool.clone(), ready: ready.unwrap_or(0).into() });
                }
                // Without a broker nothing can be said, and nothing published.
                Err(_) => return Ok(Vec::new()),
            }
        }
        self.store.find_lost(LOST_GRACE, &depths).await
    }
}

/// Whether the database was away, as this process saw it.
enum Outage {
    /// The last sweep failed.
    Now,
    /// It is back, since this instant; or was never away.
    Over(Option<Instant>),
}

impl Outage {
    fn is_recent(&self, now: Instant) -> bool {
        match self {
            Self::Now => true,
            Self::Over(since) => since.is_some_and(|since| now < since + AMNESTY),
        }
    }

    fn saw(&mut self, answered: bool, now: Instant) {
        match (&self, answered) {
            (Self::Now, true) => *self = Self::Over(Some(now)),
            (Self::Over(_), true) => {}
            (_, false) => *self = Self::Now,
        }
    }
}

fn tell(reason: &'static str, given_back: &[GivenBack]) {
    if given_back.is_empty() {
        return;
    }
    metrics::given_back(reason, given_back.len() as u64);
    let dead = given_back.iter().filter(|g| g.state == TaskState::Dead).count();
    let first = given_back.first().map(|g| g.task.to_string());
    info!(reason, tasks = given_back.len(), dead, task.id = first, "gave tasks back");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_saw_the_database_away_waits_for_the_others_to_come_back() {
        let mut outage = Outage::Over(None);
        let back = Instant::now();
        outage.saw(true, back);
        assert!(!outage.is_recent(back), "all is well");

        outage.saw(false, back);
        outage.saw(false, back);
        assert!(outage.is_recent(back + AMNESTY * 2));
        outage.saw(true, back);
        outage.saw(true, back + AMNESTY / 2);
        assert!(outage.is_recent(back + AMNESTY / 2), "the second success begins no new time");
        assert!(!outage.is_recent(back + AMNESTY));
    }
}
