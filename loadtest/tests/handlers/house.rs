//! A database, a stub, and attempts of tasks between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use loadtest::stub_llm::{Stub, StubOptions};
use serde_json::Value;
use shared::config::{self, Config};
use shared::domain::attempt::{Attempt, ClaimToken, Incarnation};
use shared::domain::outcome::{ErrorClass, Failure, Outcome, TaskError};
use shared::domain::task::{NewTask, TaskId};
use shared::store::{Claim, Completion, Registration, Replayed, Store};
use shared::testing::TestDatabase;
use tokio_util::sync::CancellationToken;
use worker::context::{self, Context};
use worker::handlers;
use worker::llm::Models;

/// The key that must never be seen.
pub const API_KEY: &str = "sk-canary-0123456789";
/// The secret that payloads name.
pub const SECRET: &str = "canary-secret-42";

/// See the module.
pub struct House {
    pub database: TestDatabase,
    pub store: Store,
    pub stub: Stub,
    pub config: Arc<Config>,
    pub worker: Incarnation,
    /// Told to the handlers: their worker stops.
    pub draining: CancellationToken,
    models: Models,
}

impl House {
    /// With `more` lines of configuration, where STUB stands for the stub's address and DSN for the
    /// database's.
    pub async fn open(more: &str) -> Self {
        let options = StubOptions { api_key: Some(API_KEY.to_owned()), ..StubOptions::default() };
        let stub = Stub::start(options).await.expect("a free port");
        let database = TestDatabase::create().await;
        let text = format!(
            "model:\n  base_url: STUB\n  api_key: ${{KEY}}\n  default_model: m\n  timeout: 2s\n  \
             prices:\n    m: {{input: 2, output: 10}}\n    stub-session: {{input: 2, output: 10}}\n    \
             fine: {{input: 2, cached_input: 0.5, output: 10, reasoning: 20}}\n  \
             fallback: {{stub-404x9: [big]}}\nsecrets: {{token: \"${{TOKEN}}\"}}\n\
             http: {{allow_hosts: [127.0.0.1]}}\ntask_pools:\n  p: {{max_workers: 1, task_types: \
             [http_call, db_query, model_invoke, report_generation, agent_session, probe]}}\n{more}\n"
        );
        let text = text.replace("STUB", &stub.url).replace("DSN", &database.dsn);
        let variables = |name: &str| match name {
            "KEY" => Some(API_KEY.to_owned()),
            "TOKEN" => Some(SECRET.to_owned()),
            _ => None,
        };
        let config = config::load_str(&text, "test.yaml", &variables);
        let config = Arc::new(config.unwrap_or_else(|problems| panic!("{problems}")));
        let store = database.store();
        let worker = Incarnation::new();
        let who = Registration {
            id: worker,
            role: "worker",
            label: "worker@test#1".to_owned(),
            pools: BTreeMap::new(),
            ttl: Duration::from_mins(10),
        };
        store.register(&who).await.expect("registered");
        let models = Models::from_config(&config);
        Self { database, store, stub, config, worker, draining: CancellationToken::new(), models }
    }

    /// A task.
    pub async fn task(&self, task_type: &str, payload: Value) -> TaskId {
        let task = NewTask::ad_hoc(task_type, "p", payload);
        self.store.enqueue(task).await.expect("enqueued").task_id
    }

    /// A running attempt of a task.
    pub async fn attempt(&self, task: TaskId) -> Box<Attempt> {
        match self.store.claim(task, ClaimToken::new(), self.worker).await.expect("answered") {
            Claim::Run(attempt) => attempt,
            other => panic!("not claimed: {other:?}"),
        }
    }

    /// What a handler of an attempt gets.
    pub fn context(&self, attempt: &Attempt) -> Context {
        let house = context::House {
            store: self.store.clone(),
            config: Arc::clone(&self.config),
            models: self.models.clone(),
        };
        Context::new(house, attempt, CancellationToken::new())
            .among(Arc::new(handlers::all(&self.config)), self.draining.clone())
    }

    /// Runs a claimed attempt's handler.
    pub async fn run(&self, attempt: &Attempt) -> Result<Value, TaskError> {
        let handler = handlers::all(&self.config).get(&attempt.task_type).expect("a handler");
        handler.run(&self.context(attempt), attempt.payload.clone()).await
    }

    /// One attempt from its claim to a record: completed, or due again at once.
    pub async fn once(&self, task: TaskId) -> Result<Value, TaskError> {
        let attempt = self.attempt(task).await;
        let result = self.run(&attempt).await;
        let outcome = match &result {
            Ok(result) => Outcome::Completed { result: result.clone() },
            Err(TaskError::Permanent(failure)) => Outcome::Dead { failure: failure.clone() },
            Err(TaskError::HandOver(failure)) => {
                Outcome::Snooze { delay: Duration::ZERO, failure: failure.clone() }
            }
            Err(error) => {
                let failure = Failure::new(error.class(), error);
                Outcome::Retry { delay: Duration::ZERO, failure }
            }
        };
        self.record(&attempt, outcome).await;
        result
    }

    /// A new task's only attempt.
    pub async fn first(&self, task_type: &str, payload: Value) -> Result<Value, TaskError> {
        let task = self.task(task_type, payload).await;
        self.once(task).await
    }

    /// Gives an attempt up in the middle, as a crash does.
    pub async fn lose(&self, attempt: &Attempt) {
        let failure = Failure::new(ErrorClass::Crashed, "lost");
        self.record(attempt, Outcome::Retry { delay: Duration::ZERO, failure }).await;
    }

    /// Replays a dead task.
    pub async fn replay(&self, task: TaskId) {
        let client = self.database.client().await;
        let sql = "SELECT id FROM dead_letters WHERE task_id = $1 AND resolved_at IS NULL";
        let letter: i64 = client.query_one(sql, &[&task.0]).await.expect("a letter").get(0);
        let replayed = self.store.replay(letter, "test").await.expect("answered");
        assert!(matches!(replayed, Replayed::Queued(_)), "{replayed:?}");
    }

    /// The journal of a task's model calls: state, call number, tokens, cost, class.
    pub async fn calls(&self, task: TaskId) -> Vec<Value> {
        let row = self.store.task(task).await.expect("read").expect("a task");
        row.llm_calls.as_array().cloned().unwrap_or_default()
    }

    async fn record(&self, attempt: &Attempt, outcome: Outcome) {
        let completion =
            Completion { task: attempt.task_id, token: attempt.token, traceparent: None, outcome };
        let recorded = self.store.record(&completion).await.expect("recorded");
        assert!(!recorded.settlement.is_fenced());
    }
}

/// The failure and what becomes of it, in a word.
#[track_caller]
pub fn fate(result: Result<Value, TaskError>) -> (&'static str, Failure) {
    match result {
        Ok(value) => panic!("completed: {value}"),
        Err(TaskError::Retry { failure, .. }) => ("retry", failure),
        Err(TaskError::Permanent(failure)) => ("dead", failure),
        Err(TaskError::Snooze { failure, .. }) => ("snooze", failure),
        Err(TaskError::HandOver(failure)) => ("hand over", failure),
        Err(TaskError::Cancelled) => panic!("cancelled"),
    }
}
