//! The mirror of dead letters: `belfry.dead` holds a copy of each open letter, and no other's.
//!
//! The leader walks the queue when letters were resolved, when copies were lost with the broker or by a
//! purge, and when the broker itself has moved messages there: each of those becomes a letter too. It
//! never decides what becomes of a letter: the table does.

use std::collections::HashSet;
use std::time::Duration;

use shared::broker::{Death, Fate, Met, Operator, Publisher, Settings, Topology};
use shared::domain::outcome::{ErrorClass, Failure};
use shared::shutdown::Shutdown;
use shared::store::{Copies, Error, Moved, Store};
use shared::telemetry::metrics;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

/// Pause between two looks at the table.
pub const POLL: Duration = Duration::from_secs(2);
/// Pause between two looks at the queue's depth; lost copies have been missed in two of them.
pub const COUNT_EVERY: Duration = Duration::from_secs(5);
/// A walk may take this share of the mirror's time: each moves the whole queue.
const WALK_SHARE: u32 = 10;

/// Keeps the dead queue in step with the table.
pub struct Mirror {
    /// What is open.
    pub store: Store,
    /// Counts the copies.
    pub publisher: Publisher,
    /// For the walk's own connection.
    pub settings: Settings,
    /// Names the queue.
    pub topology: Topology,
    /// True while this producer leads: one walker is enough.
    pub leading: watch::Receiver<bool>,
}

/// What a walk came to.
#[derive(Debug, Default)]
struct Walked {
    seen: HashSet<i64>,
    /// Belong to no letter, and stay.
    nameless: u64,
    kept: usize,
    removed: usize,
}

impl Mirror {
    /// Looks until the soft token.
    pub async fn run(&self, shutdown: &Shutdown) {
        let mut counts = Counts::default();
        let mut told = String::new();
        loop {
            let began = Instant::now();
            if *self.leading.borrow() {
                let looked = self.look(&mut counts, shutdown).await;
                let error = looked.err().map(|error| format!("{error:#}")).unwrap_or_default();
                if !error.is_empty() && error != told {
                    warn!(error, "the dead queue is not in step with the table; trying again");
                }
                told = error;
            }
            tokio::select! {
                () = shutdown.soft.cancelled() => return,
                () = tokio::time::sleep(POLL.max(began.elapsed() * WALK_SHARE)) => {}
            }
        }
    }

    async fn look(&self, counts: &mut Counts, shutdown: &Shutdown) -> anyhow::Result<()> {
        let stale = self.store.stale_letters().await?;
        let mut off = Off::default();
        if counts.is_time() {
            let expected = self.store.copies_expected().await?;
            let there = self.publisher.depth(&self.topology.dead()).await?.unwrap_or(0).into();
            off = counts.compare(expected, there);
        }
        if stale.is_empty() && !off.lost && !off.strange {
            return Ok(());
        }
        let began = Instant::now();
        let operator = Operator::connect(&self.settings).await?;
        let walked = self.walk(&operator, shutdown).await;
        // A walk that failed ends here: what it held returns to the queue.
        operator.close().await;
        let Some(walked) = walked? else { return Ok(()) };
        self.store.letters_removed(&stale, began.elapsed()).await?;
        let mut missing = 0;
        if off.lost {
            let seen: Vec<i64> = walked.seen.iter().copied().collect();
            missing = self.store.copies_lost(&seen, began.elapsed()).await?;
        }
        counts.nameless = walked.nameless;
        info!(kept = walked.kept, removed = walked.removed, missing, "walked the dead queue");
        Ok(())
    }

    /// Walks the queue once; `None` when the process is to stop.
    async fn walk(
        &self,
        operator: &Operator,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Option<Walked>> {
        let dead = self.topology.dead();
        let mut walk = operator.walk(&dead, &dead).await?;
        let mut walked = Walked::default();
        while !shutdown.soft.is_cancelled() {
            let met = walk.next().await?;
            if met.is_empty() {
                walk.finish().await?;
                return Ok(Some(walked));
            }
            let fates = self.judge(&met, &mut walked).await?;
            walk.pass(&fates).await?;
            let removed = fates.iter().filter(|fate| **fate == Fate::Goes).count();
            walked.kept += fates.len() - removed;
            walked.removed += removed;
        }
        Ok(None)
    }

    /// Who stays: the first copy of each letter that is not resolved, and what belongs to none. What
    /// the broker has moved here becomes the copy of a letter.
    async fn judge(&self, met: &[Met], walked: &mut Walked) -> Result<Vec<Fate>, Error> {
        let known: Vec<i64> = met.iter().filter_map(|met| met.letter).collect();
        let resolved = self.store.resolved_letters(&known).await?;
        let mut fates = Vec::with_capacity(met.len());
        for met in met {
            fates.push(match (met.letter, &met.death) {
                (Some(letter), _) if resolved.contains(&letter) => Fate::Goes,
                (Some(letter), _) if walked.seen.insert(letter) => Fate::Stays,
                (Some(_), _) => Fate::Goes,
                (None, Some(death)) if self.dead_letters_here(&death.queue) => {
                    match self.keep(met, death).await? {
                        Some(letter) if walked.seen.insert(letter) => Fate::Becomes(letter),
                        _ => Fate::Goes,
                    }
                }
                (None, _) => {
                    walked.nameless += 1;
                    Fate::Stays
                }
            });
        }
        Ok(fates)
    }

    /// True for the queues whose dead-letter exchange leads here; a delay queue's does not.
    fn dead_letters_here(&self, queue: &str) -> bool {
        let mut pools = self.topology.pools().iter().map(|pool| self.topology.pool_queue(pool));
        queue == self.topology.inbox() || pools.any(|name| name == queue)
    }

    /// Its open letter, if it has one. The task of such a message is not touched: the sweep for lost
    /// messages publishes another.
    async fn keep(&self, met: &Met, death: &Death) -> Result<Option<i64>, Error> {
        let (class, reason) = match death.reason.as_str() {
            "delivery_limit" => (ErrorClass::Crashed, "delivery_limit"),
            "expired" => (ErrorClass::Invalid, "expired"),
            "maxlen" => (ErrorClass::Invalid, "maxlen"),
            _ => (ErrorClass::Invalid, "rejected"),
        };
        let told = format!("{death}; if it pointed to a task, the task is not touched by this");
        match self.store.keep_moved(&Failure::new(class, told), &met.body).await? {
            Moved::Kept(letter) => {
                metrics::message_rejected(reason);
                let queue = &death.queue;
                warn!(dead_letter = letter, reason, queue, "the broker gave a message up");
                Ok(Some(letter))
            }
            Moved::Known(letter) => Ok(Some(letter)),
            Moved::Closed(_) => Ok(None),
        }
    }
}

/// How the queue's depth differs from the table.
#[derive(Clone, Copy, Debug, Default)]
struct Off {
    /// Copies are missing.
    lost: bool,
    /// There are more messages than anybody knows of.
    strange: bool,
}

/// Remembers when copies were counted, and how they differed then.
#[derive(Debug, Default)]
struct Counts {
    last: Option<Instant>,
    before: Off,
    /// Messages of no letter, as the last walk has met them: orphans, and what others put there.
    nameless: u64,
}

impl Counts {
    fn is_time(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= COUNT_EVERY)
    }

    /// What differs now and did the last time: one look may come between a publish and its mark, or
    /// while a person holds messages in the UI.
    fn compare(&mut self, expected: Copies, there: u64) -> Off {
        self.last = Some(Instant::now());
        let now =
            Off { lost: there < expected.tasks, strange: there > expected.letters + self.nameless };
        let before = std::mem::replace(&mut self.before, now);
        Off { lost: before.lost && now.lost, strange: before.strange && now.strange }
    }
}
