//! What a fault is: it is inflicted, it bites, it is healed.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::field::Field;

/// A fault is survived when new work is done and every member is ready within this.
pub const RECOVERY_LIMIT: Duration = Duration::from_secs(30);

/// One fault of the drill.
#[async_trait(?Send)]
pub trait Fault: Send + Sync {
    /// As `--fault` names it: `worker.kill`, `amqp.black_hole`, `postgres.lost_commit`.
    fn name(&self) -> &'static str;

    /// One line for `--list`.
    fn summary(&self) -> &'static str;

    /// Why it cannot be inflicted on this machine; `None` when it can.
    async fn unavailable(&self, _field: &Field) -> Option<String> {
        None
    }

    /// True when the broker forgets messages that it had confirmed: requests in the inbox may then
    /// have to be sent again by their senders.
    fn loses_messages(&self) -> bool {
        false
    }

    /// Longest time from [`Bite::since`] until new work is done and every member is ready.
    fn recovery_limit(&self) -> Duration {
        RECOVERY_LIMIT
    }

    /// Inflicts it, waits until it bit, heals it.
    ///
    /// # Errors
    /// Without proof that it bit: a drill whose blows miss proves nothing.
    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite>;
}

/// What a fault did.
#[derive(Clone, Debug)]
pub struct Bite {
    /// Proof that it bit: a counter that rose, a connection that closed, a pid that is gone.
    pub proof: String,
    /// From when on recovery counts: the blow for what stays dead (kill), the healing for what is
    /// healed (black hole, restart).
    pub since: Instant,
    /// Times that the contract names, as measured.
    pub measured: Vec<Measured>,
    /// What should not have happened meanwhile.
    pub broken: Vec<String>,
}

/// A time that was measured beside the recovery.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Of what: `held work started elsewhere`.
    pub what: &'static str,
    /// How long it took.
    pub took: Duration,
    /// Longer is a breach, on a machine that is not slow ([`Field::pace`]).
    pub limit: Duration,
}

impl Bite {
    /// A bite whose recovery counts from `since`.
    pub fn new(since: Instant, proof: impl Into<String>) -> Self {
        Self { proof: proof.into(), since, measured: Vec::new(), broken: Vec::new() }
    }

    /// With a time that was measured.
    #[must_use]
    pub fn measured(mut self, what: &'static str, took: Duration, limit: Duration) -> Self {
        self.measured.push(Measured { what, took, limit });
        self
    }

    /// With a breach that was seen.
    #[must_use]
    pub fn broken(mut self, what: String) -> Self {
        self.broken.push(what);
        self
    }
}
