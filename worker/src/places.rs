//! A pool's slots, and those lost to handlers that will not end.
//!
//! A handler is stopped at its next await. One that computes or blocks without one keeps its thread,
//! and its slot with it: a slot is free when nothing runs in it. A pool that has lost half of its
//! slots this way asks for a restart of the process, which is the only way to get a thread back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shared::domain::attempt::Attempt;
use shared::telemetry::metrics;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// Time that a stopped handler has to reach an await, before its slot counts as lost.
pub const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// The process must be started anew: exit code 75.
#[derive(Debug, thiserror::Error)]
#[error(
    "handlers that do not end have taken half of the slots of a pool; only a new process gets them back"
)]
pub struct SlotsLost;

/// The slots of one pool.
#[derive(Debug)]
pub struct Places {
    pool: String,
    size: usize,
    free: Arc<Semaphore>,
    lost: AtomicUsize,
    restart: CancellationToken,
}

/// A slot in use; free again when its last holder goes.
#[derive(Debug)]
pub struct Slot {
    places: Arc<Places>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// All free. `restart` is cancelled when half of them are lost.
    pub fn new(pool: &str, size: usize, restart: CancellationToken) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(size));
        Arc::new(Self { pool: pool.to_owned(), size, free, lost: AtomicUsize::new(0), restart })
    }

    /// Waits for a free one. `None` cannot be: nobody closes the semaphore.
    pub async fn take(self: &Arc<Self>) -> Option<Arc<Slot>> {
        let permit = self.free.clone().acquire_owned().await.ok()?;
        Some(Arc::new(Slot { places: self.clone(), _permit: permit }))
    }

    /// Tells the metrics how many are in use.
    pub fn tell(&self) {
        let busy = self.size - self.free.available_permits();
        metrics::slots(&self.pool, busy as u64, self.size as u64);
    }

    fn changed(&self, lost: usize) {
        metrics::slots_lost(&self.pool, lost as u64);
        if lost * 2 >= self.size {
            self.restart.cancel();
        }
    }
}

impl Slot {
    /// Keeps the slot until a stopped handler has really ended, which it may never do.
    pub fn lose<T: Send + 'static>(
        self: Arc<Self>,
        attempt: &Attempt,
        work: JoinHandle<T>,
        on: &Handle,
    ) {
        let places = self.places.clone();
        let lost = places.lost.fetch_add(1, Ordering::SeqCst) + 1;
        error!(pool.name = places.pool, task.id = %attempt.task_id,
            "task.type" = %attempt.task_type, lost, of = places.size,
            "a handler blocks its thread past its end; its slot is lost until it returns");
        places.changed(lost);
        on.spawn(async move {
            // However it ends.
            let _ = work.await;
            let lost = places.lost.fetch_sub(1, Ordering::SeqCst) - 1;
            places.changed(lost);
            info!(pool.name = places.pool, lost, "a lost slot is back");
            drop(self);
        });
    }
}
