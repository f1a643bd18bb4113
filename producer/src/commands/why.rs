//! `producer tasks why`: where a task stands and what happens next, in one paragraph.
//!
//! It tells what the rows say; the sentence is pure, so that every state has its test.

use serde_json::json;
use shared::domain::task::{TaskId, TaskState};
use shared::store::{DeadFilter, Store, TaskFilter, TaskRow, WorkerRow};

use super::connect::Context;
use super::error::{Answer, CommandError};
use super::output::{self, counted, time};
use super::tasks::found;
use super::wait::failure;

/// How far back a schedule's earlier runs are looked for.
const RUNS: i64 = 20;
/// How far back letters are looked for.
const LETTERS: i64 = 500;

/// What surrounds the task.
#[derive(Debug, Default)]
struct Around {
    /// Living workers with slots of its pool.
    serving: usize,
    /// Living processes; each relays and sweeps.
    alive: usize,
    /// Its open dead letter.
    letter: Option<i64>,
    /// The unfinished run that it waits for.
    ahead: Option<String>,
}

/// Runs it.
pub async fn run(id: TaskId, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let task = found(&store, id).await?;
    let around = look_around(&store, &task).await?;
    let why = paragraph(&task, &around);
    if context.json {
        let state = task.summary.state;
        return output::json(&json!({ "task_id": id, "state": state, "why": why }));
    }
    output::text(&why)
}

async fn look_around(store: &Store, task: &TaskRow) -> Result<Around, CommandError> {
    let workers = store.workers(false).await?;
    let summary = &task.summary;
    let serves = |w: &&WorkerRow| w.role == "worker" && w.pools.get(&summary.pool).is_some();
    let serving = workers.iter().filter(serves).count();
    let mut around = Around { serving, alive: workers.len(), ..Around::default() };
    if summary.state == TaskState::Dead {
        let filter = DeadFilter { name: Some(summary.name.clone()), ..DeadFilter::default() };
        let letters = store.dead_letters(&filter, LETTERS).await?;
        let own = letters.iter().find(|letter| letter.task_id == Some(summary.task_id));
        around.letter = own.map(|letter| letter.id);
    }
    if summary.state == TaskState::Waiting {
        let filter = TaskFilter { name: Some(summary.name.clone()), ..TaskFilter::default() };
        let runs = store.tasks(&filter, RUNS).await?;
        let ahead = runs
            .iter()
            .rev()
            .find(|run| !run.state.is_finished() && run.state != TaskState::Waiting);
        around.ahead = ahead.map(|run| format!("{} ({})", run.task_id, run.state));
    }
    Ok(around)
}

fn paragraph(task: &TaskRow, around: &Around) -> String {
    let summary = &task.summary;
    let due = time(summary.due_at);
    let now = match summary.state {
        TaskState::Scheduled => format!(
            "is due at {due}. Until the hour before, PostgreSQL alone holds it; then it gets its \
             message on RabbitMQ."
        ),
        TaskState::Waiting => format!(
            "waits until the earlier run of its schedule has ended{}; then it is queued.",
            around.ahead.as_ref().map(|run| format!(": task {run}")).unwrap_or_default()
        ),
        TaskState::Queued => queued(task),
        TaskState::Running => running(task),
        TaskState::Retrying => format!(
            "failed {} with {}; {} left, and the next attempt is due at {due}.",
            counted_times(summary.failures),
            failure(task),
            counted((task.max_retry - summary.failures + 1).max(0) as usize, "retry")
                .replace("retrys", "retries"),
        ),
        TaskState::Completed => format!(
            "completed at {} in attempt {}{}; `producer tasks show {}` has its result.",
            ended(task),
            summary.run,
            by(task),
            summary.task_id
        ),
        TaskState::Dead => dead(task, around),
        TaskState::Cancelled => cancelled(task),
    };
    let hindrance = hindrance(summary.state, &summary.pool, around);
    let sent_away = sent_away(task);
    format!("Task {} ({}) {now}{sent_away}{hindrance}", summary.task_id, summary.task_type)
}

/// Why one that waits was not let in, where a limit or the other side said so.
fn sent_away(task: &TaskRow) -> String {
    let summary = &task.summary;
    let waits = matches!(summary.state, TaskState::Scheduled | TaskState::Queued);
    match &summary.error_message {
        Some(said) if waits && summary.error_class.as_deref() == Some("throttled") => {
            format!(" Its last attempt was asked to wait, which costs nothing: {said}.")
        }
        _ => String::new(),
    }
}

fn queued(task: &TaskRow) -> String {
    let summary = &task.summary;
    let before = match (summary.run, summary.crashes) {
        (0, _) => String::new(),
        (run, 0) => format!("has had {}, ", counted(run as usize, "attempt")),
        (run, crashes) => format!(
            "has had {}, of which {} given back because the worker vanished or hung, ",
            counted(run as usize, "attempt"),
            if crashes == 1 { "1 was".to_owned() } else { format!("{crashes} were") }
        ),
    };
    let message = match task.published_at {
        Some(at) => format!(
            "its message was given to RabbitMQ at {}, and the next free slot of {} takes it.",
            time(at),
            summary.pool
        ),
        None => "its message is not on RabbitMQ yet: the relay of any running producer or worker \
                 publishes it."
            .to_owned(),
    };
    format!("{before}is queued and may start from {} on; {message}", time(summary.due_at))
}

fn running(task: &TaskRow) -> String {
    let summary = &task.summary;
    let since = task.attempts.last().and_then(|attempt| attempt["started_at"].as_str());
    let since = since.and_then(|at| at.parse().ok()).map(|at| format!(" since {}", time(at)));
    let deadline = task.deadline_at.map(|at| {
        format!("; if it has not ended by {}, it is given back to another worker", time(at))
    });
    let cancel = task.cancel_requested_at.map(|at| {
        format!(". Its cancellation was asked for at {}, and the handler is told", time(at))
    });
    format!(
        "is running{}, attempt {}{}{}{}.",
        by(task),
        summary.run,
        since.unwrap_or_default(),
        deadline.unwrap_or_default(),
        cancel.unwrap_or_default()
    )
}

fn dead(task: &TaskRow, around: &Around) -> String {
    let summary = &task.summary;
    let next = match around.letter {
        Some(letter) => format!(
            "Dead letter {letter} is open: mend the cause, then `producer dead replay {letter}` \
             sends it again, or `producer dead discard {letter}` closes it."
        ),
        None => "Its dead letter is closed; nothing happens any more.".to_owned(),
    };
    format!(
        "was given up at {} after {} ({} failures, {} crashes) with {}. {next}",
        ended(task),
        counted(summary.run as usize, "attempt"),
        summary.failures,
        summary.crashes,
        failure(task)
    )
}

fn cancelled(task: &TaskRow) -> String {
    // Only a task that nobody ran has a reason of its own: an attempt's is that of the attempt.
    let never_ran = task.summary.run == 0;
    let why = task.summary.error_message.as_ref().filter(|_| never_ran);
    let why = why.map(|why| format!(" because {why}")).unwrap_or_default();
    format!("was cancelled{why}; it ended at {}.", ended(task))
}

/// What keeps an unfinished task from moving, if anything does.
fn hindrance(state: TaskState, pool: &str, around: &Around) -> String {
    if state.is_finished() {
        return String::new();
    }
    if around.alive == 0 {
        return " No producer and no worker is alive, so nothing moves until one runs.".to_owned();
    }
    if around.serving == 0 {
        return format!(
            " No living worker has slots of {pool}: start one with `worker run --pool {pool}`."
        );
    }
    String::new()
}

fn by(task: &TaskRow) -> String {
    task.summary.worker.as_ref().map(|worker| format!(" on {worker}")).unwrap_or_default()
}

fn ended(task: &TaskRow) -> String {
    output::time_or_dash(task.summary.finished_at)
}

fn counted_times(n: i32) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};
    use serde_json::Value;
    use shared::domain::task::Priority;
    use shared::store::TaskSummary;
    use uuid::Uuid;

    use super::*;

    fn at(minute: u32) -> DateTime<Utc> {
        format!("2026-12-01T09:{minute:02}:00Z").parse().expect("an instant")
    }

    fn task(state: TaskState) -> TaskRow {
        let summary = TaskSummary {
            task_id: Uuid::nil(),
            name: "daily".into(),
            execution_key: "k".into(),
            task_type: "http_call".into(),
            pool: "io_pool".into(),
            schedule: None,
            state,
            run: 2,
            failures: 1,
            crashes: 1,
            due_at: at(5),
            created_at: at(0),
            finished_at: state.is_finished().then(|| at(7)),
            worker: Some("worker@a#1".into()),
            error_class: Some("retryable".into()),
            error_message: Some("503".into()),
        };
        TaskRow {
            summary,
            scheduled_for: None,
            payload: Value::Null,
            timeout_ms: 1000,
            max_retry: 3,
            at_most_once: false,
            traceparent: None,
            published_at: Some(at(4)),
            deadline_at: Some(at(9)),
            start_by: None,
            priority: Priority::Normal,
            cancel_requested_at: None,
            progress: None,
            result: None,
            attempts: vec![json!({ "run": 2, "started_at": at(6) })],
            steps: json!([]),
            llm_calls: json!([]),
            tick: None,
        }
    }

    #[track_caller]
    fn check(state: TaskState, around: &Around, parts: &[&str]) {
        let said = paragraph(&task(state), around);
        for part in parts {
            assert!(said.contains(part), "{said:?} lacks {part:?}");
        }
    }

    fn served() -> Around {
        Around { serving: 1, alive: 2, letter: Some(7), ahead: Some("x (running)".into()) }
    }

    #[test]
    fn every_state_says_where_it_stands_and_what_is_next() {
        check(TaskState::Scheduled, &served(), &["is due at 2026-12-01T09:05:00Z", "PostgreSQL"]);
        check(TaskState::Waiting, &served(), &["earlier run", "task x (running)"]);
        check(TaskState::Queued, &served(), &["2 attempts, of which 1 was given back", "09:04"]);
        check(
            TaskState::Running,
            &served(),
            &["on worker@a#1, attempt 2 since", "by 2026-12-01T09:09"],
        );
        check(TaskState::Retrying, &served(), &["once with retryable: 503", "3 retries left"]);
        check(TaskState::Completed, &served(), &["completed at 2026-12-01T09:07:00Z in attempt 2"]);
        check(TaskState::Dead, &served(), &["after 2 attempts", "`producer dead replay 7`"]);
        check(TaskState::Dead, &Around::default(), &["letter is closed"]);
        check(TaskState::Cancelled, &served(), &["was cancelled; it ended at"]);
    }

    #[test]
    fn one_that_a_limit_sent_away_says_so() {
        let mut parked = task(TaskState::Scheduled);
        parked.summary.error_class = Some("throttled".into());
        parked.summary.error_message = Some("330 of 5000 tokens are used".into());
        let said = paragraph(&parked, &served());
        assert!(said.ends_with("nothing: 330 of 5000 tokens are used."), "{said}");
        parked.summary.state = TaskState::Completed;
        assert!(!paragraph(&parked, &served()).contains("tokens"));
    }

    #[test]
    fn a_task_that_came_too_late_says_so() {
        let mut late = task(TaskState::Cancelled);
        late.summary.run = 0;
        late.summary.error_message = Some("it had not started by 09:03".into());

        let said = paragraph(&late, &served());

        assert!(
            said.contains("was cancelled because it had not started by 09:03; it ended"),
            "{said}"
        );
    }

    #[test]
    fn what_keeps_a_task_from_moving_is_named() {
        let nobody = Around::default;
        check(TaskState::Queued, &nobody(), &["No producer and no worker is alive"]);
        let others = Around { alive: 1, ..nobody() };
        check(TaskState::Retrying, &others, &["worker run --pool io_pool"]);
        assert!(!paragraph(&task(TaskState::Completed), &nobody()).contains("alive"));
    }
}
