//! `producer tasks cancel`: in every state, durable and final, whatever the handler does later.

use std::time::Duration;

use loadtest::fleet::{Launch, Role};
use serde_json::json;
use shared::domain::task::{Due, NewTask, TaskId, TaskState};
use shared::testing::within;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::house::{House, PATIENCE, of, outcomes, probe, signal, told};

/// A running handler is stopped, and its call closed, within this.
const SOON: Duration = Duration::from_secs(2);

async fn cancel(house: &House, task: TaskId) {
    house.asked(&["tasks", "cancel", &task.to_string()]).await;
}

/// It is cancelled, and stays so: a second cancel finds nothing to do.
async fn is_cancelled_for_good(house: &House, task: TaskId, runs: &[&str]) {
    let row = house.is(task, TaskState::Cancelled).await;
    assert_eq!(outcomes(&row), runs);
    let again = house.command(&["tasks", "cancel", &task.to_string()], &[]).await;
    assert_eq!(again.status.code(), Some(3), "{}", told(&again));
}

const STATES: &str = "
task_pools:
  io_pool: {max_workers: 4, task_types: [probe]}
  idle_pool: {max_workers: 1, task_types: [nobodys]}
tasks:
  - {name: slow, schedule: '* * * * * *', task_type: probe, payload: {mode: hang}, overlap: queue}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_is_final_in_every_state() {
    let house = House::with("cancel_states", STATES).await;
    let producer = house.started(Role::Producer).await;
    let only = Launch { arguments: &["--pool", "io_pool"], ..Launch::default() };
    let worker = house.launched(Role::Worker, &only).await;
    let in_state = async |state: &str, schedule: bool| {
        let of = if schedule { "IS NOT NULL" } else { "IS NULL" };
        let sql = format!("SELECT id FROM tasks WHERE state = '{state}' AND schedule {of}");
        within(PATIENCE, &format!("one is {state}"), async || {
            let rows = house.client.query(&sql, &[]).await.expect("tasks");
            rows.first().map(|row| TaskId(row.get(0)))
        })
        .await
    };
    let later = NewTask { due: Due::In(Duration::from_hours(3)), ..probe(json!({})) };
    let scheduled = house.given(later).await;
    let idle = NewTask { pool: "idle_pool".to_owned(), ..probe(json!({})) };
    let queued = house.given(idle).await;
    let mut failing = probe(json!({"mode": "retry"}));
    failing.retry.base = Duration::from_secs(5);
    let (running, waiting) = (in_state("running", true).await, in_state("waiting", true).await);
    // No more ticks: a place that became free would be taken.
    assert!(producer.stop(PATIENCE).await.expect("ended").success());
    assert_eq!(in_state("scheduled", false).await, scheduled);
    assert_eq!(in_state("queued", false).await, queued);
    let retrying = house.given(failing).await;
    assert_eq!(in_state("retrying", false).await, retrying);

    // Before it is due again, however slow a command is here.
    let state = house.door.store.cancel(retrying).await.expect("asked");
    assert_eq!(state, Some(TaskState::Cancelled));
    for task in [scheduled, queued, waiting, running] {
        cancel(&house, task).await;
    }

    is_cancelled_for_good(&house, running, &["cancelled"]).await;
    is_cancelled_for_good(&house, waiting, &[]).await;
    is_cancelled_for_good(&house, retrying, &["retry"]).await;
    is_cancelled_for_good(&house, scheduled, &[]).await;
    // Their messages come to a worker, and start nothing.
    let other = house.started(Role::Worker).await;
    house.quiet().await;
    is_cancelled_for_good(&house, queued, &[]).await;
    house.close(vec![worker, other]).await;
}

/// Somebody who takes a request and never answers; tells when it came and when its caller went.
async fn silent() -> (String, oneshot::Receiver<()>, oneshot::Receiver<Instant>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let ((tell, called), (tell_closed, closed)) = (oneshot::channel(), oneshot::channel());
    shared::shutdown::Shutdown::new().spawn(async move {
        let (mut caller, _) = listener.accept().await.expect("a call");
        let mut buffer = [0; 4096];
        assert!(caller.read(&mut buffer).await.expect("a request") > 0);
        tell.send(()).expect("the test waits");
        // Zero or an error: the call is closed.
        while caller.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
        tell_closed.send(Instant::now()).expect("the test waits");
    });
    (url, called, closed)
}

/// Cancels a running call and says how long it took until it was closed.
async fn closes(house: &House, draining: bool) -> Duration {
    let (url, called, closed) = silent().await;
    let worker = house.started(Role::Worker).await;
    let task = house.given(of("http_call", json!({"url": url, "timeout": "2m"}))).await;
    called.await.expect("it called");
    if draining {
        signal(&worker, "TERM").await;
        within(PATIENCE, "it drains", async || (!worker.is_ready().await).then_some(())).await;
    }

    cancel(house, task).await;
    let asked = Instant::now();
    let took = closed.await.expect("closed").saturating_duration_since(asked);

    is_cancelled_for_good(house, task, &["cancelled"]).await;
    if draining {
        assert!(worker.ended(PATIENCE).await.expect("ended").success());
    } else {
        assert!(worker.stop(PATIENCE).await.expect("ended").success());
    }
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_call_is_closed_within_two_seconds_while_draining_too() {
    let house = House::open("cancel_call", "").await;
    for draining in [false, true] {
        let took = closes(&house, draining).await;
        assert!(took <= SOON, "draining {draining}: {took:?}");
    }
    house.close(Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_handler_returns_after_its_cancel_is_not_heard() {
    let house = House::open("cancel_deaf", "").await;
    let worker = house.started(Role::Worker).await;
    let task = house.given(probe(json!({"spin_ms": 5000}))).await;
    house.runs(task, 1).await;

    cancel(&house, task).await;
    let row = house.is(task, TaskState::Cancelled).await;
    assert_eq!(outcomes(&row), ["cancelled"]);
    // Its slot is its own until it returns; then all four work again.
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(house.given(probe(json!({"mode": "hang"}))).await);
    }
    for other in &others {
        house.runs(*other, 1).await;
    }

    let row = house.row(task).await;
    assert_eq!((row.summary.state, row.result), (TaskState::Cancelled, None));
    for other in others {
        cancel(&house, other).await;
        house.is(other, TaskState::Cancelled).await;
    }
    house.close(vec![worker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_outlives_the_worker_that_should_have_heard_it() {
    let house = House::open("cancel_dead", "").await;
    let worker = house.started(Role::Worker).await;
    let task = house.given(probe(json!({"mode": "hang"}))).await;
    house.runs(task, 1).await;

    signal(&worker, "STOP").await;
    cancel(&house, task).await;
    worker.kill().await.expect("killed");
    let other = house.started(Role::Worker).await;

    is_cancelled_for_good(&house, task, &["lease_expired"]).await;
    assert!(house.letters().await.is_empty());
    house.close(vec![other]).await;
}
