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
use crate::applying::{self, CHUNK, Look};
use crate::due::{self, Batch, MAX_TICKS};

/// The schedules of a term, with what is next.
pub struct Ticker {
    store: Store,
    announcer: Announcer,
    /// The file, whose entries are not copied.
    config: Arc<Config>,
    /// Of what is in force; a tick statement of another one decides nothing.
    revision: i64,
    slots: Vec<Option<Known>>,
    next: BinaryHeap<Reverse<(DateTime<Utc>, usize)>>,
}

struct Known {
    entry: Entry,
    mark: DateTime<Utc>,
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
    /// The term is over: step down.
    TermOver,
}

impl Ticker {
    /// Begins from the durable marks of what is in force.
    pub async fn begin(
        store: Store,
        announcer: Announcer,
        config: Arc<Config>,
        look: Look,
    ) -> Result<Self, Error> {
        let mut ticker = Self {
            store,
            announcer,
            config: config.clone(),
            revision: look.file.revision,
            slots: Vec::with_capacity(look.standing.len()),
            next: BinaryHeap::with_capacity(look.standing.len()),
        };
        for n in &look.diff.unchanged {
            if let Some(known) = look.standing.get(&config.schedules[*n].name) {
                ticker.know(Entry::OfFile(*n), known.mark);
            }
        }
        for old in look.old(&config.schedules).chunks(CHUNK) {
            for kept in &ticker.store.specs(&applying::names(old)).await? {
                ticker.know_applied(kept);
            }
        }
        info!(schedules = ticker.slots.len(), revision = ticker.revision, "in force");
        Ok(ticker)
    }

    /// Ticks what is due at `now`, the database's present: some hundreds of schedules at most, so
    /// that the lead is renewed in between.
    pub async fn round(&mut self, term: &Term, now: DateTime<Utc>) -> Result<Round, Error> {
        let slots = self.take_due(now);
        for batch in self.batches(&slots, now).await? {
            if !self.decide(term, batch, now).await? {
                if !self.refresh().await? {
                    return Ok(Round::TermOver);
                }
                // Other entries are in force: what they left due is looked at again.
                for slot in slots {
                    self.plan_next(slot);
                }
                return Ok(Round::Until(Some(now)));
            }
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
        let mut last = String::new();
        let mut changed = 0;
        loop {
            let page = self.store.changed_schedules(self.revision, &last).await?;
            let Some(end) = page.last() else { break };
            last.clone_from(&end.name);
            changed += page.len();
            for kept in &page {
                if let Some(slot) = slots.get(&kept.name) {
                    self.slots[*slot] = None;
                }
                if !kept.removed {
                    self.know_applied(kept);
                }
            }
        }
        info!(revision, schedules = changed, "other schedules are in force");
        self.revision = revision;
        Ok(true)
    }

    fn know_applied(&mut self, kept: &Kept) {
        match Schedule::from_spec(&kept.name, &kept.spec) {
            Ok(schedule) => self.know(Entry::Applied(Box::new(schedule)), kept.mark),
            // Written by a newer binary: its producer ticks it when it leads.
            Err(what) => error!(what, "it does not tick"),
        }
    }

    fn know(&mut self, entry: Entry, mark: DateTime<Utc>) {
        self.slots.push(Some(Known { entry, mark }));
        self.plan_next(self.slots.len() - 1);
    }

    fn take_due(&mut self, now: DateTime<Utc>) -> Vec<usize> {
        let mut due = Vec::new();
        while let Some(Reverse((at, slot))) = self.next.peek()
            && *at <= now
            && due.len() < MAX_TICKS
        {
            due.push(*slot);
            self.next.pop();
        }
        due
    }

    fn plan_next(&mut self, slot: usize) {
        // A slot whose entry was changed or removed is empty for good.
        let Some(known) = &self.slots[slot] else { return };
        if let Some(at) = schedule(&self.config, &known.entry).next_due(known.mark) {
            self.next.push(Reverse((at, slot)));
        }
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
