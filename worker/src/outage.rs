//! What to do when our own house burns: hold, repeat with the same token, take nothing new.
//!
//! A store error is never a task's failure and never a requeue: deliveries stay unacked until the
//! store answers.

use std::future::Future;

use shared::retry::Pauses;
use shared::store::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// Whether the store answers, as all slots see it.
#[derive(Clone)]
pub struct Outage {
    down: watch::Sender<bool>,
    give_up: CancellationToken,
}

impl Outage {
    /// The store answers; `give_up` ends every hold.
    pub fn new(give_up: CancellationToken) -> Self {
        Self { down: watch::Sender::new(false), give_up }
    }

    /// True while the store does not answer.
    pub fn is_down(&self) -> bool {
        *self.down.borrow()
    }

    /// Resolves when the store answers (again).
    pub async fn over(&self) {
        // An error would mean that the sender is gone, and it is ours.
        let _ = self.down.subscribe().wait_for(|down| !down).await;
    }

    /// Asks until there is an answer. `None` only when the process gives up.
    pub async fn hold<T, F, Fut>(&self, what: &str, ask: F) -> Option<T>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        let mut pauses = Pauses::new();
        loop {
            match ask().await {
                Ok(answer) => {
                    if self.down.send_if_modified(|down| std::mem::replace(down, false)) {
                        info!("the database answers again");
                    }
                    return Some(answer);
                }
                // The database answers and refuses the values: no outage for the other slots.
                Err(error) if error.is_data() => error!(%error, what, "refused; asking again"),
                Err(error) => {
                    if self.down.send_if_modified(|down| !std::mem::replace(down, true)) {
                        warn!(%error, what, "the database does not answer; holding what is in hand");
                    }
                }
            }
            tokio::select! {
                () = self.give_up.cancelled() => return None,
                () = tokio::time::sleep(pauses.next_pause()) => {}
                // Somebody else's question was answered.
                () = self.over(), if self.is_down() => {}
            }
        }
    }
}
