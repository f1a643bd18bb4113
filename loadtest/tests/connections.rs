//! Connections that lie: half-open, one-way, torn, or without the answer that was given. Each
//! story ends with every task done once and a clean ledger.

#[path = "fleet/programs.rs"]
mod programs;

use std::time::Duration;

use loadtest::fleet::{Door, Ground, Member, Role};
use loadtest::ledger;
use loadtest::proxy::{Link, Mode};
use secrecy::SecretString;
use serde_json::{Value, json};
use shared::broker::Properties;
use shared::config;
use shared::domain::task::{NewTask, TaskId, TaskState};
use shared::http::Url;
use shared::store::{Purpose, Store, StoreOptions, TaskFilter, TaskRow};
use shared::testing::{needed, within};
use tokio::time::Instant;

/// Time for a process to be ready, or to stop.
const PATIENCE: Duration = Duration::from_secs(60);
/// A silent connection to the broker is noticed within this: two heartbeats of 2 s, and the pace
/// of the looks.
const NOTICED: Duration = Duration::from_secs(15);
/// Work goes on within this after a link is whole again: the limit of one answer (8 s), the longest
/// pause between two dials, a lease and its sweep.
const BACK: Duration = Duration::from_secs(30);
/// Slots of a worker.
const SLOTS: usize = 4;
/// Requests dropped into the inbox.
const REQUESTS: usize = 4;
/// Words of the statements whose answers are lost.
const CLAIM: &str = "Takes tasks for an incarnation";
const COMPLETE: &str = "The one committed result";
const ENQUEUE: &str = "Creates tasks whose keys are free";

/// The ground of a story, the links of its one worker, and the way in past them.
struct Scene {
    ground: Ground,
    door: Door,
    postgres: Link,
    rabbitmq: Link,
}

impl Scene {
    async fn open(name: &str) -> Self {
        programs::are_fresh();
        let yaml = format!(
            "scheduler: {{heartbeat_interval: 1s, heartbeat_ttl: 3s}}\n\
             task_pools:\n  io_pool: {{max_workers: {SLOTS}, task_types: [probe]}}\n"
        );
        let lookup = |name: &str| match name {
            "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
            _ => None,
        };
        let services = config::load_str("", "environment", &lookup).expect("addresses");
        let ground = Ground::prepare(&services, name, &yaml).await.expect("ground");
        let door = Door::open(&ground).await.expect("a door");
        let postgres = link_to(&needed("DATABASE_URL")).await;
        let rabbitmq = link_to(&needed("AMQP_URL")).await;
        Self { ground, door, postgres, rabbitmq }
    }

    /// A member behind the links; `heartbeat` is AMQP's, in seconds.
    async fn member(&self, role: Role, heartbeat: u16) -> Member {
        let database = self.ground.database_url_at(self.postgres.address()).expect("an address");
        let broker = self.ground.amqp_url_at(self.rabbitmq.address()).expect("an address");
        let broker = format!("{broker}?heartbeat={heartbeat}");
        let links = [("DATABASE_URL", database.as_str()), ("AMQP_URL", broker.as_str())];
        let mut member = Member::start_with(&self.ground, role, &links).expect("started");
        member.ready(PATIENCE).await.expect("ready");
        member
    }

    async fn given(&self, payload: Value) -> TaskId {
        let task = NewTask::ad_hoc("probe", "io_pool", payload);
        let id = task.id;
        self.door.accept(&[task]).await.expect("accepted");
        id
    }

    async fn row(&self, task: TaskId) -> TaskRow {
        self.door.store.task(task).await.expect("read").expect("a task")
    }

    async fn is(&self, task: TaskId, state: TaskState, run: i32) -> TaskRow {
        within(BACK, &format!("{state} in run {run}"), async || {
            let row = self.row(task).await;
            (row.summary.state == state && row.summary.run == run).then_some(row)
        })
        .await
    }

    /// Completed in one attempt, which counted nothing against it.
    async fn is_done_once(&self, task: TaskId) {
        let row = self.is(task, TaskState::Completed, 1).await;
        assert_eq!((row.summary.failures, row.summary.crashes), (0, 0));
        assert_eq!(row.attempts.len(), 1, "{:?}", row.attempts);
    }

    /// Every slot of the one worker runs a task at the same moment.
    async fn has_all_slots(&self) {
        let mut given = Vec::new();
        for _ in 0..SLOTS {
            given.push(self.given(json!({"mode": "hang"})).await);
        }
        for &task in &given {
            self.is(task, TaskState::Running, 1).await;
        }
        for task in given {
            self.door.store.cancel(task).await.expect("asked");
            self.is(task, TaskState::Cancelled, 1).await;
        }
    }

    async fn messages(&self) -> Option<u32> {
        let queue = self.ground.topology().pool_queue("io_pool");
        self.door.publisher.depth(&queue).await.expect("asked")
    }

    /// Everything has ended, and no promise is broken.
    async fn close(self, worker: Member) {
        within(BACK, "no message is left", async || {
            (self.messages().await == Some(0)).then_some(())
        })
        .await;
        assert!(worker.stop(PATIENCE).await.expect("ended").success());
        let settled = ledger::Options { expect_settled: true, management: None };
        let audited = ledger::audit(self.ground.config(), &settled).await.expect("audited");
        assert_eq!(audited.broken(), None, "{}", loadtest::report::ledger(&audited));
        self.door.close().await;
        self.ground.clear().await.expect("nothing left behind");
    }
}

async fn link_to(url: &str) -> Link {
    let url = Url::parse(url).expect("a URL");
    let (host, port) = (url.host_str().expect("a host"), url.port().expect("a port"));
    let mut found = tokio::net::lookup_host((host, port)).await.expect("a known host");
    Link::start(found.next().expect("an address")).await.expect("a link")
}

async fn turns_red(worker: &Member, within_this: Duration) {
    within(within_this, "the readiness page is red", async || {
        (!worker.is_ready().await).then_some(())
    })
    .await;
}

/// A firewall forgot a connection: nothing arrives, and nobody says so.
async fn half_open(name: &str, connection: &str) {
    let scene = Scene::open(name).await;
    let mut worker = scene.member(Role::Worker, 2).await;
    let running = scene.given(json!({"sleep_ms": 8000})).await;
    scene.is(running, TaskState::Running, 1).await;

    let silenced = scene.rabbitmq.silence(connection.as_bytes());
    assert_eq!(silenced, 1, "one connection is called *{connection}");
    // So that the page stays red until somebody has looked: the next dial would be too quick.
    scene.rabbitmq.set(Mode::Refuse);

    turns_red(&worker, NOTICED).await;
    scene.rabbitmq.set(Mode::Pass);
    worker.ready(BACK).await.expect("connected again");
    scene.is_done_once(running).await;
    scene.has_all_slots().await;
    let retried = scene.given(json!({"mode": "snooze", "fail_times": 1, "snooze_ms": 1000})).await;
    scene.is(retried, TaskState::Completed, 2).await;
    scene.close(worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_consuming_connection_is_noticed_and_replaced() {
    half_open("half_consume", " consume").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_publishing_connection_is_noticed_and_replaced() {
    half_open("half_publish", " publish").await;
}

/// The broker takes a message and its confirm never comes: published again, and done once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_confirm_is_lost_is_published_again_and_its_task_done_once() {
    let scene = Scene::open("confirms").await;
    // So long a heartbeat that the limit of the confirm comes first.
    let producer = scene.member(Role::Producer, 60).await;
    scene.rabbitmq.set(Mode::DropDown);
    let task = NewTask::ad_hoc("probe", "io_pool", json!({}));
    let id = task.id;
    scene.door.commit(&[task]).await.expect("committed");

    within(PATIENCE, "two copies wait", async || (scene.messages().await >= Some(2)).then_some(()))
        .await;
    scene.rabbitmq.set(Mode::Pass);
    // What has lost bytes stays silent; the next dial goes through.
    scene.rabbitmq.cut();

    let worker = scene.member(Role::Worker, 2).await;
    scene.is_done_once(id).await;
    assert!(producer.stop(PATIENCE).await.expect("ended").success());
    scene.close(worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_frame_costs_a_connection_and_nothing_else() {
    let scene = Scene::open("half_frame").await;
    let mut worker = scene.member(Role::Worker, 2).await;
    let running = scene.given(json!({"sleep_ms": 3000})).await;
    scene.is(running, TaskState::Running, 1).await;

    // A heartbeat has eight bytes, and nothing else is shorter.
    let torn = scene.rabbitmq.cut_after_bytes(5);
    assert_eq!(torn, 2, "a consuming and a publishing connection");
    within(NOTICED, "both are torn", async || {
        (scene.rabbitmq.counters().closed_by_fault == 2).then_some(())
    })
    .await;

    scene.is_done_once(running).await;
    worker.ready(BACK).await.expect("connected again");
    scene.has_all_slots().await;
    scene.close(worker).await;
}

/// The way to PostgreSQL is silent for longer than a lease: the handler is stopped, the attempt
/// ends as interrupted or by rescue and never as a failure, and every slot serves again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_database_stops_a_handler_and_charges_no_failure() {
    let scene = Scene::open("silent_db").await;
    let mut worker = scene.member(Role::Worker, 2).await;
    let task = scene.given(json!({"sleep_ms": 4000})).await;
    scene.is(task, TaskState::Running, 1).await;

    scene.postgres.set(Mode::BlackHole);
    turns_red(&worker, NOTICED).await;
    scene.postgres.set(Mode::Pass);

    let healed = Instant::now();
    worker.ready(BACK).await.expect("a new identity");
    let row = scene.is(task, TaskState::Completed, 2).await;
    assert!(healed.elapsed() < BACK, "it took {:?}", healed.elapsed());
    // Whoever is first: the record that was held back, which charges nothing, or the rescue.
    let rescued = row.attempts[0]["outcome"] == "lease_expired";
    assert_eq!(row.summary.failures, 0, "{:?}", row.attempts);
    assert_eq!(row.summary.crashes, i32::from(rescued), "{:?}", row.attempts);
    scene.has_all_slots().await;
    scene.close(worker).await;
}

/// A connection that swallowed a question is closed: whoever borrows next finds a whole one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_owes_an_answer_is_not_lent_again() {
    let scene = Scene::open("owing").await;
    let dsn = scene.ground.database_url_at(scene.postgres.address()).expect("an address");
    let options = StoreOptions::new(SecretString::from(dsn), "owing", Purpose::Daemon);
    let store = Store::open(&StoreOptions { pool_size: 1, ..options }).expect("a store");
    store.ping().await.expect("it answers");

    scene.postgres.set(Mode::BlackHole);
    let waited = tokio::time::timeout(Duration::from_millis(300), store.ping()).await;
    assert!(waited.is_err(), "nobody waits for the answer any more");
    scene.postgres.set(Mode::Pass);

    let asked = Instant::now();
    store.ping().await.expect("a connection that answers");
    assert!(asked.elapsed() < Duration::from_secs(3), "it took {:?}", asked.elapsed());
    scene.postgres.set(Mode::BlackHole);
    store.ping().await.expect_err("no answer within the limit");
    scene.postgres.set(Mode::Pass);
    let asked = Instant::now();
    store.ping().await.expect("a connection that answers");
    assert!(asked.elapsed() < Duration::from_secs(3), "it took {:?}", asked.elapsed());
    drop(store);
    let worker = scene.member(Role::Worker, 2).await;
    scene.close(worker).await;
}

/// The statement committed, and its answer was lost: one attempt, one result.
async fn lost_answer(name: &str, statement: &str) {
    let scene = Scene::open(name).await;
    let worker = scene.member(Role::Worker, 2).await;
    let task = NewTask::ad_hoc("probe", "io_pool", json!({"sleep_ms": 300}));
    let id = task.id;
    scene.postgres.lose_answer_to_statement(statement, id.0.as_bytes(), 1);

    scene.door.accept(&[task]).await.expect("accepted");

    scene.is_done_once(id).await;
    assert_eq!(scene.postgres.counters().answers_lost, 1, "the story proves nothing");
    scene.has_all_slots().await;
    scene.close(worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_becomes_one_attempt() {
    lost_answer("lost_claim", CLAIM).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_whose_answer_is_lost_becomes_one_result() {
    lost_answer("lost_complete", COMPLETE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_making_was_not_answered_is_made_once() {
    let scene = Scene::open("lost_enqueue").await;
    let dsn = scene.ground.database_url_at(scene.postgres.address()).expect("an address");
    let options = StoreOptions::new(SecretString::from(dsn), "enqueue", Purpose::Daemon);
    let store = Store::open(&options).expect("a store");
    let task = NewTask::ad_hoc("probe", "io_pool", json!({}));
    scene.postgres.lose_answer_to_statement(ENQUEUE, task.id.0.as_bytes(), 1);

    let first = store.enqueue_all(std::slice::from_ref(&task)).await;
    let again = store.enqueue_all(std::slice::from_ref(&task)).await.expect("answered");

    assert!(first.is_err(), "its answer was lost, and still came: {first:?}");
    let made = again.into_iter().next().expect("one answer").expect("a task");
    assert_eq!((made.task_id, made.deduplicated), (task.id, false));
    drop(store);
    let worker = scene.member(Role::Worker, 2).await;
    scene.is_done_once(task.id).await;
    scene.close(worker).await;
}

/// One producer's way to PostgreSQL is silent, another's is not: the requests that the first has in
/// hand become tasks of the other's, each once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_pass_from_a_producer_with_a_silent_database_to_another() {
    let scene = Scene::open("inbox_passes").await;
    let silent = scene.member(Role::Producer, 2).await;
    scene.postgres.set(Mode::BlackHole);
    let inbox = scene.ground.topology().inbox();
    for number in 0..REQUESTS {
        let named = Properties { message_id: Some(format!("{number}")), ..Properties::default() };
        let asked = scene.door.publisher.publish_raw(&inbox, "", br#"{"type": "probe"}"#, &named);
        asked.await.expect("confirmed");
    }
    within(PATIENCE, "the silent one has them", async || {
        (scene.door.publisher.depth(&inbox).await.expect("asked") == Some(0)).then_some(())
    })
    .await;

    let mut other = Member::start(&scene.ground, Role::Producer).expect("started");
    other.ready(PATIENCE).await.expect("ready");
    let wanted = TaskFilter { task_type: Some("probe".to_owned()), ..TaskFilter::default() };
    let tasks = within(BACK, "all are tasks", async || {
        let tasks = scene.door.store.tasks(&wanted, 100).await.expect("read");
        (tasks.len() == REQUESTS).then_some(tasks)
    })
    .await;

    scene.postgres.set(Mode::Pass);
    let worker = scene.member(Role::Worker, 2).await;
    for task in tasks {
        scene.is_done_once(TaskId(task.task_id)).await;
    }
    for producer in [silent, other] {
        assert!(producer.stop(PATIENCE).await.expect("ended").success());
    }
    scene.close(worker).await;
}
