//! The sweeps that need no particular process: rescue, overdue attempts, lost messages.
//!
//! Every producer and every worker runs them, so recovery waits for nobody. They never publish:
//! they clear marks and poke the relay.

use std::time::Duration;

use tracing::{info, warn};

use crate::broker::Publisher;
use crate::domain::task::TaskState;
use crate::relay::Relay;
use crate::shutdown::Shutdown;
use crate::store::{Error, GivenBack, Lost, Store};
use crate::telemetry::metrics;

/// Slowest pace of the sweeps.
pub const SLOWEST: Duration = Duration::from_secs(5);
/// A task that is due and published this long without a claim may have lost its message; also the
/// least pause between two copies of one task.
pub const LOST_GRACE: Duration = Duration::from_secs(15);

/// What the sweeps work with.
#[derive(Clone)]
pub struct Sweeps {
    store: Store,
    publisher: Publisher,
    relay: Relay,
    pools: Vec<String>,
    every: Duration,
}

impl Sweeps {
    /// Sweeps paced by the lease: `min(ttl / 3, 5 s)`.
    pub fn new(
        store: Store,
        publisher: Publisher,
        relay: Relay,
        pools: Vec<String>,
        ttl: Duration,
    ) -> Self {
        Self { store, publisher, relay, pools, every: (ttl / 3).min(SLOWEST) }
    }

    /// Sweeps until the soft token.
    pub async fn run(&self, shutdown: &Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.soft.cancelled() => return,
                () = tokio::time::sleep(self.every) => {}
            }
            if let Err(error) = self.once().await {
                warn!(%error, "a sweep failed; the next one follows");
            }
        }
    }

    /// One round.
    pub async fn once(&self) -> Result<(), Error> {
        let rescued = self.store.rescue().await?;
        tell("rescue", &rescued);
        let overdue = self.store.release_overdue().await?;
        tell("deadline", &overdue);
        let calls = self.store.end_lost_calls().await?;
        if calls > 0 {
            info!(calls, "model calls that nobody waits for any more are of unknown outcome");
        }
        let lost = self.find_lost().await?;
        if lost > 0 {
            metrics::given_back("lost_message", lost as u64);
            warn!(tasks = lost, "messages were lost; the relay publishes them again");
        }
        if lost > 0 || !rescued.is_empty() || !overdue.is_empty() {
            self.relay.poke();
        }
        Ok(())
    }

    async fn find_lost(&self) -> Result<usize, Error> {
        let mut depths = Vec::with_capacity(self.pools.len());
        for pool in &self.pools {
            match self.publisher.ready_count(pool).await {
                // A queue that is gone holds nothing.
                Ok(ready) => {
                    depths.push(Lost { pool: pool.clone(), ready: ready.unwrap_or(0).into() });
                }
                // Without a broker nothing can be said, and nothing published.
                Err(_) => return Ok(0),
            }
        }
        Ok(self.store.find_lost(LOST_GRACE, &depths).await?.len())
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
