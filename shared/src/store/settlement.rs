//! What the broker must do with a delivery. Only the store makes one, after its commit: "commit
//! before ack" is a fact of types.

use std::time::Duration;

use crate::domain::delay::{Rung, rung_for};
use crate::domain::message::Message;

/// How a delivery ends.
#[derive(Debug)]
#[must_use = "a delivery without its settlement stays unacked"]
pub struct Settlement(Action);

/// The verbs of a settlement, for the one place that carries them out.
#[derive(Debug)]
pub enum Action {
    /// Ack: finished, or in another's hands.
    Ack,
    /// Publish to a delay queue (or straight to work when it is due), mark, then ack.
    Delay {
        /// What remained of the delay when the statement answered.
        remaining: Duration,
        /// The pointer, with fresh headers.
        message: Box<Message>,
        /// True when the row's mark waits for the confirm.
        mark: bool,
    },
    /// Publish the copy of the dead letter, mark the letter, then ack.
    DeadLetter {
        /// The pointer, with the letter's id.
        message: Box<Message>,
    },
    /// Send to the dead exchange with a reason: no such task, no alert.
    Orphan,
    /// Ack, and count: a late worker was refused.
    Fenced,
}

impl Settlement {
    pub(super) fn ack() -> Self {
        Self(Action::Ack)
    }

    pub(super) fn orphan() -> Self {
        Self(Action::Orphan)
    }

    pub(super) fn fenced() -> Self {
        Self(Action::Fenced)
    }

    pub(super) fn early(remaining: Duration, message: Message) -> Self {
        Self(Action::Delay { remaining, message: Box::new(message), mark: false })
    }

    pub(super) fn again(remaining: Duration, message: Message) -> Self {
        Self(Action::Delay { remaining, message: Box::new(message), mark: true })
    }

    pub(super) fn dead(message: Message) -> Self {
        Self(Action::DeadLetter { message: Box::new(message) })
    }

    /// The verb, by value: a settlement is carried out once.
    pub fn into_action(self) -> Action {
        self.0
    }

    /// True for a plain ack.
    pub fn is_ack(&self) -> bool {
        matches!(self.0, Action::Ack)
    }

    /// True when a late worker was refused.
    pub fn is_fenced(&self) -> bool {
        matches!(self.0, Action::Fenced)
    }

    /// The delay queue that carries what remains, if any.
    pub fn rung(&self) -> Option<Rung> {
        match &self.0 {
            Action::Delay { remaining, .. } => rung_for(*remaining),
            Action::Ack | Action::DeadLetter { .. } | Action::Orphan | Action::Fenced => None,
        }
    }
}
