//! What the broker does, or somebody does to it: connections closed, copies that come early, queues
//! deleted, messages returned, refused and given up.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use loadtest::fleet::{Member, Role};
use serde_json::{Value, json};
use shared::broker::{Consumer, Properties, Subscription};
use shared::domain::task::{TaskId, TaskState};
use shared::testing::within;

use crate::house::{House, PATIENCE, outcomes, probe};
use crate::management::Management;

/// A counter on a process's page: the sum of the lines that hold all parts.
async fn counted(member: &Member, parts: &[&str]) -> f64 {
    let (_, page) = member.page("/metrics").await.expect("a page");
    let lines = page.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn is_ready(member: &Member, ready: bool) {
    let what = if ready { "it is ready" } else { "it is not ready" };
    within(PATIENCE, what, async || (member.is_ready().await == ready).then_some(())).await;
}

/// Makes what is queued look as if it had been published a while ago.
async fn aged(house: &House) {
    let sql = "UPDATE tasks SET due_at = due_at - interval '20 seconds',
        published_at = published_at - interval '20 seconds' WHERE state = 'queued'";
    house.client.batch_execute(sql).await.expect(sql);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_handed_its_own_running_task_again_leaves_it_alone() {
    let house = House::open("own_again", "").await;
    let (management, worker) = (Management::of(&house), house.started(Role::Worker).await);
    let task = house.given(probe(json!({"sleep_ms": 9000}))).await;
    house.runs(task, 1).await;

    let pid = format!("#{} consume", worker.pid().expect("alive"));
    management.close(&["worker@", &pid]).await;
    let consumed = ["messaging_client_consumed_messages_total", "io_pool"];
    within(PATIENCE, "it is delivered again", async || {
        (counted(&worker, &consumed).await >= 2.0).then_some(())
    })
    .await;

    assert_eq!(house.row(task).await.summary.state, TaskState::Running, "too late to prove it");
    let row = house.is(task, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["completed"]);
    assert_eq!((row.summary.run, row.summary.crashes), (1, 0));
    house.close(vec![worker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_comes_before_its_task_is_due_is_sent_back_and_starts_nothing() {
    let house = House::open("early", "").await;
    let worker = house.started(Role::Worker).await;
    let mut task = probe(json!({"mode": "retry", "fail_times": 1}));
    task.retry.base = Duration::from_secs(3);
    let task = house.given(task).await;
    house.is(task, TaskState::Retrying).await;

    let queue = house.ground.topology().pool_queue("io_pool");
    for _ in 0..3 {
        let body = json!({"task_id": task}).to_string();
        house.drop_into(&queue, &body, &Properties::default()).await;
    }

    let row = house.is(task, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["retry", "completed"]);
    let at = |run: usize, what: &str| -> DateTime<Utc> {
        serde_json::from_value(row.attempts[run][what].clone()).expect("a time")
    };
    let delay = row.attempts[0]["delay_ms"].as_i64().expect("a delay");
    assert!(delay >= 3000, "{delay}");
    assert!(at(1, "started_at") >= at(0, "ended_at") + chrono::TimeDelta::milliseconds(delay));
    house.close(vec![worker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_deleted_under_its_consumers_comes_back_and_nothing_in_it_is_lost() {
    let house = House::open("deleted", "").await;
    let fleet = vec![house.started(Role::Producer).await, house.started(Role::Worker).await];
    let mut tasks: Vec<TaskId> = Vec::new();
    for _ in 0..4 {
        tasks.push(house.given(probe(json!({"sleep_ms": 4000}))).await);
    }
    for task in &tasks {
        house.runs(*task, 1).await;
    }
    for _ in 0..3 {
        tasks.push(house.given(probe(json!({}))).await);
    }
    let queue = house.ground.topology().pool_queue("io_pool");
    house.has(&queue, 3).await;

    let operator = house.operator().await;
    operator.delete_queue(&queue).await.expect("deleted");
    aged(&house).await;

    for task in tasks {
        let row = house.is(task, TaskState::Completed).await;
        assert_eq!(outcomes(&row), ["completed"], "{task}");
        assert_eq!(row.summary.crashes, 0, "{task}");
    }
    operator.close().await;
    house.close(fleet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_no_queue_takes_is_counted_shown_and_delivered_when_there_is_one() {
    let house = House::open("returned", "").await;
    let producer = house.started(Role::Producer).await;
    let queue = house.ground.topology().pool_queue("io_pool");
    let operator = house.operator().await;
    operator.delete_queue(&queue).await.expect("deleted");

    let task = probe(json!({}));
    house.door.commit(std::slice::from_ref(&task)).await.expect("committed");

    is_ready(&producer, false).await;
    let returned = ["messaging_client_sent_messages_total", "amqp:returned"];
    let is_counted = async || (counted(&producer, &returned).await >= 1.0).then_some(());
    within(PATIENCE, "it is counted", is_counted).await;
    // It declares what is missing itself, and publishes again.
    house.has(&queue, 1).await;
    is_ready(&producer, true).await;
    let worker = house.started(Role::Worker).await;
    let row = house.is(task.id, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["completed"]);
    operator.close().await;
    house.close(vec![producer, worker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_queue_refuses_waits_in_the_table_until_there_is_room() {
    let house = House::open("refused", "").await;
    let (management, producer) = (Management::of(&house), house.started(Role::Producer).await);
    let queue = house.ground.topology().pool_queue("io_pool");
    management.set_policy(&queue, json!({"max-length": 1})).await;

    // A quorum queue lets some through before it refuses.
    let began = Instant::now();
    while producer.is_ready().await {
        assert!(began.elapsed() < PATIENCE, "nothing was refused");
        house.door.commit(&[probe(json!({}))]).await.expect("committed");
    }
    let refused = ["messaging_client_sent_messages_total", "amqp:nack"];
    assert!(counted(&producer, &refused).await >= 1.0);
    let waiting = "SELECT count(*) FROM tasks WHERE published_at IS NULL";
    assert!(house.count(waiting).await > 0);
    let worker = house.started(Role::Worker).await;
    let left = "SELECT count(*) FROM tasks WHERE state <> 'completed'";
    within(PATIENCE, "all complete", async || (house.count(left).await == 0).then_some(())).await;
    assert_eq!(house.count("SELECT max(run)::bigint FROM tasks").await, 1);
    is_ready(&producer, true).await;
    management.delete_policy(&queue).await;
    house.close(vec![producer, worker]).await;
}

/// Looking at messages, and crashing over them, counts as deliveries; the last one too many sends a
/// message to the dead queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_the_broker_gives_up_is_a_letter_and_its_task_still_runs() {
    let house = House::open("given_up", "").await;
    let (management, topology) = (Management::of(&house), house.ground.topology());
    let producer = house.started(Role::Producer).await;
    let queue = topology.pool_queue("io_pool");
    management.set_policy(&queue, json!({"delivery-limit": 2})).await;
    let task = house.given(probe(json!({}))).await;

    let subscription =
        Subscription { queue: queue.clone(), prefetch: 1, tag: "curious".to_owned() };
    let settings = house.ground.settings().expect("a broker");
    let started = Consumer::start(&settings, &topology, subscription, &house.door.shutdown);
    let mut curious = started.expect("a URL");
    for _ in 0..3 {
        let delivery = curious.next().await.expect("a delivery");
        delivery.requeue().await;
    }
    curious.stop_consuming().await;
    drop(curious);
    house.has(&topology.dead(), 1).await;

    let letter = within(PATIENCE, "a letter", async || house.letters().await.pop()).await;
    assert_eq!((letter.task_id, letter.error_class.as_str()), (None, "crashed"));
    assert!(letter.error_message.contains("delivery_limit"), "{}", letter.error_message);
    assert!(letter.error_message.contains(&queue), "{}", letter.error_message);
    let pointer: Value =
        serde_json::from_str(letter.body.as_deref().expect("a body")).expect("JSON");
    assert_eq!(pointer["task_id"], json!(task));
    let rejected = ["belfry_messages_rejected_total", "delivery_limit"];
    assert!(counted(&producer, &rejected).await >= 1.0);

    management.delete_policy(&queue).await;
    aged(&house).await;
    let worker = house.started(Role::Worker).await;
    let row = house.is(task, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["completed"]);
    house.asked(&["dead", "list"]).await;
    let discard = house.command(&["dead", "discard", &letter.id.to_string()], &[]).await;
    assert!(discard.status.success());
    house.has(&topology.dead(), 0).await;
    assert_eq!(house.letters().await.len(), 1, "no second letter of the same message");
    house.close(vec![producer, worker]).await;
}
