//! How a worker stops: the programs as they are shipped, and real signals.

#[path = "fleet/programs.rs"]
mod programs;

use std::time::Duration;

use loadtest::fleet::{Door, Ground, Member, Role};
use serde_json::{Value, json};
use shared::config;
use shared::domain::task::{NewTask, TaskId, TaskState};
use shared::store::TaskRow;
use shared::testing::{eventually, needed, not_run, within};

/// Time for a process to be ready, or to stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// Released tasks start elsewhere within this.
const SECONDS: Duration = Duration::from_secs(5);

/// The ground of a story, and the way in.
struct Scene {
    ground: Ground,
    door: Door,
}

impl Scene {
    async fn open(name: &str, drain: &str) -> Self {
        programs::are_fresh();
        let yaml = format!(
            "scheduler: {{heartbeat_interval: 1s, heartbeat_ttl: 3s}}\n\
             limits: {{drain: {drain}}}\n\
             task_pools:\n  io_pool: {{max_workers: 4, task_types: [probe]}}\n"
        );
        let lookup = |name: &str| match name {
            "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
            _ => None,
        };
        let services = config::load_str("", "environment", &lookup).expect("addresses");
        let ground = Ground::prepare(&services, name, &yaml).await.expect("ground");
        let door = Door::open(&ground).await.expect("a door");
        Self { ground, door }
    }

    async fn worker(&self) -> Member {
        let mut member = Member::start(&self.ground, Role::Worker).expect("started");
        member.ready(PATIENCE).await.expect("ready");
        member
    }

    async fn given(&self, payload: Value) -> TaskId {
        self.given_with(payload, |_| ()).await
    }

    async fn given_with(&self, payload: Value, change: impl FnOnce(&mut NewTask)) -> TaskId {
        let mut task = NewTask::ad_hoc("probe", "io_pool", payload);
        change(&mut task);
        let id = task.id;
        self.door.accept(&[task]).await.expect("accepted");
        id
    }

    async fn row(&self, task: TaskId) -> TaskRow {
        self.door.store.task(task).await.expect("read").expect("a task")
    }

    async fn is(&self, task: TaskId, state: TaskState, run: i32) -> TaskRow {
        within(PATIENCE, &format!("{state} in run {run}"), async || {
            let row = self.row(task).await;
            (row.summary.state == state && row.summary.run == run).then_some(row)
        })
        .await
    }

    async fn close(self) {
        self.door.close().await;
        self.ground.clear().await.expect("nothing left behind");
    }
}

/// The first signal has arrived: two at once are one.
async fn draining(worker: &Member) {
    worker.terminate().await.expect("told");
    eventually("it drains", async || (!worker.is_ready().await).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_signal_lets_running_tasks_end_and_takes_nothing_new() {
    told_once("stop_once", "TERM").await;
}

/// The terminal that a daemon was started in is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_terminal_lets_running_tasks_end_too() {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    if u64::from_str_radix(ignored.trim(), 16).expect("a mask") & 1 == 1 {
        return not_run("SIGHUP is ignored here (nohup), and a worker keeps it so");
    }
    told_once("hangup", "HUP").await;
}

async fn told_once(name: &str, signal: &str) {
    let scene = Scene::open(name, "1m").await;
    let worker = scene.worker().await;
    let long = scene.given(json!({"sleep_ms": 3000})).await;
    scene.is(long, TaskState::Running, 1).await;

    worker.signal(signal).await.expect("told");
    eventually("it drains", async || (!worker.is_ready().await).then_some(())).await;
    let late = scene.given(json!({})).await;
    let status = worker.ended(PATIENCE).await.expect("ended");

    assert_eq!(status.code(), Some(0));
    let row = scene.is(long, TaskState::Completed, 1).await;
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 0));
    scene.is(late, TaskState::Queued, 0).await;
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_gives_back_at_once_and_another_worker_begins_within_seconds() {
    let scene = Scene::open("stop_twice", "1m").await;
    let worker = scene.worker().await;
    let task = scene.given(json!({"mode": "hang"})).await;
    scene.is(task, TaskState::Running, 1).await;
    let other = scene.worker().await;

    draining(&worker).await;
    let told = std::time::Instant::now();
    worker.terminate().await.expect("told");
    let status = worker.ended(PATIENCE).await.expect("ended");
    let row = scene.is(task, TaskState::Running, 2).await;

    assert_eq!(status.code(), Some(0));
    assert!(told.elapsed() < SECONDS, "it took {:?}", told.elapsed());
    assert_eq!(row.attempts[0]["outcome"], "released");
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 0));
    scene.door.store.cancel(task).await.expect("asked");
    scene.is(task, TaskState::Cancelled, 2).await;
    assert!(other.stop(PATIENCE).await.expect("ended").success());
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_works_while_a_worker_drains() {
    let scene = Scene::open("stop_cancel", "1m").await;
    let worker = scene.worker().await;
    let task = scene.given(json!({"mode": "hang"})).await;
    scene.is(task, TaskState::Running, 1).await;

    draining(&worker).await;
    scene.door.store.cancel(task).await.expect("asked");

    scene.is(task, TaskState::Cancelled, 1).await;
    assert_eq!(worker.ended(PATIENCE).await.expect("ended").code(), Some(0));
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_end_within_the_drain_is_released() {
    let scene = Scene::open("stop_drain", "1s").await;
    let worker = scene.worker().await;
    let task = scene.given(json!({"mode": "hang"})).await;
    scene.is(task, TaskState::Running, 1).await;

    let status = worker.stop(PATIENCE).await.expect("ended");

    assert_eq!(status.code(), Some(0));
    let row = scene.is(task, TaskState::Queued, 1).await;
    assert_eq!(row.attempts[0]["outcome"], "released");
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 0));
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_slots_are_lost_ends_with_the_code_that_asks_for_a_restart() {
    let scene = Scene::open("stop_lost", "1m").await;
    let worker = scene.worker().await;
    let mut given = Vec::new();
    for _ in 0..2 {
        let change = |task: &mut NewTask| {
            task.timeout = Duration::from_millis(500);
            task.retry.max_retry = 0;
        };
        given.push(scene.given_with(json!({"spin_ms": 120_000}), change).await);
    }

    let status = worker.ended(PATIENCE).await.expect("ended");

    assert_eq!(status.code(), Some(75));
    for task in given {
        let row = scene.is(task, TaskState::Dead, 1).await;
        assert_eq!(row.summary.error_class.as_deref(), Some("timeout"));
    }
    scene.close().await;
}
