//! The drill's faults as its users meet them, and its account on a house that somebody breaks by
//! hand: each invariant must be able to fail.

#[path = "ledger/aside.rs"]
mod aside;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aside::{KEEP, RESTORE};
use loadtest::drill::{Account, Book, EFFECTS_TABLE, End, Entry, Kind, Rows};
use loadtest::stub_llm::{Stub, StubOptions};
use serde_json::{Value, json};
use shared::domain::attempt::{Attempt, ClaimToken, Incarnation};
use shared::domain::execution_key::ExecutionKey;
use shared::domain::outcome::{ErrorClass, Failure, Outcome};
use shared::domain::task::NewTask;
use shared::http;
use shared::store::{Claim, Completion, Registration, Store};
use shared::testing::TestDatabase;
use tokio::time::Instant;

#[test]
fn every_fault_has_a_name_of_its_own_a_line_and_a_place_in_the_documentation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/loadtest.md");
    let documentation = std::fs::read_to_string(path).expect("docs/loadtest.md");
    let mut names = BTreeSet::new();

    for fault in loadtest::drill::faults() {
        let (name, summary) = (fault.name(), fault.summary());

        assert!(names.insert(name), "{name} stands twice");
        assert!(!summary.is_empty() && !summary.ends_with('.'), "{name}: {summary:?}");
        assert!(documentation.contains(&format!("`{name}`")), "{name} is not documented");
    }

    assert!(names.len() >= 30, "{} faults", names.len());
}

/// Invariant, and how it is broken. `$EFFECT` and its like stand for the tasks of the house.
const BREAKS: &[(&str, &str)] = &[
    ("accepted", "DELETE FROM tasks WHERE id = '$EFFECT'"),
    ("ended", "UPDATE tasks SET state = 'cancelled' WHERE id = '$OUTSIDE'"),
    ("ended", "UPDATE dead_letters SET error_class = 'timeout' WHERE task_id = '$DEAD'"),
    ("requests", "DELETE FROM task_inputs WHERE execution_key = 'request-1'"),
    ("requests", "UPDATE tasks SET state = 'cancelled' WHERE id = '$REQUEST'"),
    ("effects", "DELETE FROM drill_effects"),
    ("effects", "INSERT INTO drill_effects SELECT * FROM drill_effects"),
    ("stale", "UPDATE drill_effects SET token = gen_random_uuid()"),
    ("stale", "UPDATE drill_effects SET run = 2"),
    ("stale", "UPDATE attempts SET outcome = 'snooze' WHERE task_id = '$EFFECT'"),
    ("outside", "DELETE FROM attempts WHERE task_id = '$OUTSIDE'"),
    ("calls", "DELETE FROM llm_calls"),
    ("calls", "INSERT INTO llm_calls SELECT gen_random_uuid(), task_id, step, 2, run, token, state, request_hash,
                   endpoint, model, response_model, response, input_tokens, output_tokens, cached_tokens,
                   reasoning_tokens, usage_estimated, cost_micro, error_class, error_message, traceparent,
                   started_at, ended_at FROM llm_calls"),
    ("ticks", "INSERT INTO ticks VALUES ('s', belfry_now(), 'paused', NULL, belfry_now(), 1, NULL, 1)"),
    ("letters", "UPDATE dead_letters SET task_id = '$EFFECT' WHERE task_id = '$DEAD'"),
    ("refused", "DELETE FROM dead_letters WHERE task_id IS NULL"),
    ("refused", "UPDATE dead_letters SET task_id = NULL, body = 'x' WHERE task_id = '$DEAD'"),
];

/// A house that did one thing of each kind, and the book of who asked for it.
struct House {
    database: TestDatabase,
    store: Store,
    worker: Incarnation,
    stub: Stub,
    book: Book,
    names: BTreeMap<&'static str, String>,
}

impl House {
    async fn open() -> Self {
        let database = TestDatabase::create().await;
        let client = database.client().await;
        client.batch_execute(EFFECTS_TABLE).await.expect("a table of effects");
        let (store, worker) = (database.store(), Incarnation::new());
        let who = Registration {
            id: worker,
            role: "worker",
            label: "worker@test#1".to_owned(),
            pools: BTreeMap::new(),
            ttl: Duration::from_secs(60),
        };
        store.register(&who).await.expect("registered");
        let stub = Stub::start(StubOptions::default()).await.expect("a stub");
        let (book, names) = (Book::default(), BTreeMap::new());
        Self { database, store, worker, stub, book, names }
    }

    async fn given(&mut self, name: &'static str, entry: Entry) -> Box<Attempt> {
        let mut task = NewTask::ad_hoc("probe", "io_pool", json!({}));
        task.retry.max_retry = 0;
        if name == "$REQUEST" {
            task.execution_key = Some(ExecutionKey::new("request-1").expect("a key"));
        } else {
            self.book.write(std::slice::from_ref(&task), entry);
        }
        let id = task.id;
        self.names.insert(name, id.to_string());
        self.store.enqueue(task).await.expect("enqueued");
        match self.store.claim(id, ClaimToken::new(), self.worker).await.expect("answered") {
            Claim::Run(attempt) => attempt,
            other => panic!("not claimed: {other:?}"),
        }
    }

    async fn end(&self, attempt: &Attempt, outcome: Outcome) {
        let (task, token) = (attempt.task_id, attempt.token);
        let completion = Completion { task, token, traceparent: None, outcome };
        self.store.record(&completion).await.expect("recorded");
    }

    async fn post(&self, path: &str, key: &str, body: &Value) {
        let request =
            http::trusted_client().expect("a client").post(format!("{}{path}", self.stub.url));
        let request = request.header("idempotency-key", key).json(body);
        let answer = http::send(request, Instant::now() + Duration::from_secs(20)).await;
        assert!(answer.expect("an answer").status().is_success());
    }

    /// One of each.
    async fn worked() -> Self {
        let mut house = Self::open().await;
        let entry = |kind, end| Entry { kind, end };

        let effect = house.given("$EFFECT", entry(Kind::Effect, End::Completed)).await;
        let tx = house.store.begin(effect.task_id, effect.token).await.expect("begun");
        let sql = "INSERT INTO drill_effects VALUES ($1, 1, $2, 'key')";
        tx.execute(sql, &[&effect.task_id.0, &effect.token.0]).await.expect("written");
        tx.complete(&json!({}), None).await.expect("completed");

        let outside = house.given("$OUTSIDE", entry(Kind::Outside, End::Completed)).await;
        house.post("/effects", &outside.idempotency_key(), &json!({})).await;
        house.end(&outside, Outcome::Completed { result: json!({}) }).await;

        let question = house.given("$QUESTION", entry(Kind::Question, End::Once)).await;
        let call = uuid::Uuid::new_v4();
        let sql = "INSERT INTO llm_calls (id, task_id, step, call_no, run, token, state, request_hash, endpoint,
                       model, response, started_at, ended_at)
                   VALUES ($1, $2, 'ask', 1, 1, $3, 'done', '', 'here', 'm', '{}', belfry_now(), belfry_now())";
        let client = house.database.client().await;
        client.execute(sql, &[&call, &question.task_id.0, &question.token.0]).await.expect("a row");
        let asked = json!({"model": "m", "messages": [{"role": "user", "content": "why?"}]});
        house.post("/v1/chat/completions", &call.to_string(), &asked).await;
        house.end(&question, Outcome::Completed { result: json!({}) }).await;

        let dead = house.given("$DEAD", entry(Kind::Plain, End::Dead("permanent"))).await;
        let failure = Failure::new(ErrorClass::Permanent, "as asked");
        house.end(&dead, Outcome::Dead { failure }).await;

        let request = house.given("$REQUEST", entry(Kind::Plain, End::Completed)).await;
        house.book.request("request-1", json!({}));
        house.end(&request, Outcome::Completed { result: json!({}) }).await;

        house.book.refused(1);
        house.store.keep_unreadable("no JSON", b"hello").await.expect("kept");
        house
    }

    async fn sql(&self, sql: &str) {
        let sql = self.names.iter().fold(sql.to_owned(), |sql, (name, id)| sql.replace(name, id));
        self.database
            .client()
            .await
            .batch_execute(&sql)
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    /// The invariants that do not hold.
    async fn broken(&self) -> Vec<&'static str> {
        let rows = Rows::new(self.database.dsn.clone().into());
        let (book, stub) = (&self.book, &self.stub);
        let account = Account { rows: &rows, book, stub, planned: 0 }.make().await.expect("made");
        account.iter().filter(|invariant| !invariant.ok).map(|invariant| invariant.name).collect()
    }
}

#[tokio::test]
async fn each_invariant_that_is_broken_is_named() {
    let house = House::worked().await;
    house.sql(KEEP).await;
    assert_eq!(house.broken().await, [""; 0]);

    for (invariant, sql) in BREAKS {
        house.sql(RESTORE).await;
        house.sql(sql).await;

        let broken = house.broken().await;

        assert!(broken.contains(invariant), "{invariant}: {sql}: {broken:?}");
    }
}

#[tokio::test]
async fn what_happened_outside_and_is_in_no_row_is_named() {
    let house = House::worked().await;

    house.post("/effects", "nobody", &json!({})).await;
    assert_eq!(house.broken().await, ["outside"]);
    let asked = json!({"model": "m", "messages": []});
    house.post("/v1/chat/completions", "nobody", &asked).await;

    assert_eq!(house.broken().await, ["outside", "calls"]);
}
