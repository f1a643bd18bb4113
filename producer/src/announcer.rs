//! The announcer: publishes the tasks of ticks right after their commit, beside the ticker.
//!
//! A broker that is slow or away must not delay a tick. What it cannot take is left to the relay's
//! own look, as every unpublished row is.

use shared::domain::task::TaskId;
use shared::relay::Relay;
use shared::shutdown::Shutdown;
use tokio::sync::mpsc;
use tracing::debug;

/// Statements' worth of tasks that may wait for the broker.
const WAITING: usize = 16;

/// The ticker's end of it. The other one ends when this is dropped.
#[derive(Clone)]
pub struct Announcer {
    relay: Relay,
    made: mpsc::Sender<Vec<TaskId>>,
}

impl Announcer {
    /// Starts one.
    pub fn start(relay: Relay, shutdown: &Shutdown) -> Self {
        let (made, mut tasks) = mpsc::channel::<Vec<TaskId>>(WAITING);
        let publisher = relay.clone();
        shutdown.spawn(async move {
            while let Some(ids) = tasks.recv().await {
                if let Err(error) = publisher.publish_now(&ids).await {
                    debug!(%error, "ticks are committed; the relay publishes them");
                    publisher.poke();
                }
            }
        });
        Self { relay, made }
    }

    /// Has these tasks published, soon.
    pub fn announce(&self, ids: Vec<TaskId>) {
        if !ids.is_empty() && self.made.try_send(ids).is_err() {
            self.relay.poke();
        }
    }
}
