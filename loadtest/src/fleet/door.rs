//! The front door: tasks enter by the store's enqueue and the relay, as the producer lets them in.

use std::time::Duration;

use shared::broker::{Publisher, Topology};
use shared::domain::task::{NewTask, TaskId};
use shared::process;
use shared::relay::Relay;
use shared::shutdown::Shutdown;
use shared::store::{Purpose, Store, StoreOptions};
use tokio::time::sleep;

use super::Ground;

/// Time for the broker to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two tries to publish what the broker did not take.
const AGAIN: Duration = Duration::from_millis(100);

/// An open one; clones share its connections.
#[derive(Clone)]
pub struct Door {
    /// The database.
    pub store: Store,
    /// What publishes tasks.
    pub relay: Relay,
    /// What publishes anything.
    pub publisher: Publisher,
    /// The names on the broker.
    pub topology: Topology,
    /// Carries what is spawned.
    pub shutdown: Shutdown,
}

impl Door {
    /// Opens it, and waits for the broker.
    pub async fn open(ground: &Ground) -> anyhow::Result<Self> {
        let shutdown = Shutdown::new();
        let topology = ground.topology();
        let dsn = ground.config().database_url()?.clone();
        let label = process::label("loadtest");
        let store = Store::open(&StoreOptions::new(dsn, &label, Purpose::Daemon))?;
        let publisher = Publisher::start(&ground.settings()?, &topology, &shutdown)?;
        publisher.ready(PATIENCE).await?;
        let relay = Relay::new(store.clone(), publisher.clone());
        Ok(Self { store, relay, publisher, topology, shutdown })
    }

    /// Commits tasks and leaves their messages to whoever relays.
    pub async fn commit(&self, tasks: &[NewTask]) -> anyhow::Result<Vec<TaskId>> {
        let answers = self.store.enqueue_all(tasks).await?;
        answers.into_iter().map(|answer| Ok(answer?.task_id)).collect()
    }

    /// Commits tasks and publishes their messages.
    pub async fn accept(&self, tasks: &[NewTask]) -> anyhow::Result<()> {
        let ids = self.commit(tasks).await?;
        self.relay.publish_now(&ids).await?;
        Ok(())
    }

    /// Until everything has its message: the broker may have refused some for a moment.
    pub async fn accept_the_rest(&self) -> anyhow::Result<()> {
        loop {
            let left = self.store.unpublished(None, Duration::ZERO).await?;
            if left.is_empty() {
                return Ok(());
            }
            let ids: Vec<TaskId> = left.iter().map(|task| task.message.task_id).collect();
            self.relay.publish_now(&ids).await?;
            sleep(AGAIN).await;
        }
    }

    /// Closes it, and waits until its connections have ended.
    pub async fn close(self) {
        let Self { store, relay, publisher, shutdown, .. } = self;
        drop((store, relay, publisher));
        shutdown.soft.cancel();
        shutdown.hard.cancel();
        shutdown.drained().await;
    }
}
