//! The mirror of dead letters: `belfry.dead` holds a copy of each open letter, and no other's.
//!
//! The leader walks the queue when letters were resolved, or when copies were lost with the broker
//! or by a purge. It never decides what becomes of a letter: the table does.

use std::collections::HashSet;
use std::time::Duration;

use shared::broker::{Operator, Publisher, Settings, Topology};
use shared::shutdown::Shutdown;
use shared::store::{Error, Store};
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
        let lost = counts.is_time() && counts.lacks(self.lacks_copies().await?);
        if stale.is_empty() && !lost {
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
        if lost {
            let seen: Vec<i64> = walked.seen.iter().copied().collect();
            missing = self.store.copies_lost(&seen, began.elapsed()).await?;
        }
        info!(kept = walked.kept, removed = walked.removed, missing, "walked the dead queue");
        Ok(())
    }

    async fn lacks_copies(&self) -> anyhow::Result<bool> {
        let expected = self.store.copies_expected().await?;
        let there = self.publisher.depth(&self.topology.dead()).await?.unwrap_or(0);
        Ok(u64::from(there) < expected)
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
            let letters = walk.next().await?;
            if letters.is_empty() {
                walk.finish().await?;
                return Ok(Some(walked));
            }
            let stays = self.judge(&letters, &mut walked.seen).await?;
            let kept = stays.iter().filter(|stays| **stays).count();
            walk.pass(&stays).await?;
            walked.kept += kept;
            walked.removed += stays.len() - kept;
        }
        Ok(None)
    }

    /// Who stays: the first copy of each letter that is not resolved, and what belongs to none.
    async fn judge(
        &self,
        letters: &[Option<i64>],
        seen: &mut HashSet<i64>,
    ) -> Result<Vec<bool>, Error> {
        let known: Vec<i64> = letters.iter().copied().flatten().collect();
        let resolved = self.store.resolved_letters(&known).await?;
        let stays = |letter: i64, seen: &mut HashSet<i64>| {
            !resolved.contains(&letter) && seen.insert(letter)
        };
        Ok(letters.iter().map(|letter| letter.is_none_or(|letter| stays(letter, seen))).collect())
    }
}

/// Remembers when copies were counted, and whether some were missing then.
#[derive(Debug, Default)]
struct Counts {
    last: Option<Instant>,
    lacked: bool,
}

impl Counts {
    fn is_time(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= COUNT_EVERY)
    }

    /// True when copies are missing now and were the last time: one look may come between a
    /// publish and its mark, or while a person holds messages in the UI.
    fn lacks(&mut self, lacks: bool) -> bool {
        self.last = Some(Instant::now());
        std::mem::replace(&mut self.lacked, lacks) && lacks
    }
}
