//! `producer schedules show`: one schedule with its last ticks, its runs by hand and its next instants.

use serde_json::{Value, json};
use shared::domain::quota::{Limits, Scope, dollars};
use shared::domain::schedule::{Schedule, changes};
use shared::store::{ByHandRow, TickRow};

use super::absent::{absent, ever, unapplied};
use super::cadence::Cadence;
use super::line::{self, in_force};
use super::list::{OTHER_PAYLOAD, outcome, standing};
use crate::commands::connect::Context;
use crate::commands::error::Answer;
use crate::commands::output::{self, fields, time};

/// Ticks and instants that it lists.
const SHOWN: usize = 5;

pub(super) async fn show(name: &str, context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    let known = ever(name, &store).await?;
    let entry = config.schedules.iter().find(|entry| entry.name == name);
    let row = line::present(entry, known.as_ref());
    let (Some(schedule), Some(line)) = (in_force(entry, row), line::line(entry, row)) else {
        return Err(absent(name, &config, known.as_ref()));
    };
    if entry.is_some() && row.is_none() && known.is_some() {
        output::talk(&format!("note: {}", unapplied(name, &config, known.as_ref(), "")));
    }
    let leader = line::leader(&store).await?;
    let ticks = store.ticks(Some(name), SHOWN as i64).await?;
    let by_hand = store.runs_by_hand(name, SHOWN as i64).await?;
    let (upcoming, planned) = line::ahead(&schedule, row, SHOWN);
    let recent = store.recent_ticks(Some(name)).await?.pop();
    let cadence = Cadence::of(&planned, recent);
    let budget = match row {
        Some(_) => store.quota_of_file(Scope::Schedule, name).await?,
        None => config.budgets.get(name).map(Limits::spec),
    };
    let budget = budget.map(|spec| budget_of(&spec));
    let meaning = schedule.cron.explain(schedule.timezone);
    if context.json {
        let mut document = json!(line);
        document["explanation"] = meaning.into();
        document["cadence"] = json!(cadence);
        document["entry"] = fields_of(&schedule);
        document["entry"]["budget"] = json!(budget);
        document["spec"] = row.map_or(Value::Null, |row| row.spec.clone());
        document["upcoming"] = json!(upcoming);
        document["ticks"] = json!(ticks);
        document["by_hand"] = json!(by_hand);
        document["leader"] = json!(leader);
        return output::json(&document);
    }
    output::text(&fields(&[
        ("schedule", Some(line.name.clone())),
        ("cron", Some(format!("{} in {}", line.cron, line.timezone))),
        ("meaning", Some(meaning)),
        ("type", Some(line.task_type.clone())),
        ("state", Some(standing(&line))),
        ("cadence", Some(cadence.effective())),
        ("last outcome", line.last_outcome.is_some().then(|| outcome(&line, &cadence))),
        ("payload", Some(output::pretty(&schedule.payload.value()))),
        ("policies", policies(&schedule)),
        ("budget", budget.as_ref().map(said)),
        ("next", listed(&upcoming, |at| time(*at))),
        ("last ticks", listed(&ticks, ticked)),
        ("by hand", listed(&by_hand, asked)),
    ]))
}

/// Every key of it, as the file spells them.
fn fields_of(schedule: &Schedule) -> Value {
    let fields = schedule.fields().into_iter();
    Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A budget as the file spells it, of what is kept of it ([`Limits::spec`]).
fn budget_of(spec: &Value) -> Value {
    json!({
        "daily_tokens": spec["daily_tokens"],
        "daily_cost": spec["daily_cost_micro"].as_i64().map(dollars),
        "over_budget": spec["over_budget"],
    })
}

/// A line for each key that is not null.
fn said(keys: &Value) -> String {
    let keys = keys.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let told = keys.map(|(key, value)| match value {
        Value::String(text) => format!("{key}: {text}"),
        other => format!("{key}: {other}"),
    });
    told.collect::<Vec<_>>().join("\n")
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

/// A line for each; `None` where there are none.
fn listed<T>(all: &[T], told: impl Fn(&T) -> String) -> Option<String> {
    (!all.is_empty()).then(|| all.iter().map(told).collect::<Vec<_>>().join("\n"))
}

fn ticked(tick: &TickRow) -> String {
    let task = tick.task_id.map(|task| format!("  task {task}")).unwrap_or_default();
    let span = if tick.count > 1 { format!(" ({} instants)", tick.count) } else { String::new() };
    let late = tick.not_started_at.map_or("", |_| ", not started by its deadline");
    let other = if tick.other_payload { format!(", {OTHER_PAYLOAD}") } else { String::new() };
    format!("{}  {}{late}{other}{span}{task}", time(tick.planned_at), tick.outcome)
}

fn asked(run: &ByHandRow) -> String {
    let state = run.state.as_deref().unwrap_or("pruned");
    let forced = if run.forced { ", forced" } else { "" };
    format!(
        "{}  {} of {}{forced} by {}  task {} ({state})",
        time(run.asked_at),
        run.kind,
        time(run.scheduled_for),
        run.asked_by,
        run.task_id
    )
}
