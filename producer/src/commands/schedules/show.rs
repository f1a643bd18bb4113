//! `producer schedules show`: one schedule with its last ticks and its next instants.

use serde_json::{Value, json};
use shared::domain::clock;

use super::line::{self, from, timing, unknown, upcoming};
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
    let (cron, zone) = timing(entry, row.as_ref()).ok_or_else(|| unknown(name, &config))?;
    let now = clock::now();
    let line = line::line(entry, row.as_ref(), now).ok_or_else(|| unknown(name, &config))?;
    let ticks = store.ticks(Some(name), SHOWN as i64).await?;
    let upcoming = upcoming(&cron, zone, from(row.as_ref(), now), SHOWN);
    if context.json {
        let mut document = json!(line);
        document["explanation"] = cron.explain(zone).into();
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
        ("meaning", Some(cron.explain(zone))),
        ("type", Some(line.task_type.clone())),
        ("state", Some(standing(&line))),
        ("payload", entry.map(|entry| output::pretty(&entry.payload))),
        ("next", Some(upcoming.iter().map(|at| time(*at)).collect::<Vec<_>>().join("\n"))),
        ("last", (!ticks.is_empty()).then(|| past.collect::<Vec<_>>().join("\n"))),
    ]))
}
