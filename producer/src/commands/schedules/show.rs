//! `producer schedules show`: one schedule with its last ticks and its next instants.

use serde_json::{Value, json};
use shared::domain::clock;
use shared::domain::schedule::{Schedule, changes};

use super::line::{self, from, in_force, unknown, upcoming};
use super::list::standing;
use crate::commands::connect::Context;
use crate::commands::error::Answer;
use crate::commands::output::{self, fields, time};

/// Ticks and instants that it lists.
const SHOWN: usize = 5;

pub(super) async fn show(name: &str, context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let row = store.schedules(Some(name)).await?.pop();
    let entry = config.schedules.iter().find(|entry| entry.name == name);
    let schedule = in_force(entry, row.as_ref()).ok_or_else(|| unknown(name, &config))?;
    let meaning = schedule.cron.explain(schedule.timezone);
    let now = clock::now();
    let line = line::line(entry, row.as_ref(), now).ok_or_else(|| unknown(name, &config))?;
    let ticks = store.ticks(Some(name), SHOWN as i64).await?;
    let upcoming = upcoming(&schedule, from(row.as_ref(), now), SHOWN);
    if context.json {
        let mut document = json!(line);
        document["explanation"] = meaning.into();
        document["entry"] = fields_of(&schedule);
        document["spec"] = row.map_or(Value::Null, |row| row.spec);
        document["upcoming"] = json!(upcoming);
        document["ticks"] = json!(ticks);
        return output::json(&document);
    }
    let past = ticks.iter().map(|tick| {
        let task = tick.task_id.map(|task| format!("  task {task}")).unwrap_or_default();
        let span =
            if tick.count > 1 { format!(" ({} instants)", tick.count) } else { String::new() };
        format!("{}  {}{span}{task}", time(tick.planned_at), tick.outcome)
    });
    output::text(&fields(&[
        ("schedule", Some(line.name.clone())),
        ("cron", Some(format!("{} in {}", line.cron, line.timezone))),
        ("meaning", Some(meaning)),
        ("type", Some(line.task_type.clone())),
        ("state", Some(standing(&line))),
        ("payload", Some(output::pretty(&schedule.payload))),
        ("policies", policies(&schedule)),
        ("next", Some(upcoming.iter().map(|at| time(*at)).collect::<Vec<_>>().join("\n"))),
        ("last", (!ticks.is_empty()).then(|| past.collect::<Vec<_>>().join("\n"))),
    ]))
}

/// Every key of it, as the file spells them.
fn fields_of(schedule: &Schedule) -> Value {
    let fields = schedule.fields().into_iter();
    Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).collect())
}

/// What it says beside its line, zone, type and payload, where that is no default.
fn policies(schedule: &Schedule) -> Option<String> {
    let plain = Schedule {
        timezone: schedule.timezone,
        payload: schedule.payload.clone(),
        ..Schedule::new("", schedule.cron.clone(), &schedule.task_type, &schedule.pool)
    };
    let said = changes(&plain, schedule).into_iter().map(|change| match change.new {
        Value::String(text) => format!("{}: {text}", change.field),
        other => format!("{}: {other}", change.field),
    });
    let lines: Vec<String> = said.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
