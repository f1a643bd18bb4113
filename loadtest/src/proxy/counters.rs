//! What has happened on a link, as proof that a fault bit.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// A link's counters. JSON: an object of numbers; bytes where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Connections accepted.
    pub opened: u64,
    /// Connections that are there now.
    pub living: u64,
    /// Connections that the link reset: cut, torn, or their answer lost.
    pub closed_by_fault: u64,
    /// Connections that were reset at their beginning, by the mode or because the server is away.
    pub refused: u64,
    /// Statements or patterns whose answer was lost.
    pub answers_lost: u64,
    /// From clients to the server.
    pub passed_up: u64,
    /// From the server to clients.
    pub passed_down: u64,
    /// From clients, never forwarded.
    pub swallowed_up: u64,
    /// From the server, never forwarded.
    pub swallowed_down: u64,
}

/// A number that only rises.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters while they count.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) opened: Count,
    pub(super) closed_by_fault: Count,
    pub(super) refused: Count,
    pub(super) answers_lost: Count,
    pub(super) passed_up: Count,
    pub(super) passed_down: Count,
    pub(super) swallowed_up: Count,
    pub(super) swallowed_down: Count,
}

impl Tally {
    pub(super) fn read(&self, living: usize) -> Counters {
        Counters {
            opened: self.opened.read(),
            living: living as u64,
            closed_by_fault: self.closed_by_fault.read(),
            refused: self.refused.read(),
            answers_lost: self.answers_lost.read(),
            passed_up: self.passed_up.read(),
            passed_down: self.passed_down.read(),
            swallowed_up: self.swallowed_up.read(),
            swallowed_down: self.swallowed_down.read(),
        }
    }
}
