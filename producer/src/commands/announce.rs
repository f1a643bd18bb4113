//! Telling the broker of committed tasks at once, instead of leaving it to the next relay.
//!
//! Postgres has the tasks already: whatever fails here costs latency and nothing else, so it is a
//! note and never an error.

use std::time::Duration;

use shared::broker::Publisher;
use shared::config::Config;
use shared::domain::task::TaskId;
use shared::relay::Relay;
use shared::shutdown::Shutdown;
use shared::store::Store;

use super::connect::{broker_settings, topology};
use super::error::CommandError;
use super::output;

/// How long a command waits for the broker after its commit.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it waits to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// A publishing connection that is being made while the command does other things.
pub struct Herald {
    publisher: Result<Publisher, CommandError>,
    shutdown: Shutdown,
}

impl Herald {
    /// Begins to connect.
    pub fn start(config: &Config) -> Self {
        let (shutdown, topology) = (Shutdown::new(), topology(config));
        let publisher = broker_settings(config)
            .and_then(|settings| Ok(Publisher::start(&settings, &topology, &shutdown)?));
        Self { publisher, shutdown }
    }

    /// Publishes and marks these tasks, as far as they ask for a message, and disconnects. Says on
    /// stderr if that has to wait for the relay.
    pub async fn announce(self, store: &Store, tasks: &[TaskId]) {
        let told = tokio::time::timeout(PATIENCE, self.tell(store, tasks)).await;
        let reason = match told {
            Ok(told) => told.err(),
            Err(_) => Some(format!("RabbitMQ did not answer within {PATIENCE:?}")),
        };
        if let Some(reason) = reason {
            let rows = if tasks.len() == 1 { "the task is" } else { "the tasks are" };
            output::talk(&format!(
                "note: {rows} committed, and the relay of a running producer or worker publishes \
                 what is due; not published now: {reason}"
            ));
        }
        self.close().await;
    }

    async fn tell(&self, store: &Store, tasks: &[TaskId]) -> Result<(), String> {
        let publisher = self.publisher.as_ref().map_err(ToString::to_string)?;
        publisher.ready(PATIENCE).await.map_err(|error| error.to_string())?;
        let relay = Relay::new(store.clone(), publisher.clone());
        let answer = relay.publish_now(tasks).await.map_err(|error| error.to_string())?;
        answer.error.map_or(Ok(()), |error| Err(error.to_string()))
    }

    async fn close(self) {
        self.shutdown.soft.cancel();
        drop(self.publisher);
        // The process ends anyway; a silent broker must not hold it.
        let _ = tokio::time::timeout(GOODBYE, self.shutdown.drained()).await;
        self.shutdown.hard.cancel();
    }
}
