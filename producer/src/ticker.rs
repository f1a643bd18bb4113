//! The ticker: the leader's loop that turns planned instants into tick rows and tasks.
//!
//! A heap holds the next instant of each schedule, so a round costs what is due, not what is known.
//! It ticks what is in force in the database, computes with the database's time, fetched with each
//! renewal of the lead, and decides nothing: the tick statement does. It never waits for the broker.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use shared::config::Config;
use shared::domain::schedule::{Schedule, TickOutcome};
use shared::store::{DecidedTick, Error, Kept, Store, Term};
use shared::telemetry::spans::Span;
use shared::telemetry::{metrics, names};
use tracing::{error, info, warn};

use crate::announcer::Announcer;
use crate::applying::{CHUNK, InForce};
use crate::due::{self, Batch, MAX_TICKS};

/// The schedules of a term, with what is next.
pub struct Ticker {
    store: Store,
    announcer: Announcer,
    /// The file, whose entries are not copied.
    config: Arc<Config>,
    /// Of what is in force; a tick statement of another one decides nothing.
    revision: i64,
    /// Those of removed schedules are empty, and free for others.
    slots: Vec<Option<Known>>,
    free: Vec<usize>,
    /// Instants with their slots; what a slot does not say itself was overtaken by an edit.
    next: BinaryHeap<Reverse<(DateTime<Utc>, usize)>>,
}

struct Known {
    entry: Entry,
    mark: DateTime<Utc>,
    /// Its next instant, as long as that waits in the heap.
    next: Option<DateTime<Utc>>,
}

enum Entry {
    /// In force as the file says.
    OfFile(usize),
    /// In force, and not so in our file.
    Applied(Box<Schedule>),
}

/// What a round came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Round {
    /// Look again at this instant, or when something changes.
    Until(Option<DateTime<Utc>>),
    /// Nothing was decided: the term is over, or the database's clock has gone back. Ask for both.
    Refused,
}

impl Ticker {
    /// Begins from the durable marks of what is in force.
    pub async fn begin(
        store: Store,
        announcer: Announcer,
        config: Arc<Config>,
        in_force: InForce,
    ) -> Result<Self, Error> {
        let InForce { revision, of_file, others } = in_force;
        let count = of_file.len() + others.len();
        let mut ticker = Self {
            store,
            announcer,
            config,
            revision,
            slots: Vec::with_capacity(count),
            free: Vec::new(),
            next: BinaryHeap::with_capacity(count),
        };
        for (n, mark) in of_file {
            ticker.know(None, Entry::OfFile(n), mark);
        }
        let names: Vec<&str> = others.iter().map(String::as_str).collect();
        for page in names.chunks(CHUNK) {
            for kept in &ticker.store.specs(page).await? {
                ticker.know_applied(None, kept);
            }
        }
        info!(schedules = count, revision = ticker.revision, "in force");
        Ok(ticker)
    }

    /// Ticks what is due at `now`, the database's present: some hundreds of schedules at most, so
    /// that the lead is renewed in between.
    pub async fn round(&mut self, term: &Term, now: DateTime<Utc>) -> Result<Round, Error> {
        let slots = self.take_due(now);
        for batch in self.batches(&slots, now).await? {
            let again = match self.decide(term, batch, now).await {
                Ok(true) => continue,
                Ok(false) if self.refresh().await? => Round::Until(Some(now)),
                Ok(false) => Round::Refused,
                // A long apply holds the file: it is waited for, as long as we lead.
                Err(error) if error.is_locked() => Round::Until(Some(now)),
                Err(error) => return Err(error),
            };
            // Whatever the reason, what is due is looked at again.
            for slot in slots {
                self.plan_next(slot);
            }
            return Ok(again);
        }
        for slot in slots {
            if let Some(known) = &mut self.slots[slot] {
                known.mark = known.mark.max(now);
            }
            self.plan_next(slot);
        }
        Ok(Round::Until(self.next.peek().map(|Reverse((at, _))| *at)))
    }

    /// What these slots have to decide.
    async fn batches(&self, slots: &[usize], now: DateTime<Utc>) -> Result<Vec<Batch>, Error> {
        let due = slots.iter().filter_map(|slot| {
            let known = self.slots[*slot].as_ref()?;
            Some((schedule(&self.config, &known.entry), known.mark))
        });
        let due: Vec<_> = due.collect();
        let pauses = self.store.pause_edges(&due::late(&due, now)).await?;
        Ok(due::batches(&due, &pauses, now))
    }

    /// Takes over what was applied by others since; false when there was nothing.
    pub async fn refresh(&mut self) -> Result<bool, Error> {
        let revision = self.store.revision().await?;
        if revision == self.revision {
            return Ok(false);
        }
        let known = self.slots.iter().enumerate().filter_map(|(slot, known)| {
            Some((schedule(&self.config, &known.as_ref()?.entry).name.clone(), slot))
        });
        let slots: HashMap<String, usize> = known.collect();
        let mut place = (self.revision + 1, String::new());
        let mut changed = 0;
        loop {
            let page = self.store.changed_schedules((place.0, &place.1), revision).await?;
            let Some((at, last)) = page.last() else { break };
            place = (*at, last.name.clone());
            changed += page.len();
            for (_, kept) in &page {
                let slot = slots.get(&kept.name).copied();
                match (kept.removed, slot) {
                    (false, slot) => self.know_applied(slot, kept),
                    (true, Some(slot)) => self.forget(slot),
                    (true, None) => {}
                }
            }
        }
        info!(revision, schedules = changed, "other schedules are in force");
        self.revision = revision;
        Ok(true)
    }

    /// Knows an entry in the slot that it had, or in another.
    fn know_applied(&mut self, slot: Option<usize>, kept: &Kept) {
        match Schedule::from_spec(&kept.name, &kept.spec) {
            Ok(schedule) => self.know(slot, Entry::Applied(Box::new(schedule)), kept.mark),
            // Written by a newer binary: its producer ticks it when it leads.
            Err(what) => {
                error!(what, "it does not tick");
                if let Some(slot) = slot {
                    self.forget(slot);
                }
            }
        }
    }

    fn know(&mut self, slot: Option<usize>, entry: Entry, mark: DateTime<Utc>) {
        let slot = slot.or_else(|| self.free.pop()).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(Known { entry, mark, next: None });
        self.plan_next(slot);
    }

    fn forget(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.free.push(slot);
    }

    fn take_due(&mut self, now: DateTime<Utc>) -> Vec<usize> {
        let mut due = Vec::new();
        while let Some(Reverse((at, slot))) = self.next.peek().copied()
            && at <= now
            && due.len() < MAX_TICKS
        {
            self.next.pop();
            if let Some(known) = &mut self.slots[slot]
                && known.next.take_if(|next| *next == at).is_some()
            {
                due.push(slot);
            }
        }
        due
    }

    /// Puts what is next of a slot into the heap; an empty slot has nothing.
    fn plan_next(&mut self, slot: usize) {
        let Some(known) = &mut self.slots[slot] else { return };
        let next = schedule(&self.config, &known.entry).next_due(known.mark);
        // What waits there already waits once.
        if let Some(at) = next
            && known.next != next
        {
            self.next.push(Reverse((at, slot)));
        }
        known.next = next;
    }

    /// Sends one statement; false when it decided nothing.
    async fn decide(&self, term: &Term, batch: Batch, now: DateTime<Utc>) -> Result<bool, Error> {
        let (inputs, spans): (Vec<_>, Vec<Span>) = batch.into_iter().unzip();
        let decided = self.store.tick(term, self.revision, &inputs).await?;
        let Some(decided) = decided else { return Ok(false) };
        let mut made = Vec::new();
        for tick in &decided {
            tell(tick, spans.get(tick.index), now);
            if tick.fresh && tick.outcome == Some(TickOutcome::Enqueued) {
                made.extend(tick.task_id);
            }
        }
        drop(spans);
        self.announcer.announce(made);
        Ok(true)
    }
}

fn schedule<'a>(config: &'a Config, entry: &'a Entry) -> &'a Schedule {
    match entry {
        Entry::OfFile(n) => &config.schedules[*n],
        Entry::Applied(schedule) => schedule,
    }
}

fn tell(tick: &DecidedTick, span: Option<&Span>, now: DateTime<Utc>) {
    let Some(outcome) = tick.outcome else { return };
    let name = outcome.as_str();
    let lag = (now - tick.planned_at).to_std().unwrap_or(Duration::ZERO);
    if let Some(span) = span {
        span.set(names::belfry::TICK_OUTCOME, name);
        span.set(names::belfry::LAG_MS, i64::try_from(lag.as_millis()).unwrap_or(i64::MAX));
    }
    if tick.conflict {
        warn!(schedule = %tick.schedule, planned_at = %tick.planned_at,
            task.id = tick.task_id.map(|id| id.to_string()),
            "key_reused_with_other_payload: this task has the tick's key with another payload, and \
             nothing new was enqueued; let execution_key_template tell the two apart");
    }
    if tick.fresh {
        metrics::ticked(&tick.schedule, name, lag);
        info!(schedule = %tick.schedule, planned_at = %tick.planned_at, outcome = name,
            task.id = tick.task_id.map(|id| id.to_string()), "tick");
    }
}
