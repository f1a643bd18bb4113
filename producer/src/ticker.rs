//! The ticker: the leader's loop that turns planned instants into tick rows and tasks.
//!
//! A heap holds the next instant of each schedule, so a round costs what is due, not what is known.
//! It computes with the database's time, fetched with each renewal of the lead, and decides nothing:
//! the tick statement does.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use shared::domain::schedule::{PlannedTick, Schedule};
use shared::domain::task::TaskId;
use shared::domain::template::{self, TickContext};
use shared::relay::Relay;
use shared::store::{DecidedTick, Error, Store, Term, TickInput};
use shared::telemetry::spans::{self, Span};
use shared::telemetry::{metrics, names};
use tracing::{debug, error};

/// Most ticks in one statement.
pub const MAX_TICKS: usize = 500;

/// How far back the previous instant of a tick is looked for: a leap day's line has one.
const LOOK_BACK: TimeDelta = TimeDelta::days(9 * 366);

/// The schedules of a term, with what is next.
pub struct Ticker {
    store: Store,
    relay: Relay,
    schedules: HashMap<String, Known>,
    next: BinaryHeap<Reverse<(DateTime<Utc>, String)>>,
}

struct Known {
    schedule: Schedule,
    mark: DateTime<Utc>,
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
    /// Applies the file's schedules and begins from their durable marks.
    pub async fn begin(store: Store, relay: Relay, schedules: &[Schedule]) -> Result<Self, Error> {
        let applied = store.apply_schedules(schedules).await?;
        let marks: HashMap<String, DateTime<Utc>> =
            applied.into_iter().map(|a| (a.name, a.mark)).collect();
        let mut ticker = Self { store, relay, schedules: HashMap::new(), next: BinaryHeap::new() };
        for schedule in schedules {
            let Some(&mark) = marks.get(&schedule.name) else { continue };
            let known = Known { schedule: schedule.clone(), mark };
            ticker.schedules.insert(schedule.name.clone(), known);
            ticker.plan_next(&schedule.name);
        }
        Ok(ticker)
    }

    /// Ticks everything that is due at `now`, the database's present.
    pub async fn round(&mut self, term: &Term, now: DateTime<Utc>) -> Result<Round, Error> {
        let due = self.take_due(now);
        let mut waves: Vec<Vec<(TickInput, Span)>> = Vec::new();
        for name in &due {
            // At most one running tick per schedule and statement, in order of time.
            for (n, tick) in self.inputs(name, now).into_iter().enumerate() {
                if waves.len() <= n {
                    waves.push(Vec::new());
                }
                waves[n].push(tick);
            }
        }
        for wave in waves {
            for batch in chunks(wave) {
                if !self.decide(term, batch, now).await? {
                    return Ok(Round::TermOver);
                }
            }
        }
        for name in &due {
            if let Some(known) = self.schedules.get_mut(name) {
                known.mark = known.mark.max(now);
            }
            self.plan_next(name);
        }
        Ok(Round::Until(self.next.peek().map(|Reverse((at, _))| *at)))
    }

    fn take_due(&mut self, now: DateTime<Utc>) -> Vec<String> {
        let mut due = Vec::new();
        while let Some(Reverse((at, _))) = self.next.peek()
            && *at <= now
        {
            if let Some(Reverse((_, name))) = self.next.pop() {
                due.push(name);
            }
        }
        due
    }

    fn plan_next(&mut self, name: &str) {
        let Some(known) = self.schedules.get(name) else { return };
        if let Some(at) = known.schedule.cron.next_after(known.mark, known.schedule.timezone) {
            self.next.push(Reverse((at, name.to_owned())));
        }
    }

    /// The ticks of a schedule that are due, oldest first: the span of what is too old, then each.
    fn inputs(&self, name: &str, now: DateTime<Utc>) -> Vec<(TickInput, Span)> {
        let Some(known) = self.schedules.get(name) else { return Vec::new() };
        let plan = known.schedule.plan(known.mark, now);
        let mut ticks = Vec::with_capacity(plan.ticks.len() + 1);
        if let Some(older) = &plan.older {
            let tick = PlannedTick { at: older.last, run: false };
            let (mut input, span) = input(&known.schedule, &tick);
            input.first_at = Some(older.first);
            input.count = older.count;
            ticks.push((input, span));
        }
        ticks.extend(plan.ticks.iter().map(|tick| input(&known.schedule, tick)));
        ticks
    }

    /// Sends one statement; false when the term is over.
    async fn decide(
        &self,
        term: &Term,
        batch: Vec<(TickInput, Span)>,
        now: DateTime<Utc>,
    ) -> Result<bool, Error> {
        let (inputs, spans): (Vec<TickInput>, Vec<Span>) = batch.into_iter().unzip();
        let Some(decided) = self.store.tick(term, &inputs).await? else { return Ok(false) };
        let mut made = Vec::new();
        for tick in &decided {
            let at = inputs
                .iter()
                .position(|i| i.planned_at == tick.planned_at && i.schedule == tick.schedule);
            tell(tick, at.map(|n| &spans[n]), now);
            if tick.fresh && tick.outcome == Some(shared::domain::schedule::TickOutcome::Enqueued) {
                made.extend(tick.task_id);
            }
        }
        drop(spans);
        if !made.is_empty() {
            // A row that stays unpublished is found by the relay's own look.
            if let Err(error) = self.relay.publish_now(&made).await {
                debug!(%error, "ticks are committed; the relay publishes them");
                self.relay.poke();
            }
        }
        Ok(true)
    }
}

fn chunks(mut wave: Vec<(TickInput, Span)>) -> Vec<Vec<(TickInput, Span)>> {
    let mut chunks = Vec::new();
    while wave.len() > MAX_TICKS {
        let rest = wave.split_off(MAX_TICKS);
        chunks.push(std::mem::replace(&mut wave, rest));
    }
    chunks.push(wave);
    chunks
}

/// A planned instant with the task that it would make.
fn input(schedule: &Schedule, tick: &PlannedTick) -> (TickInput, Span) {
    let span = spans::tick(&schedule.name, tick.at, schedule.timezone.name());
    let context = TickContext {
        schedule: &schedule.name,
        at: tick.at,
        timezone: schedule.timezone,
        previous: schedule.previous(tick.at, tick.at - LOOK_BACK),
    };
    // Both were rendered with samples when the file was loaded. Should one fail all the same, the
    // tick is recorded and the task shows what is wrong, rather than the producer stopping.
    let key = template::render_key(&schedule.execution_key_template, &context).map_or_else(
        |error| {
            error!(schedule = %schedule.name, %error, "the execution key cannot be rendered");
            format!("{}@{}", schedule.name, tick.at.to_rfc3339())
        },
        String::from,
    );
    let payload = template::render_payload(&schedule.payload, &context).unwrap_or_else(|error| {
        error!(schedule = %schedule.name, %error, "the payload cannot be rendered");
        Value::String(format!("payload template: {error}"))
    });
    span.set(names::belfry::EXECUTION_KEY, key.clone());
    let input = TickInput {
        schedule: schedule.name.clone(),
        planned_at: tick.at,
        run: tick.run,
        first_at: None,
        count: 1,
        task_id: TaskId::new(),
        execution_key: key,
        task_type: schedule.task_type.clone(),
        pool: schedule.pool.clone(),
        payload,
        timeout: schedule.timeout,
        retry: schedule.retry,
        semantics: schedule.semantics,
        overlap: schedule.overlap,
        traceparent: span.traceparent(),
        paused: schedule.paused,
    };
    (input, span)
}

fn tell(tick: &DecidedTick, span: Option<&Span>, now: DateTime<Utc>) {
    let Some(outcome) = tick.outcome else { return };
    let name = outcome.as_str();
    let lag = (now - tick.planned_at).to_std().unwrap_or(Duration::ZERO);
    if let Some(span) = span {
        span.set(names::belfry::TICK_OUTCOME, name);
        span.set(names::belfry::LAG_MS, i64::try_from(lag.as_millis()).unwrap_or(i64::MAX));
    }
    if tick.fresh {
        metrics::ticked(&tick.schedule, name, lag);
        tracing::info!(schedule = %tick.schedule, planned_at = %tick.planned_at, outcome = name,
            task.id = tick.task_id.map(|id| id.to_string()), "tick");
    }
}
