//! How a daemon stops: a soft token, a hard token, and a tracker of what it spawned.
//!
//! The first SIGTERM, SIGINT or SIGHUP asks to finish, the second gives back at once. Every spawned task of
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

    /// Turns SIGTERM, SIGINT and SIGHUP (the terminal is closed) into the tokens: once soft, twice
    /// hard. Where SIGHUP was ignored from the start, as nohup does, it stays so.
    pub fn listen_for_signals(&self) -> std::io::Result<()> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let hangup = SignalKind::hangup();
        let mut hup = if is_ignored(hangup) { None } else { Some(signal(hangup)?) };
        let this = self.clone();
        #[expect(clippy::disallowed_methods, reason = "outlives the tracked tasks it stops")]
        tokio::spawn(async move {
            for token in [&this.soft, &this.hard] {
                let hung_up = async {
                    match &mut hup {
                        Some(hup) => drop(hup.recv().await),
                        None => std::future::pending().await,
                    }
                };
                tokio::select! { _ = term.recv() => (), _ = int.recv() => (), () = hung_up => () }
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

/// True when whoever started this process has it ignore a signal; false where the kernel does not say.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (kind.as_raw_value() - 1) & 1 == 1
}
