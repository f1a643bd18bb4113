//! What is due of schedules, as the tick statement takes it: keys and payloads rendered, in batches.
//!
//! It decides nothing, and renders nothing for instants that were missed: they make no task.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use shared::domain::schedule::{LATE_AFTER, PlannedTick, Schedule};
use shared::domain::task::TaskId;
use shared::domain::template::{self, TickContext};
use shared::store::{PauseEdges, TickInput};
use shared::telemetry::names;
use shared::telemetry::spans::{self, Span};
use tracing::error;

/// Most ticks in one statement.
pub const MAX_TICKS: usize = 500;

/// How far back the previous instant of a tick is looked for: a leap day's line has one.
pub const LOOK_BACK: TimeDelta = TimeDelta::days(9 * 366);

/// Ticks of one statement, each with its span.
pub type Batch = Vec<(TickInput, Span)>;

/// A schedule with its mark.
pub type Marked<'a> = (&'a Schedule, DateTime<Utc>);

/// The names of those that missed something, of which the pauses matter for [`batches`].
pub fn late<'a>(schedules: &[Marked<'a>], now: DateTime<Utc>) -> Vec<&'a str> {
    let is_late = |(schedule, mark): &&Marked<'_>| {
        schedule.next_due(*mark).is_some_and(|first| now - first > LATE_AFTER)
    };
    schedules.iter().filter(is_late).map(|(schedule, _)| schedule.name.as_str()).collect()
}

/// Everything that is due at `now` of schedules, to be decided batch by batch.
///
/// A batch has at most one running tick of a schedule: the next one is judged by what became of it.
pub fn batches(schedules: &[Marked<'_>], pauses: &PauseEdges, now: DateTime<Utc>) -> Vec<Batch> {
    let mut waves: Vec<Batch> = Vec::new();
    for (schedule, mark) in schedules {
        let cuts = pauses.get(&schedule.name).map_or(&[][..], Vec::as_slice);
        let mut wave = 0;
        for (tick, span) in ticks(schedule, (*mark, now), cuts) {
            if waves.len() <= wave {
                waves.push(Vec::new());
            }
            let runs = tick.run;
            waves[wave].push((tick, span));
            wave += usize::from(runs);
        }
    }
    waves.into_iter().flat_map(chunks).collect()
}

fn chunks(mut wave: Batch) -> Vec<Batch> {
    let mut chunks = Vec::new();
    while wave.len() > MAX_TICKS {
        let rest = wave.split_off(MAX_TICKS);
        chunks.push(std::mem::replace(&mut wave, rest));
    }
    chunks.push(wave);
    chunks
}

/// The ticks of a schedule, oldest first: what is too old as a span, or as several where pauses begin
/// and end in it, then each.
fn ticks(
    schedule: &Schedule,
    (mark, now): (DateTime<Utc>, DateTime<Utc>),
    cuts: &[DateTime<Utc>],
) -> Batch {
    let plan = schedule.plan(mark, now);
    let mut ticks = Vec::with_capacity(plan.ticks.len() + 1);
    for older in plan.older.into_iter().flat_map(|older| schedule.cut(older, cuts)) {
        let (mut input, span) = input(schedule, &PlannedTick { at: older.last, run: false });
        input.first_at = Some(older.first);
        input.count = older.count;
        ticks.push((input, span));
    }
    ticks.extend(plan.ticks.iter().map(|tick| input(schedule, tick)));
    ticks
}

/// A planned instant with the task that it would make.
fn input(schedule: &Schedule, tick: &PlannedTick) -> (TickInput, Span) {
    let span = spans::tick(&schedule.name, tick.at, schedule.timezone.name());
    let (execution_key, payload) =
        if tick.run { rendered(schedule, tick.at) } else { (String::new(), Value::Null) };
    if tick.run {
        span.set(names::belfry::EXECUTION_KEY, execution_key.clone());
    }
    let input = TickInput {
        schedule: schedule.name.clone(),
        planned_at: tick.at,
        run: tick.run,
        first_at: None,
        count: 1,
        task_id: TaskId::new(),
        execution_key,
        task_type: schedule.task_type.clone(),
        pool: schedule.pool.clone(),
        payload,
        timeout: schedule.timeout,
        retry: schedule.retry,
        semantics: schedule.semantics,
        overlap: schedule.overlap,
        traceparent: span.traceparent(),
        paused: schedule.paused,
        delay: schedule.delay(),
        deadline: schedule.deadline,
        priority: schedule.priority,
    };
    (input, span)
}

/// Key and payload of the task of an instant.
///
/// Both were rendered with samples when the file was loaded. Should one fail all the same, the tick
/// is recorded and the task shows what is wrong, rather than the producer stopping.
fn rendered(schedule: &Schedule, at: DateTime<Utc>) -> (String, Value) {
    let previous = schedule.names_previous().then(|| schedule.previous(at, at - LOOK_BACK));
    let context = TickContext {
        schedule: &schedule.name,
        at,
        timezone: schedule.timezone,
        previous: previous.flatten(),
    };
    let key = template::render_key(&schedule.execution_key_template, &context).map_or_else(
        |error| {
            error!(schedule = %schedule.name, %error, "the execution key cannot be rendered");
            format!("{}@{}", schedule.name, at.to_rfc3339())
        },
        String::from,
    );
    let payload =
        template::render_payload(&schedule.payload.value(), &context).unwrap_or_else(|error| {
            error!(schedule = %schedule.name, %error, "the payload cannot be rendered");
            Value::String(format!("payload template: {error}"))
        });
    (key, payload)
}
