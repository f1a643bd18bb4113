//! Model calls by real processes: waits that are asked for, requests that are counted, a worker that
//! dies while the model thinks, and one that waits longer than its lease.

#[path = "fleet/programs.rs"]
mod programs;

use std::collections::BTreeMap;
use std::time::Duration;

use loadtest::database;
use loadtest::fleet::{Door, Ground, Member, Role};
use loadtest::stub_llm::{Call, Fault, Stub, StubOptions};
use serde_json::{Value, json};
use shared::config;
use shared::domain::retry::RetryPolicy;
use shared::domain::task::{NewTask, TaskId};
use shared::testing::{Unique, needed, within};
use tokio_postgres::Client;

/// Time for a process to be ready, or to stop, or for a story to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// One worker and one producer, and a stub between them.
struct House {
    ground: Ground,
    stub: Stub,
    door: Door,
    client: Client,
    fleet: Vec<Member>,
}

impl House {
    async fn open(name: &str) -> Self {
        programs::are_fresh();
        shared::http::install_crypto();
        let stub = Stub::start(StubOptions::default()).await.expect("a stub");
        let yaml = format!(
            "scheduler: {{heartbeat_interval: 1s, heartbeat_ttl: 3s}}\n\
             model: {{base_url: '{}', api_key: k, default_model: m, timeout: 30s}}\n\
             task_pools:\n  io_pool: {{max_workers: 8, task_types: [model_invoke]}}\n",
            stub.url
        );
        let lookup = |name: &str| match name {
            "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
            _ => None,
        };
        let base = config::load_str("", "environment", &lookup).expect("addresses");
        let ground = Ground::prepare(&base, name, &yaml).await.expect("ground");
        let door = Door::open(&ground).await.expect("a door");
        let dsn = ground.config().database_url().expect("an address");
        let client = database::connect(dsn).await.expect("the database");
        let mut house = Self { ground, stub, door, client, fleet: Vec::new() };
        house.start(Role::Producer).await;
        house.start(Role::Worker).await;
        house
    }

    async fn start(&mut self, role: Role) {
        self.start_with(role, &[]).await;
    }

    async fn start_with(&mut self, role: Role, more: &[(&str, &str)]) {
        let mut member = Member::start_with(&self.ground, role, more).expect("started");
        member.ready(PATIENCE).await.expect("ready");
        self.fleet.push(member);
    }

    /// Publishes a question to a model.
    async fn publish(&self, model: &str, max_retry: u32) -> TaskId {
        let second = Duration::from_secs(1);
        let payload = json!({"prompt": "summarise: 17 orders", "model": model});
        let task = NewTask {
            retry: RetryPolicy { max_retry, base: second, max: second },
            ..NewTask::ad_hoc("model_invoke", "io_pool", payload)
        };
        let id = task.id;
        self.door.accept(&[task]).await.expect("published");
        id
    }

    /// The task's state once it has ended, its failures, and its attempts.
    async fn ended(&self, task: TaskId) -> (String, i32, i64) {
        let sql =
            "SELECT t.state, t.failures, (SELECT count(*) FROM attempts a WHERE a.task_id = t.id)
            FROM tasks t WHERE t.id = $1 AND t.finished_at IS NOT NULL";
        within(PATIENCE, "the task ends", async || {
            let row = self.client.query_opt(sql, &[&task.0]).await.expect("a row")?;
            Some((row.get(0), row.get(1), row.get(2)))
        })
        .await
    }

    fn calls(&self, model: &str) -> Vec<Call> {
        self.stub.calls().into_iter().filter(|call| call.model == model).collect()
    }

    async fn close(self) {
        self.door.close().await;
        for member in self.fleet {
            member.stop(PATIENCE).await.expect("stopped");
        }
        self.ground.clear().await.expect("nothing left behind");
    }
}

fn limited(headers: &[(&str, &str)]) -> Fault {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Fault { headers: headers.collect::<BTreeMap<_, _>>(), ..Fault::status(429) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_01_02_06_11_waits_are_kept_and_every_request_is_an_attempts() {
    let house = House::open("waits").await;
    let waits = [
        ("case-1", limited(&[("retry-after", "3")]), 3000, 60_000),
        ("case-2", limited(&[("retry-after-ms", "1500"), ("retry-after", "60")]), 1500, 50_000),
        ("case-6-seconds", limited(&[("x-ratelimit-reset-tokens", "2s")]), 2000, 60_000),
        ("case-6-millis", limited(&[("x-ratelimit-reset-tokens", "12ms")]), 1000, 60_000),
        (
            "case-6-minutes",
            limited(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "0m2s")]),
            2000,
            60_000,
        ),
    ];
    let mut limited = Vec::new();
    for (model, fault, ..) in &waits {
        house.stub.script(model, vec![fault.clone()]);
        limited.push(house.publish(model, 3).await);
    }
    let recovers = house.publish("stub-500x2", 3).await;
    let dies = house.publish("stub-500x9", 2).await;

    for (task, (model, _, at_least, at_most)) in limited.into_iter().zip(&waits) {
        let (state, failures, attempts) = house.ended(task).await;
        // A rate limit costs an attempt's row, and no failure.
        assert_eq!((state.as_str(), failures, attempts), ("completed", 0, 2), "{model}");
        let calls = house.calls(model);
        assert_eq!(calls.len(), 2, "{model}");
        let gap = (calls[1].time - calls[0].time).num_milliseconds();
        assert!((*at_least..*at_most).contains(&gap), "{model}: {gap} ms");
    }
    let (state, failures, _) = house.ended(recovers).await;
    assert_eq!((state.as_str(), failures, house.calls("stub-500x2").len()), ("completed", 2, 3));
    let (state, failures, attempts) = house.ended(dies).await;
    assert_eq!((state.as_str(), failures, attempts), ("dead", 3, 3));
    assert_eq!(house.calls("stub-500x9").len(), 3, "no retry but the task's own");
    house.close().await;
}

/// The answer takes longer than two leases; another thread keeps the worker alive meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_20_a_slow_answer_outlives_the_lease() {
    let house = House::open("slow").await;
    house.stub.script("m", vec![Fault { hang_ms: 7_000, ..Fault::default() }]);
    let task = house.publish("m", 3).await;

    let (state, failures, attempts) = house.ended(task).await;

    assert_eq!((state.as_str(), failures, attempts), ("completed", 0, 1));
    assert_eq!(house.calls("m").len(), 1);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_21_a_worker_that_dies_while_the_model_thinks_costs_one_visible_call() {
    let mut house = House::open("killed").await;
    house.stub.script("m", vec![Fault { hang_ms: 600_000, ..Fault::default() }]);
    let task = house.publish("m", 3).await;
    within(PATIENCE, "the model is asked", async || (house.calls("m").len() == 1).then_some(()))
        .await;

    let worker = house.fleet.pop().expect("the worker");
    worker.kill().await.expect("killed");
    house.start(Role::Worker).await;
    let (state, ..) = house.ended(task).await;

    assert_eq!((state.as_str(), house.calls("m").len()), ("completed", 2));
    let sql = "SELECT state, call_no FROM llm_calls WHERE task_id = $1 ORDER BY call_no";
    let rows = house.client.query(sql, &[&task.0]).await.expect("rows");
    let journal: Vec<(String, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(journal, [("unknown".to_owned(), 1), ("done".to_owned(), 2)]);
    house.close().await;
}

/// A process's own events name their task, and so does the scope around them: each key once in a line,
/// and of one type in all lines of all processes, as a column of a log store is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_log_line_is_one_object_with_each_key_once_and_of_one_type() {
    let mut house = House::open("lines").await;
    for member in house.fleet.drain(..) {
        member.stop(PATIENCE).await.expect("stopped");
    }
    let json = [("LOG_FORMAT", "json"), ("RUST_LOG", "debug")];
    house.start_with(Role::Producer, &json).await;
    house.start_with(Role::Worker, &json).await;
    house.stub.script("busy", vec![limited(&[("retry-after", "1")])]);
    let tasks = [
        house.publish("m", 0).await,
        house.publish("busy", 0).await,
        house.publish("stub-500x9", 1).await,
        house.publish("stub-400", 0).await,
    ];
    for task in tasks {
        house.ended(task).await;
    }

    let mut lines = Vec::new();
    for member in house.fleet.drain(..) {
        let log = house.ground.directory().join(member.log_name());
        member.stop(PATIENCE).await.expect("stopped");
        let log = std::fs::read_to_string(log).expect("a log");
        lines.extend(log.lines().map(str::to_owned));
    }

    let mut types: BTreeMap<(String, &str), String> = BTreeMap::new();
    let (mut of_tasks, mut runs_of_scopes) = (0, 0);
    for line in &lines {
        let object = serde_json::from_str::<Unique>(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        of_tasks += usize::from(object.0.contains_key("task.id"));
        let target = object.0["target"].as_str().expect("a text");
        let is_others =
            !target.starts_with("worker::processor") && object.0.contains_key("task.run");
        runs_of_scopes += usize::from(is_others);
        for (key, value) in object.0 {
            types.entry((key, type_of(&value))).or_insert_with(|| line.clone());
        }
    }
    assert!(of_tasks >= 4, "{of_tasks} lines of tasks: {lines:#?}");
    assert!(runs_of_scopes > 0, "no line has the attempt's number from its scope alone");
    for ((key, one), line) in &types {
        let other = types.iter().find(|((name, other), _)| name == key && other != one);
        assert!(other.is_none(), "{key} is a {one} here: {line}\nand not there: {other:?}");
    }
    house.close().await;
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}
