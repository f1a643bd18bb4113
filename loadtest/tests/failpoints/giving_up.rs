//! What somebody gave up, and who takes it up: `in_rescue`, `in_dead_letter`, `in_replay`.

use loadtest::fleet::Role;
use serde_json::json;
use shared::broker::{Header, Properties};
use shared::domain::task::{NewTask, TaskId, TaskState};

use crate::house::{House, died, outcomes, probe, told};

const ALERTS: &str = "SELECT count(*) FROM alerts";

/// Dies at its first attempt, and completes if somebody replays it.
fn hopeless() -> NewTask {
    let mut task = probe(json!({"mode": "permanent", "fail_times": 1}));
    task.retry.max_retry = 0;
    task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rescuer_that_dies_has_rescued_all_the_same() {
    let house = House::open("in_rescue", "").await;
    let worker = house.started(Role::Worker).await;
    let task = house.given(probe(json!({"mode": "hang", "fail_times": 1}))).await;
    house.runs(task, 1).await;
    let rescuer = house.armed(Role::Producer, "in_rescue").await;

    worker.kill().await.expect("killed");
    died(rescuer, "in_rescue").await;
    let heir = house.started(Role::Worker).await;

    let row = house.is(task, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["lease_expired", "completed"]);
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 1));
    house.close(vec![heir]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rescuer_that_dies_over_a_burial_leaves_one_letter_and_one_alert() {
    let house = House::open("in_burial", "limits: {crash_limit: 1}").await;
    let worker = house.started(Role::Worker).await;
    let task = house.given(probe(json!({"mode": "hang"}))).await;
    house.runs(task, 1).await;
    let rescuer = house.armed(Role::Producer, "in_rescue").await;

    worker.kill().await.expect("killed");
    died(rescuer, "in_rescue").await;
    let heir = house.started(Role::Worker).await;

    let row = house.is(task, TaskState::Dead).await;
    house.has(&house.ground.topology().dead(), 1).await;
    assert_eq!(outcomes(&row), ["lease_expired"]);
    assert_eq!(row.summary.crashes, 1);
    let letters = house.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].error_class, "crashed");
    assert_eq!(house.count(ALERTS).await, 1);
    house.close(vec![heir]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_before_the_dead_letters_copy_loses_no_letter() {
    let house = House::open("in_dead_letter", "").await;
    let victim = house.armed(Role::Worker, "in_dead_letter").await;

    let task = house.given(hopeless()).await;
    died(victim, "in_dead_letter").await;
    let heir = house.started(Role::Worker).await;

    let row = house.is(task, TaskState::Dead).await;
    house.has(&house.ground.topology().dead(), 1).await;
    assert_eq!(outcomes(&row), ["dead"]);
    assert_eq!((row.summary.failures, row.summary.crashes), (1, 0));
    let letters = house.letters().await;
    assert_eq!((letters.len(), letters[0].task_id), (1, Some(task.0)));
    assert_eq!(house.count(ALERTS).await, 1);
    house.close(vec![heir]).await;
}

/// A task that was given up, and its letter.
async fn buried(house: &House) -> (TaskId, i64) {
    let worker = house.started(Role::Worker).await;
    let task = house.given(hopeless()).await;
    house.is(task, TaskState::Dead).await;
    house.has(&house.ground.topology().dead(), 1).await;
    assert!(worker.stop(crate::house::PATIENCE).await.expect("ended").success());
    let letter = house.letters().await[0].id;
    (task, letter)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_that_dies_has_replayed_once() {
    let house = House::open("in_replay", "").await;
    let (task, letter) = buried(&house).await;
    let replay = ["dead", "replay", &letter.to_string()];

    let dead = house.command(&replay, &[("BELFRY_FAILPOINT", "in_replay:abort")]).await;
    let again = house.command(&replay, &[]).await;
    let worker = house.started(Role::Worker).await;

    assert_eq!(dead.status.code(), None, "it was not killed: {}", told(&dead));
    assert_eq!(again.status.code(), Some(3), "{}", told(&again));
    let row = house.is(task, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["dead", "completed"]);
    assert_eq!(house.letters().await[0].resolution.as_deref(), Some("replayed"));
    assert_eq!(house.count(ALERTS).await, 1);
    house.close(vec![worker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_moved_by_hand_is_replayed_once_though_its_worker_died_over_it() {
    let house = House::open("in_moved", "").await;
    let (task, letter) = buried(&house).await;
    let victim = house.armed(Role::Worker, "in_replay").await;
    let queue = house.ground.topology().pool_queue("io_pool");
    let headers = vec![("dead-letter".to_owned(), Header::Number(letter))];
    let copy = Properties { headers, ..Properties::default() };

    house.drop_into(&queue, &json!({"task_id": task}).to_string(), &copy).await;
    died(victim, "in_replay").await;
    let heir = house.started(Role::Worker).await;

    let row = house.is(task, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["dead", "completed"]);
    let letters = house.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].resolved_by.as_deref(), Some("moved by hand in RabbitMQ"));
    house.has(&queue, 0).await;
    house.close(vec![heir]).await;
}
