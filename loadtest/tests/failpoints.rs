//! Processes that die between two steps of a task's life, each at a named point.

#[path = "fleet/programs.rs"]
mod programs;

use std::time::Duration;

use loadtest::fleet::{Door, Ground, Member, Role};
use serde_json::{Value, json};
use shared::config;
use shared::domain::task::{NewTask, TaskId, TaskState};
use shared::store::TaskRow;
use shared::testing::{needed, within};

/// Time for a process to be ready, or to die.
const PATIENCE: Duration = Duration::from_secs(30);

const HOUSE: &str = "
scheduler: {heartbeat_interval: 1s, heartbeat_ttl: 3s, retry_backoff_base: 1s}
task_pools:
  io_pool: {max_workers: 4, task_types: [probe]}
";

/// Lets a worker die at `point` over one task, and another finish it; answers the task's row.
async fn story(point: &str, payload: Value, end: TaskState) -> TaskRow {
    programs::are_fresh();
    let lookup = |name: &str| match name {
        "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
        _ => None,
    };
    let services = config::load_str("", "environment", &lookup).expect("addresses");
    let ground = Ground::prepare(&services, point, HOUSE).await.expect("ground");
    let door = Door::open(&ground).await.expect("a door");
    let armed = format!("{point}:abort");
    let mut victim = Member::start_with(&ground, Role::Worker, &[("BELFRY_FAILPOINT", &armed)])
        .expect("started");
    victim.ready(PATIENCE).await.expect("ready");

    let mut task = NewTask::ad_hoc("probe", "io_pool", payload);
    task.retry.base = Duration::from_secs(1);
    if end == TaskState::Dead {
        task.retry.max_retry = 0;
    }
    let id = task.id;
    door.accept(&[task]).await.expect("accepted");
    let status = victim.ended(PATIENCE).await.unwrap_or_else(|error| {
        panic!(
            "{point} killed nobody; were the programs built with --features failpoints? {error:#}"
        )
    });
    assert_eq!(status.code(), None, "it was not killed: {status}");
    let mut other = Member::start(&ground, Role::Worker).expect("started");
    other.ready(PATIENCE).await.expect("ready");

    let row = ended(&door, id, end).await;
    assert!(other.stop(PATIENCE).await.expect("ended").success());
    door.close().await;
    ground.clear().await.expect("nothing left behind");
    row
}

async fn ended(door: &Door, task: TaskId, state: TaskState) -> TaskRow {
    within(PATIENCE, &format!("it is {state}"), async || {
        let row = door.store.task(task).await.expect("read").expect("a task");
        (row.summary.state == state).then_some(row)
    })
    .await
}

fn outcomes(row: &TaskRow) -> Vec<&str> {
    row.attempts.iter().filter_map(|attempt| attempt["outcome"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_the_claim_costs_a_crash_and_the_task_runs_again() {
    let row = story("after_claim", json!({}), TaskState::Completed).await;

    assert_eq!(outcomes(&row), ["lease_expired", "completed"]);
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_the_effect_repeats_it() {
    let row = story("after_effect", json!({}), TaskState::Completed).await;

    assert_eq!(outcomes(&row), ["lease_expired", "completed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_between_record_and_ack_repeats_nothing() {
    let row = story("before_ack", json!({}), TaskState::Completed).await;

    assert_eq!(outcomes(&row), ["completed"]);
    assert_eq!(row.summary.crashes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_before_the_retrys_message_delays_it_and_no_more() {
    let payload = json!({"mode": "retry", "fail_times": 1});
    let row = story("in_retry", payload, TaskState::Completed).await;

    assert_eq!(outcomes(&row), ["retry", "completed"]);
    assert_eq!((row.summary.failures, row.summary.crashes), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_before_the_dead_letters_copy_loses_no_letter() {
    let row = story("in_dead_letter", json!({"mode": "permanent"}), TaskState::Dead).await;

    assert_eq!(outcomes(&row), ["dead"]);
    assert_eq!(row.summary.crashes, 0);
}
