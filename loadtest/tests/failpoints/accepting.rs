//! From the commit of a task to the mark that its message is confirmed: `after_enqueue_commit`,
//! `in_tick`, `after_publish`, `before_mark`.

use std::collections::BTreeSet;

use loadtest::fleet::Role;
use serde_json::json;
use shared::broker::Properties;
use shared::domain::task::{Semantics, TaskId, TaskState};
use shared::testing::within;

use crate::house::{House, PATIENCE, died, outcomes, told};

/// The only task of the house.
async fn its_task(house: &House) -> TaskId {
    within(PATIENCE, "a task", async || {
        let rows = house.client.query("SELECT id FROM tasks", &[]).await.expect("tasks");
        assert!(rows.len() < 2, "it was accepted twice");
        rows.first().map(|row| TaskId(row.get(0)))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_publish_has_committed_runs_though_it_died_before_it_could_say_so() {
    let house = House::open("after_publish_commit", "").await;
    let worker = house.started(Role::Worker).await;
    let payload = house.effect().payload.to_string();
    let publish = ["publish", "http_call", "--payload", &payload, "--key", "order-1"];

    let dead = house.command(&publish, &[("BELFRY_FAILPOINT", "after_enqueue_commit:abort")]).await;
    let task = its_task(&house).await;
    let row = house.is(task, TaskState::Completed).await;
    let again = house.asked(&publish).await;

    assert_eq!(dead.status.code(), None, "it was not killed: {}", told(&dead));
    assert_eq!(again["deduplicated"], true);
    assert_eq!(again["task_id"], json!(task));
    assert_eq!(outcomes(&row), ["completed"]);
    assert_eq!(house.requests(task), 1);
    house.close(vec![worker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_the_inbox_is_one_task_though_its_reader_died_before_the_ack() {
    let house = House::open("after_inbox_commit", "").await;
    let worker = house.started(Role::Worker).await;
    let victim = house.armed(Role::Producer, "after_enqueue_commit").await;
    let request = json!({"type": "http_call", "payload": house.effect().payload}).to_string();
    let properties = Properties { message_id: Some("m-1".to_owned()), ..Properties::default() };

    house.drop_into(&house.ground.topology().inbox(), &request, &properties).await;
    died(victim, "after_enqueue_commit").await;
    let heir = house.started(Role::Producer).await;

    let task = its_task(&house).await;
    let row = house.is(task, TaskState::Completed).await;
    house.has(&house.ground.topology().inbox(), 0).await;
    assert_eq!(outcomes(&row), ["completed"]);
    assert_eq!(its_task(&house).await, task);
    assert_eq!(house.requests(task), 1);
    assert!(house.letters().await.is_empty(), "the second delivery was refused");
    house.close(vec![worker, heir]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_published_and_not_marked_is_published_twice_and_runs_once() {
    for point in ["after_publish", "before_mark"] {
        let house = House::open(point, "").await;
        let queue = house.ground.topology().pool_queue("io_pool");
        let mut once = house.effect();
        once.semantics = Semantics::AtMostOnce;
        let tasks = [house.effect(), once];
        house.door.commit(&tasks).await.expect("committed");

        let victim = house.doomed(Role::Producer, point);
        died(victim, point).await;
        house.has(&queue, 2).await;
        assert_eq!(house.count("SELECT count(published_at) FROM tasks").await, 0);
        let heir = house.started(Role::Producer).await;
        house.has(&queue, 4).await;
        let worker = house.started(Role::Worker).await;

        for task in tasks {
            let row = house.is(task.id, TaskState::Completed).await;
            assert_eq!(outcomes(&row), ["completed"], "{point}");
            assert_eq!(house.requests(task.id), 1, "{point}");
        }
        house.has(&queue, 0).await;
        house.close(vec![worker, heir]).await;
    }
}

const SCHEDULES: &str = "
tasks:
  - {name: often, schedule: '*/2 * * * * *', task_type: http_call, overlap: allow,
     payload: {url: STUB/effects, method: POST}}
  - {name: rarely, schedule: '*/2 * * * * *', task_type: http_call, overlap: allow,
     payload: {url: STUB/effects, method: POST}, semantics: at_most_once}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_whose_leader_died_right_after_it_is_one_tick_and_one_task() {
    let house = House::open("in_tick", SCHEDULES).await;
    let worker = house.started(Role::Worker).await;

    let victim = house.doomed(Role::Producer, "in_tick");
    died(victim, "in_tick").await;
    let first = "SELECT count(*) FROM ticks WHERE epoch = 1 AND outcome = 'enqueued'";
    let left_behind = house.count(first).await;
    let heir = house.started(Role::Producer).await;
    let later = "SELECT count(*) FROM ticks WHERE epoch = 2 AND outcome = 'enqueued'";
    within(PATIENCE, "the heir ticks", async || (house.count(later).await >= 2).then_some(()))
        .await;
    assert!(heir.stop(PATIENCE).await.expect("ended").success());
    let unfinished = "SELECT count(*) FROM tasks WHERE finished_at IS NULL";
    within(PATIENCE, "all ends", async || (house.count(unfinished).await == 0).then_some(())).await;

    assert!(left_behind > 0, "it died before it had ticked");
    let ticks = "SELECT count(*) FROM ticks WHERE outcome = 'enqueued'";
    let effects = house.outside.effects();
    assert_eq!(effects.len() as i64, house.count(ticks).await, "a tick, a task, an effect");
    assert!(effects.values().all(|requests| *requests == 1), "{effects:?}");
    let ran = "SELECT DISTINCT task_id::text FROM attempts WHERE outcome = 'completed' AND run = 1";
    let rows = house.client.query(ran, &[]).await.expect("attempts");
    let ran: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(ran, effects.into_keys().collect());
    house.close(vec![worker]).await;
}
