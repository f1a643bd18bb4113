//! How a daemon stops: a soft token, a hard token, and a tracker of what it spawned.
//!
//! The first SIGTERM or SIGINT asks to finish, the second gives back at once. Every spawned task of
//! a daemon goes through [`Shutdown::spawn`], so that nothing outlives the drain unseen.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The tokens and the tracker; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Stop taking new work.
    pub soft: CancellationToken,
    /// Give back what is left.
    pub hard: CancellationToken,
    tracker: TaskTracker,
}

impl Shutdown {
    /// Nothing is asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Spawns onto the runtime, tracked.
    #[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(self.tracker.track_future(future))
    }

    /// Turns SIGTERM and SIGINT into the tokens: once soft, twice hard.
    pub fn listen_for_signals(&self) -> std::io::Result<()> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let this = self.clone();
        #[expect(clippy::disallowed_methods, reason = "outlives the tracked tasks it stops")]
        tokio::spawn(async move {
            for token in [&this.soft, &this.hard] {
                tokio::select! { _ = term.recv() => (), _ = int.recv() => () }
                token.cancel();
            }
        });
        Ok(())
    }

    /// Waits until everything spawned has ended.
    pub async fn drained(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
