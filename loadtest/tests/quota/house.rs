//! Ground, a stub that the fleet asks, a front door, and workers as they are shipped.

use std::time::Duration;

use loadtest::database;
use loadtest::fleet::{Door, Ground, Member, Role};
use loadtest::ledger;
use loadtest::stub_llm::{Call, Stub, StubOptions};
use serde_json::{Value, json};
use shared::config;
use shared::domain::task::NewTask;
use shared::store::{UsageBy, UsageRow};
use shared::testing::{needed, within};
use tokio_postgres::Client;

/// Time for a process to be ready, or to stop.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct House {
    pub ground: Ground,
    pub stub: Stub,
    pub door: Door,
    pub client: Client,
    workers: Vec<Member>,
}

impl House {
    /// `limits` is YAML of `model.limits`; the pool has so many slots in each worker.
    pub async fn open(name: &str, limits: &str, slots: usize, latency: Duration) -> Self {
        super::programs::are_fresh();
        let yaml = format!(
            "scheduler: {{heartbeat_interval: 1s, heartbeat_ttl: 3s}}\n\
             limits: {{crash_limit: 100}}\n\
             model: {{limits: {limits}, prices: {{m: {{input: 1, output: 1}}}}}}\n\
             task_pools:\n  io_pool: {{max_workers: {slots}, task_types: [model_invoke]}}\n"
        );
        let mut ground = Ground::prepare(&services(), name, &yaml).await.expect("ground");
        let options = StubOptions { latency, ..StubOptions::default() };
        let stub = Stub::start(options).await.expect("a free port");
        ground.tell("MODEL_BASE_URL", stub.url.clone());
        ground.tell("MODEL_API_KEY", "k");
        let dsn = ground.config().database_url().expect("a database");
        let client = database::connect(dsn).await.expect("connected");
        let door = Door::open(&ground).await.expect("open");
        Self { ground, stub, door, client, workers: Vec::new() }
    }

    /// Starts so many workers more.
    pub async fn workers(&mut self, count: usize) {
        let begun = self.workers.len();
        for _ in 0..count {
            self.workers.push(Member::start(&self.ground, Role::Worker).expect("started"));
        }
        for worker in &mut self.workers[begun..] {
            worker.ready(PATIENCE).await.expect("ready");
        }
    }

    /// Kills one, and starts another in its place.
    pub async fn kill_one(&mut self) {
        self.workers.remove(0).kill().await.expect("killed");
        self.workers(1).await;
    }

    /// Stops one as a deploy does, and starts another in its place.
    pub async fn restart_one(&mut self) {
        self.workers.remove(0).stop(PATIENCE).await.expect("stopped");
        self.workers(1).await;
    }

    /// Lets in so many tasks that each ask a model something of their own.
    pub async fn ask(&self, model: &str, count: usize) {
        let task = |n| {
            let text = format!("question {n:04}");
            let payload = json!({"prompt": text, "model": model, "max_tokens": 100});
            NewTask::ad_hoc("model_invoke", "io_pool", payload)
        };
        let tasks: Vec<NewTask> = (0..count).map(task).collect();
        self.door.accept(&tasks).await.expect("accepted");
    }

    /// A count from the database.
    pub async fn count(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.expect(sql).get(0)
    }

    /// Waits for a count.
    pub async fn until(&self, patience: Duration, sql: &str, count: i64) {
        within(patience, &format!("{count}: {sql}"), async || {
            (self.count(sql).await == count).then_some(())
        })
        .await;
    }

    /// The calls of a model as the stub saw them, by their time.
    pub fn calls(&self, model: &str) -> Vec<Call> {
        let mut calls: Vec<Call> =
            self.stub.calls().into_iter().filter(|call| call.model == model).collect();
        calls.sort_by_key(|call| call.time);
        calls
    }

    /// Ends the story: everything has ended, no promise is broken, the bill is the endpoint's.
    pub async fn close(mut self) {
        for worker in std::mem::take(&mut self.workers) {
            worker.stop(PATIENCE).await.expect("stopped");
        }
        let settled = ledger::Options { expect_settled: true, management: None };
        let audited = ledger::audit(self.ground.config(), &settled).await.expect("audited");
        assert_eq!(audited.broken(), None, "{}", loadtest::report::ledger(&audited));
        let rows = self.door.store.usage(UsageBy::Model, None, None).await.expect("read");
        let (ours, theirs) = (UsageRow::total(&rows), self.stub.usage().total);
        // What a killed worker had asked was billed, and is among the unknown.
        if ours.unknown == 0 {
            let ours = [ours.calls, ours.answered, ours.input_tokens, ours.output_tokens];
            let theirs = [theirs.calls, theirs.answered, theirs.input_tokens, theirs.output_tokens];
            assert_eq!(ours.map(|n| u64::try_from(n).expect("a count")), theirs);
        }
        let Self { ground, door, client, .. } = self;
        drop(client);
        door.close().await;
        ground.clear().await.expect("nothing left behind");
    }
}

/// Rows of a query as JSON, for messages.
pub async fn rows(client: &Client, sql: &str) -> Vec<Value> {
    let sql = format!("SELECT to_jsonb(r) FROM ({sql}) r");
    let rows = client.query(&sql, &[]).await.expect(&sql);
    rows.iter().map(|row| row.get(0)).collect()
}

/// What the environment names, whatever file lies about.
fn services() -> config::Config {
    let lookup = |name: &str| match name {
        "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
        _ => None,
    };
    config::load_str("", "environment", &lookup).expect("addresses")
}
