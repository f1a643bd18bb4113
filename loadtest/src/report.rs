//! What is printed, and how a command ends. Numbers are printed as they were measured.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use shared::config::{Missing, Problems};

use crate::database::Unreachable;
use crate::drill::NotStarted;
use crate::ledger::{Checked, Ledger, Undecided};
use crate::schedules;
use crate::throughput::Document;

/// Usage or configuration.
const USAGE: u8 = 2;
/// A service cannot be reached.
const UNREACHABLE: u8 = 4;

/// Prints an error and answers its exit code.
pub fn exit(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("error: {error:#}");
    let usage = error.is::<Problems>() || error.is::<Missing>();
    let unreachable = error.is::<Unreachable>()
        || error.is::<NotStarted>()
        || error.is::<shared::broker::Error>()
        || error.is::<shared::http::Error>()
        || error
            .downcast_ref::<shared::store::Error>()
            .is_some_and(shared::store::Error::is_unreachable);
    ExitCode::from(match (usage, unreachable) {
        (true, _) => USAGE,
        (_, true) => UNREACHABLE,
        _ => 1,
    })
}

/// A document on stdout.
pub fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(document)?);
    Ok(())
}

/// A ledger for people: promise by promise, broken ones with their first offenders.
pub fn ledger(ledger: &Ledger) -> String {
    let mut text = format!("ledger of {}\n", ledger.database);
    for kept in &ledger.promises {
        let _ = writeln!(text, "\n{:>2}  {:<76} {}", kept.promise, kept.title, verdict(kept.ok));
        for check in &kept.checks {
            let _ = writeln!(
                text,
                "    {:<15} {:>10}  {:>6} broken   {}",
                check.name, check.counted, check.violations, check.counts
            );
            write_offenders(&mut text, check);
        }
    }
    let _ = writeln!(text, "\nundecided: {}", undecided(&ledger.undecided));
    let waiting = ledger.queues.iter().filter(|q| q.ready > 0 || q.unacked.is_some_and(|n| n > 0));
    let waiting: Vec<String> = waiting
        .map(|q| match q.unacked {
            Some(unacked) => format!("{} {} ready {unacked} unacked", q.name, q.ready),
            None => format!("{} {} ready", q.name, q.ready),
        })
        .collect();
    let waiting = if waiting.is_empty() { "empty".to_owned() } else { waiting.join(", ") };
    let _ = writeln!(text, "queues: {waiting}");
    text
}

/// A throughput run for people.
pub fn throughput(document: &Document) -> String {
    let Document { setup, publish, drain, steady, .. } = document;
    let mut text = format!(
        "{} tasks of {} B, {} workers of {} slots, {} CPUs, {} build\n\n",
        setup.tasks, setup.payload_bytes, setup.workers, setup.slots, setup.cpus, setup.build
    );
    let mut line = |what: &str, figure: String| {
        let _ = writeln!(text, "{what:<10} {figure}");
    };
    line(
        "accepted",
        format!(
            "{:.0}/s in {:.2} s; {:.0} B of WAL a task",
            publish.per_second, publish.seconds, publish.wal_bytes_per_task
        ),
    );
    line(
        "drained",
        format!(
            "{:.0}/s in {:.2} s, settled; start-up {:.2} s apart; {} messages returned",
            drain.per_second, drain.seconds, drain.start_up_seconds, drain.messages_returned
        ),
    );
    line(
        "cost",
        format!(
            "{:.1} µs of workers' CPU, {:.3} commits, {:.0} B of WAL a task; peak RSS {:.1} MB",
            drain.worker_cpu_micros_per_task,
            drain.commits_per_task,
            drain.wal_bytes_per_task,
            drain.worker_peak_rss_bytes as f64 / 1e6
        ),
    );
    line(
        "steady",
        format!(
            "{}/s, {} tasks: p50 {:.1} ms, p95 {:.1} ms, p99 {:.1} ms from row to completed row",
            steady.per_second, steady.tasks, steady.p50_ms, steady.p95_ms, steady.p99_ms
        ),
    );
    line("ledger", verdict(document.ledger_ok).to_owned());
    text
}

/// A run of many schedules for people.
pub fn schedules(document: &schedules::Document) -> String {
    let setup = &document.setup;
    let mut text = format!(
        "{} schedules in {:.1} MB, {} due together, {} times; {} CPUs, {} build\n\n",
        setup.count,
        setup.file_bytes as f64 / 1e6,
        setup.due,
        setup.bursts,
        setup.cpus,
        setup.build
    );
    let mut line = |what: &str, figure: String| {
        let _ = writeln!(text, "{what:<12} {figure}");
    };
    for (what, start) in [("first start", &document.first_start), ("restart", &document.restart)] {
        line(
            what,
            format!(
                "{:.2} s to the first tick, {:.2} s of CPU; peak RSS {:.1} MB",
                start.seconds,
                start.cpu_seconds,
                start.peak_rss_bytes as f64 / 1e6
            ),
        );
    }
    for (what, late) in [("decided", &document.decided), ("published", &document.published)] {
        line(
            what,
            format!(
                "p50 {:.0} ms, p99 {:.0} ms, worst {:.0} ms late",
                late.p50_ms, late.p99_ms, late.max_ms
            ),
        );
    }
    line(
        "cost",
        format!(
            "{:.1} ticks/s at {:.0} µs of CPU each, {:.3} CPUs busy; peak RSS {:.1} MB",
            document.ticks_per_second,
            document.cpu_micros_per_tick,
            document.cpu_share,
            document.peak_rss_bytes as f64 / 1e6
        ),
    );
    line("ledger", verdict(document.ledger_ok).to_owned());
    text
}

/// Schedules that wait for somebody to lead.
fn undecided(found: &Undecided) -> String {
    let Some(oldest) = found.oldest else { return "none".to_owned() };
    let first = found.first.iter().map(|due| format!("{} {}", due.schedule, due.planned_at));
    let mut first: Vec<String> = first.collect();
    let more = found.schedules - first.len();
    if more > 0 {
        first.push(format!("and {more} more"));
    }
    format!(
        "{} schedules wait since {oldest} (no breach; `producer status` says who leads): {}",
        found.schedules,
        first.join(", ")
    )
}

fn write_offenders(text: &mut String, check: &Checked) {
    for offender in &check.offenders {
        let _ = writeln!(text, "        {offender}");
    }
    let more = check.violations - check.offenders.len() as i64;
    if more > 0 {
        let _ = writeln!(text, "        and {more} more");
    }
}

fn verdict(ok: bool) -> &'static str {
    if ok { "ok" } else { "BROKEN" }
}
