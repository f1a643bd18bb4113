//! Runs by hand: a schedule's entry rendered for an instant, as the ticker would.
//!
//! What cannot be rendered is refused here, where somebody reads the reason.

use chrono::{DateTime, TimeDelta, Utc};
use shared::config::Config;
use shared::domain::execution_key::ExecutionKey;
use shared::domain::schedule::Schedule;
use shared::domain::task::{Due, NewTask, TaskId};
use shared::domain::template::{self, TickContext};
use shared::store::{HandRun, ScheduleRow, Store};

use super::absent::{absent_from_file, ever, unapplied};
use super::line::line;
use crate::commands::connect::Context;
use crate::commands::error::CommandError;
use crate::commands::output::{self, time};
use crate::commands::request;
use crate::due::LOOK_BACK;

/// Begins the keys of runs that are no tick's: what ran by its tick may be run again by hand.
const PREFIX: &str = "hand:";

/// Which key a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyOf {
    /// The key that the instant's tick has or would have had: the work is done once, by either.
    Tick,
    /// One of its own for the instant.
    Instant,
    /// One that no other run has.
    Run,
}

/// The file's entry, with every variable that it uses.
pub(super) async fn entry<'a>(
    name: &str,
    config: &'a Config,
    context: &Context,
) -> Result<&'a Schedule, CommandError> {
    let Some(at) = config.schedules.iter().position(|entry| entry.name == name) else {
        return Err(absent_from_file(name, config, context).await);
    };
    config.require_complete(&format!("tasks[{at}]"))?;
    Ok(&config.schedules[at])
}

/// The schedule in force; a run by hand is the file's entry, so where that says something else, that is
/// told.
pub(super) async fn in_force(
    entry: &Schedule,
    store: &Store,
    config: &Config,
) -> Result<ScheduleRow, CommandError> {
    let row = match ever(&entry.name, store).await? {
        Some(row) if row.removed_at.is_none() => row,
        gone => {
            let advice = "run `producer schedules apply`, or start `producer run` with this file";
            let told = unapplied(&entry.name, config, gone.as_ref(), advice);
            return Err(CommandError::Conflict(told));
        }
    };
    if line(Some(entry), Some(&row)).is_some_and(|line| line.differs) {
        output::talk(&format!(
            "note: {} says of {} what is not in force; this runs as the file says",
            config.name, entry.name
        ));
    }
    Ok(row)
}

/// The key of an instant's tick.
pub(super) fn tick_key(entry: &Schedule, at: DateTime<Utc>) -> Result<ExecutionKey, CommandError> {
    template::render_key(&entry.execution_key_template, &context(entry, at)).map_err(|error| {
        CommandError::Usage(format!(
            "the execution key of {} cannot be rendered for {}: {error}",
            entry.name,
            time(at)
        ))
    })
}

/// The run of an instant.
pub(super) fn run(
    entry: &Schedule,
    at: DateTime<Utc>,
    key: KeyOf,
) -> Result<HandRun, CommandError> {
    let wrong = |what: String| {
        let name = &entry.name;
        CommandError::Usage(format!("{name} cannot be run for {}: {what}", time(at)))
    };
    let id = TaskId::new();
    let execution_key = match key {
        KeyOf::Tick => tick_key(entry, at)?,
        KeyOf::Instant => ExecutionKey::new(format!("{PREFIX}{}", tick_key(entry, at)?))
            .map_err(|error| wrong(error.to_string()))?,
        KeyOf::Run => ExecutionKey::new(format!("{PREFIX}{id}"))?,
    };
    let payload = template::render_payload(&entry.payload.value(), &context(entry, at))
        .map_err(|error| wrong(error.to_string()))?;
    request::check_for(&entry.task_type, &payload).map_err(wrong)?;
    let task = NewTask {
        id,
        name: entry.name.clone(),
        execution_key: Some(execution_key),
        task_type: entry.task_type.clone(),
        pool: entry.pool.clone(),
        payload,
        due: Due::Now,
        timeout: entry.timeout,
        retry: entry.retry,
        semantics: entry.semantics,
        traceparent: None,
    };
    Ok(HandRun { task, scheduled_for: at, priority: entry.priority })
}

/// The planned instants in `[from, to]`, oldest first.
pub(super) fn instants(
    entry: &Schedule,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> impl Iterator<Item = DateTime<Utc>> {
    // An instant is later than what it is asked after.
    let first = entry.next_due(from - TimeDelta::nanoseconds(1));
    std::iter::successors(first, |at| entry.next_due(*at)).take_while(move |at| *at <= to)
}

fn context(entry: &Schedule, at: DateTime<Utc>) -> TickContext<'_> {
    TickContext {
        schedule: &entry.name,
        at,
        timezone: entry.timezone,
        previous: entry.previous(at, at - LOOK_BACK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
tasks:
- name: sync
  schedule: '0 * * * *'
  timezone: Asia/Shanghai
  task_type: http_call
  payload: {url: 'https://x.example/{{ scheduled_date }}?after={{ previous_at }}'}
  execution_key_template: sync_{{ scheduled_date }}
";

    fn config() -> Config {
        shared::config::load_str(FILE, "b.yaml", &|_| None).expect("right")
    }

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("an instant")
    }

    #[test]
    fn each_kind_of_run_has_its_key_and_the_payload_of_its_instant() {
        let config = config();
        let entry = &config.schedules[0];
        let instant = at("2026-11-29T18:00:00Z");

        let keyed = |key| run(entry, instant, key).expect("rendered").task;

        assert_eq!(keyed(KeyOf::Tick).key(), "sync_2026-11-30");
        assert_eq!(keyed(KeyOf::Instant).key(), "hand:sync_2026-11-30");
        let own = keyed(KeyOf::Run);
        assert_eq!(own.key(), format!("hand:{}", own.id));
        assert_eq!(
            own.payload["url"],
            "https://x.example/2026-11-30?after=2026-11-30T01:00:00+08:00"
        );
    }

    #[test]
    fn a_range_has_both_its_ends() {
        let config = config();
        let entry = &config.schedules[0];
        let listed = |from: &str, to: &str| instants(entry, at(from), at(to)).count();

        assert_eq!(listed("2026-11-29T18:00:00Z", "2026-11-29T20:00:00Z"), 3);
        assert_eq!(listed("2026-11-29T18:00:01Z", "2026-11-29T19:59:59Z"), 1);
        assert_eq!(listed("2026-11-29T18:00:00Z", "2026-11-29T17:00:00Z"), 0);
    }
}
