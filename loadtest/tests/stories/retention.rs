//! What is finished leaves after its time, its key later, and a late duplicate is still one.

use loadtest::fleet::Role;
use serde_json::{Value, json};
use shared::broker::Properties;
use shared::domain::task::{TaskId, TaskState};
use shared::testing::within;

use crate::house::{House, PATIENCE, outcomes, probe, told};

const A_DAY: i64 = 24 * 3600;

/// The configured defaults: 30 days for tasks, 90 for dead letters and keys.
const EVERY_SECOND: &str = "
tasks:
  - {name: pulse, schedule: '* * * * * *', task_type: probe, payload: {}, overlap: allow}
";

async fn days_later(house: &House, days: i64) {
    let sql = format!(
        "CREATE OR REPLACE FUNCTION belfry_now() RETURNS timestamptz LANGUAGE sql VOLATILE
         AS $$ SELECT clock_timestamp() + interval '{} seconds' $$",
        days * A_DAY
    );
    house.client.batch_execute(&sql).await.expect("the clock is moved");
}

async fn letter_of(house: &House, task: TaskId) -> String {
    let letters = house.letters().await;
    let letter = letters.iter().find(|letter| letter.task_id == Some(task.0));
    letter.expect("a letter").id.to_string()
}

async fn exists(house: &House, task: TaskId) -> bool {
    house.door.store.task(task).await.expect("read").is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_leave_after_their_time_and_keys_after_theirs() {
    let house = House::open("retention", EVERY_SECOND).await;
    let mut fleet = vec![house.started(Role::Producer).await, house.started(Role::Worker).await];
    let publish = |payload| ["publish", "probe", "--payload", payload, "--key", "order-1"];
    let first = house.asked(&publish("{}")).await;
    let first: TaskId = serde_json::from_value(first["task_id"].clone()).expect("an id");
    let hopeless = || probe(json!({"mode": "permanent", "fail_times": 1}));
    let (open, discarded, replayed) = (
        house.given(hopeless()).await,
        house.given(hopeless()).await,
        house.given(hopeless()).await,
    );
    let cancelled = house.given(probe(json!({"mode": "hang"}))).await;
    house.runs(cancelled, 1).await;
    house.door.store.cancel(cancelled).await.expect("asked");
    for task in [open, discarded, replayed] {
        house.is(task, TaskState::Dead).await;
    }
    house.has(&house.ground.topology().dead(), 3).await;
    let discard = ["dead", "discard", &letter_of(&house, discarded).await];
    assert_eq!(house.command(&discard, &[]).await.status.code(), Some(0));
    house.asked(&["dead", "replay", &letter_of(&house, replayed).await]).await;
    for (task, state) in [
        (first, TaskState::Completed),
        (replayed, TaskState::Completed),
        (cancelled, TaskState::Cancelled),
    ] {
        house.is(task, state).await;
    }
    // The mirror takes the closed letters' copies off, without which they stay.
    house.has(&house.ground.topology().dead(), 1).await;
    let left =
        "SELECT count(*) FROM dead_letters WHERE resolved_at IS NOT NULL AND removed_at IS NULL";
    let is_noted = async || (house.count(left).await == 0).then_some(());
    within(PATIENCE, "that is noted", is_noted).await;
    house.quiet().await;
    for member in fleet.drain(..) {
        assert!(member.stop(PATIENCE).await.expect("ended").success());
    }
    let ticked = house.count("SELECT count(*) FROM tasks WHERE schedule IS NOT NULL").await;

    // A month later.
    days_later(&house, 31).await;
    let would = house.asked(&["prune", "--dry-run"]).await;
    let did = house.asked(&["prune"]).await;
    let finished = ticked + 3;
    assert_eq!((&would["tasks"], &would["dry_run"]), (&json!(finished), &json!(true)));
    for kind in ["tasks", "ticks", "dead_letters", "execution_keys", "artifacts"] {
        assert_eq!(would[kind], did[kind], "{kind}");
    }
    assert_eq!(did["execution_keys"], 0);
    for task in [first, replayed, cancelled] {
        assert!(!exists(&house, task).await);
    }
    for task in [open, discarded] {
        assert!(exists(&house, task).await);
    }
    let newest = "SELECT count(*) FROM ticks";
    assert_eq!(house.count(newest).await, 1, "the newest tick stays for eyes");

    // Late duplicates, by the command and by a message: known, and nothing runs.
    let again = house.asked(&publish("{}")).await;
    assert_eq!((&again["task_id"], &again["deduplicated"]), (&json!(first), &json!(true)));
    let other = house.command(&publish("{\"echo\": 1}"), &[]).await;
    assert_eq!(other.status.code(), Some(3), "{}", told(&other));
    let worker = house.started(Role::Worker).await;
    let queue = house.ground.topology().pool_queue("io_pool");
    let copy = json!({"task_id": first}).to_string();
    house.drop_into(&queue, &copy, &Properties::default()).await;
    house.has(&house.ground.topology().dead(), 2).await;
    assert!(!exists(&house, first).await);
    assert!(worker.stop(PATIENCE).await.expect("ended").success());

    // A quarter later the keys have gone, but not the one whose task waits for a person.
    days_later(&house, 92).await;
    let did: Value = house.asked(&["prune"]).await;
    assert_eq!(did["tasks"], 1, "the discarded one");
    assert!(!exists(&house, discarded).await && exists(&house, open).await);
    assert_eq!(house.count("SELECT count(*) FROM execution_keys").await, 1);
    assert_eq!(house.count("SELECT count(*) FROM dead_letters").await, 1);
    assert_eq!(house.count("SELECT count(*) FROM alerts").await, 1);
    let worker = house.started(Role::Worker).await;
    house.asked(&["dead", "replay", &letter_of(&house, open).await]).await;
    let row = house.is(open, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["dead", "completed"]);
    let fresh = house.asked(&publish("{\"echo\": 2}")).await;
    assert_eq!(fresh["deduplicated"], false, "a key whose time is over is free");
    house.close(vec![worker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_alone_prunes_by_and_by() {
    let house = House::open("prunes", "").await;
    let worker = house.started(Role::Worker).await;
    let task = house.given(probe(json!({}))).await;
    house.is(task, TaskState::Completed).await;
    assert!(worker.stop(PATIENCE).await.expect("ended").success());

    days_later(&house, 31).await;
    let worker = house.started(Role::Worker).await;

    within(PATIENCE, "it is pruned", async || (!exists(&house, task).await).then_some(())).await;
    house.close(vec![worker]).await;
}
