//! The gate before the slots: many pass at once, or one alone.
//!
//! A task whose next crash would bury it runs alone in its worker: when the process dies, the killer
//! is known and no neighbour is charged. The gate never claims; it is passed before a claim.

use std::sync::Arc;
use std::time::Duration;

use shared::domain::attempt::Attempt;
use shared::store::DEADLINE_GRACE;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// How long a task waits, claimed, for the other slots to drain. Nothing new starts meanwhile, so
/// that a worker stands still no longer than this for the sake of one task.
pub const SOLO_PATIENCE: Duration = Duration::from_secs(60);
/// When it may try again, perhaps elsewhere, after the others took longer.
pub const SOLO_AGAIN: Duration = Duration::from_secs(30);

/// Longest wait of a claimed task: its deadline runs from the claim.
pub fn patience(attempt: &Attempt) -> Duration {
    SOLO_PATIENCE.min(attempt.timeout + DEADLINE_GRACE / 2)
}

/// True when one more crash makes the task dead. A first run is always among others.
pub fn runs_alone(attempt: &Attempt, crash_limit: u32) -> bool {
    attempt.crashes > 0 && attempt.crashes + 1 >= crash_limit
}

/// Shared by all pools of a process. Fair: who waits to be alone lets nobody overtake.
#[derive(Clone, Default)]
pub struct Gate(Arc<RwLock<()>>);

/// The right to run, until it is dropped.
pub enum Turn {
    /// Among others.
    Shared {
        /// Held for its drop.
        _guard: OwnedRwLockReadGuard<()>,
    },
    /// Alone.
    Alone {
        /// Held for its drop.
        _guard: OwnedRwLockWriteGuard<()>,
    },
}

impl Gate {
    /// Open.
    pub fn new() -> Self {
        Self::default()
    }

    /// Passes when nobody is, or waits to be, alone.
    pub async fn pass(&self) -> Turn {
        Turn::Shared { _guard: self.0.clone().read_owned().await }
    }

    /// Passes when all others have ended; closed for them from the asking on.
    pub async fn pass_alone(&self) -> Turn {
        Turn::Alone { _guard: self.0.clone().write_owned().await }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_that_waits_to_be_alone_lets_nobody_overtake() {
        let gate = Gate::new();
        let (first, second) = (gate.pass().await, gate.pass().await);
        let mut alone = Box::pin(gate.pass_alone());
        assert!(alone.as_mut().now_or_never().is_none());
        assert!(gate.pass().now_or_never().is_none(), "overtaken");

        drop((first, second));
        let turn = alone.await;
        assert!(gate.pass().now_or_never().is_none(), "not alone");
        drop(turn);

        assert!(gate.pass().now_or_never().is_some());
    }
}
