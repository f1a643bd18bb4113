//! A rehearsal for people and for programs, both bounded.

use serde_json::{Value, json};

use super::rehearsal::{Collision, Rehearsal, Tick};
use crate::commands::error::Answer;
use crate::commands::output::{self, counted, time};

/// Collisions, and times left out, that are listed; all are counted.
const LISTED: usize = 20;
/// Names of one collision.
const NAMED: usize = 5;

/// `{"from","to","schedules","ticks_total","ticks","left_out_total","left_out","collisions_total",
/// "collisions","peaks","silent_total","silent"}`.
pub(super) fn document(rehearsal: &Rehearsal, limit: usize) -> Value {
    json!({
        "from": rehearsal.from,
        "to": rehearsal.to,
        "schedules": rehearsal.schedules,
        "ticks_total": rehearsal.ticks.len(),
        "ticks": first(&rehearsal.ticks, limit),
        "left_out_total": rehearsal.left_out.len(),
        "left_out": first(&rehearsal.left_out, limit),
        "collisions_total": rehearsal.collisions.len(),
        "collisions": first(&rehearsal.collisions, limit),
        "peaks": rehearsal.peaks,
        "silent_total": rehearsal.silent.len(),
        "silent": first(&rehearsal.silent, limit),
    })
}

fn first<T>(all: &[T], limit: usize) -> &[T] {
    &all[..limit.min(all.len())]
}

pub(super) fn tell(rehearsal: &Rehearsal, limit: usize) -> Answer {
    let ticks = first(&rehearsal.ticks, limit);
    if !ticks.is_empty() {
        let header = ["INSTANT", "SCHEDULE", "POOL", "LOCAL", "NOTE"];
        output::table(&header, ticks.iter().map(cells).collect())?;
    }
    let hidden = rehearsal.ticks.len() - ticks.len();
    if hidden > 0 {
        output::text(&format!("… and {hidden} more (--limit)"))?;
    }
    output::text(&summary(rehearsal).join("\n"))
}

fn cells(tick: &Tick) -> Vec<String> {
    let paused = tick.paused.then(|| "paused: makes no task".to_owned());
    let held = tick.starts - tick.at;
    let held = (!held.is_zero() && !tick.paused)
        .then(|| format!("starts {} s later (jitter)", held.num_milliseconds() as f64 / 1000.0));
    let note: Vec<String> = [paused, held, tick.note.clone()].into_iter().flatten().collect();
    vec![
        time(tick.at),
        tick.schedule.clone(),
        tick.pool.clone(),
        tick.local.clone(),
        note.join("; "),
    ]
}

fn summary(rehearsal: &Rehearsal) -> Vec<String> {
    let mut lines = vec![format!(
        "{} of {} from {} to {}",
        counted(rehearsal.ticks.len(), "tick"),
        counted(rehearsal.schedules, "schedule"),
        time(rehearsal.from),
        time(rehearsal.to)
    )];
    for left in first(&rehearsal.left_out, LISTED) {
        lines.push(format!("left out   {}  {}: {}", time(left.at), left.schedule, left.note));
    }
    more(rehearsal.left_out.len(), &mut lines);
    if !rehearsal.collisions.is_empty() {
        let seconds = counted(rehearsal.collisions.len(), "moment");
        lines.push(format!("{seconds} at which several tasks of one pool come due"));
    }
    for collision in first(&rehearsal.collisions, LISTED) {
        lines.push(told(collision));
    }
    more(rehearsal.collisions.len(), &mut lines);
    for peak in &rehearsal.peaks {
        let ticks = counted(peak.ticks, "tick");
        lines.push(format!(
            "peak       {}  {}: {ticks} in this minute",
            time(peak.minute),
            peak.pool
        ));
    }
    if !rehearsal.silent.is_empty() {
        let named = first(&rehearsal.silent, LISTED).join(", ");
        let rest = rehearsal.silent.len().saturating_sub(LISTED);
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        lines.push(format!("no tick    {named}{rest}"));
    }
    lines
}

fn told(collision: &Collision) -> String {
    let names = first(&collision.schedules, NAMED).join(", ");
    let rest = collision.schedules.len().saturating_sub(NAMED);
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("collision  {}  {}: {names}{rest}", time(collision.at), collision.pool)
}

fn more(all: usize, lines: &mut Vec<String>) {
    if all > LISTED {
        lines.push(format!("           … and {} more (--json)", all - LISTED));
    }
}
