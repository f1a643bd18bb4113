//! The slots of a worker: how many tasks it may run, and which claims it holds right now.
//!
//! Only a free slot admits work: nothing is claimed without a permit. The list of claims is what
//! the audit compares with the database, so a claim is listed before it is asked for and struck
//! only after its record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use shared::domain::attempt::{ClaimToken, Incarnation};
use shared::domain::task::TaskId;
use tokio_util::sync::CancellationToken;

/// A claim that a slot holds or is asking for.
#[derive(Clone)]
pub struct Held {
    /// The task.
    pub task: TaskId,
    /// Under which identity.
    pub by: Incarnation,
    /// Tells the handler that somebody wants the task to end.
    pub cancel: CancellationToken,
}

/// All claims of the process.
#[derive(Clone, Default)]
pub struct Slots(Arc<Mutex<HashMap<ClaimToken, Held>>>);

/// Strikes its claim when it goes, however the slot ends.
pub struct Listed {
    slots: Slots,
    token: ClaimToken,
}

impl Slots {
    /// No claims yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists a claim until the answer is dropped.
    #[must_use]
    pub fn list(&self, token: ClaimToken, held: Held) -> Listed {
        self.lock().insert(token, held);
        Listed { slots: self.clone(), token }
    }

    /// The tokens listed under an identity.
    pub fn tokens_of(&self, by: Incarnation) -> Vec<ClaimToken> {
        self.lock().iter().filter(|(_, held)| held.by == by).map(|(token, _)| *token).collect()
    }

    /// The tasks in hand.
    pub fn tasks(&self) -> Vec<TaskId> {
        self.lock().values().map(|held| held.task).collect()
    }

    /// Tells the handler of a claim that its task shall end.
    pub fn cancel(&self, token: ClaimToken) {
        if let Some(held) = self.lock().get(&token) {
            held.cancel.cancel();
        }
    }

    /// True when nothing is in hand.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ClaimToken, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.slots.lock().remove(&self.token);
    }
}
