//! A house in which every kind of thing has happened, done by the store's own statements.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use secrecy::SecretString;
use serde_json::{Value, json};
use shared::broker::{Operator, Settings, Topology};
use shared::domain::attempt::{Attempt, ClaimToken, Incarnation};
use shared::domain::cron::Cron;
use shared::domain::outcome::{ErrorClass, Failure, Outcome};
use shared::domain::retry::RetryPolicy;
use shared::domain::schedule::{Overlap, Schedule};
use shared::domain::task::{Due, NewTask, Priority, Semantics, TaskId};
use shared::store::{
    Admission, Asked, CallEnd, CallStart, Claim, Completion, HandRun, HandRunEnd, NewCall,
    Registration, Store, TickInput,
};
use shared::testing::{TestDatabase, needed, put_in_force};

pub const POOL: &str = "io_pool";
/// The schedule ticks every ten minutes; the database's clock is moved on by an hour.
const HOUR: i64 = 3600;

const STOP_THE_CLOCK: &str = "DO $$ BEGIN EXECUTE format(
    'CREATE OR REPLACE FUNCTION belfry_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS %L',
    format('SELECT %L::timestamptz', belfry_now())); END $$";

pub struct House {
    pub database: TestDatabase,
    pub store: Store,
    pub prefix: String,
    config: tempfile::NamedTempFile,
    worker: Incarnation,
}

/// How `loadtest ledger` ended.
pub struct Answer {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl House {
    /// An empty one.
    pub async fn open() -> Self {
        let database = TestDatabase::create().await;
        let dsn = database.dsn.clone();
        Self::over(database, &dsn)
    }

    /// One whose configuration names another database.
    pub async fn at(dsn: &str) -> Self {
        Self::over(TestDatabase::create().await, dsn)
    }

    fn over(database: TestDatabase, dsn: &str) -> Self {
        let prefix = format!("test-{}", TaskId::new());
        let config = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
        let text = format!(
            "storage:\n  postgres: {{dsn: \"{dsn}\"}}\n  rabbitmq: {{url: \"{}\", prefix: {prefix}}}\n\
             task_pools:\n  {POOL}: {{max_workers: 2, task_types: [http_call]}}\n",
            needed("AMQP_URL"),
        );
        std::fs::write(config.path(), text).expect("written");
        let store = database.store();
        Self { database, store, prefix, config, worker: Incarnation::new() }
    }

    /// One in which work was done, and some is under way.
    pub async fn worked() -> Self {
        let house = Self::open().await;
        house.register(house.worker).await;
        house.ticks().await;
        house.completed().await;
        house.failed().await;
        house.crashed().await;
        house.under_way().await;
        house.store.keep_unreadable("no JSON", b"hello").await.expect("kept");
        // However slow the machine is: nothing that is under way becomes late by itself.
        house.sql(STOP_THE_CLOCK).await;
        house
    }

    /// The real binary.
    pub fn ledger(&self, arguments: &[&str]) -> Answer {
        let output = Command::new(env!("CARGO_BIN_EXE_loadtest"))
            .args(["ledger", "--config"])
            .arg(self.config.path())
            .args(arguments)
            .output()
            .expect("the binary runs");
        Answer {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// What no front door does.
    pub async fn sql(&self, sql: &str) {
        self.database.client().await.batch_execute(sql).await.expect(sql);
    }

    /// The broker under the house's prefix.
    pub async fn broker(&self) -> (Operator, Topology, Settings) {
        let url = SecretString::from(needed("AMQP_URL"));
        let settings = Settings::new(url, &self.prefix, "test@here#1");
        let operator = Operator::connect(&settings).await.expect("a broker");
        (operator, Topology::new(&self.prefix, [POOL]), settings)
    }

    async fn register(&self, id: Incarnation) {
        let registration = Registration {
            id,
            role: "worker",
            label: "worker@here#1".to_owned(),
            pools: BTreeMap::new(),
            ttl: Duration::from_hours(24),
        };
        self.store.register(&registration).await.expect("registered");
    }

    /// Six planned instants: three missed in one span, then one of each other kind.
    async fn ticks(&self) {
        let cron = Cron::parse("*/10 * * * *").expect("a cron line");
        let schedule = Schedule::new("sync", cron, "http_call", POOL);
        let revision = put_in_force(&self.store, &[schedule]).await;
        let mark = self.store.in_force().await.expect("read")["sync"].mark;
        self.database.move_clock(HOUR).await;
        let minute = TimeDelta::minutes(10);
        let first = mark.duration_trunc(minute).expect("in range") + minute;
        let at = |n: i32| first + minute * n;
        let ttl = Duration::from_hours(1);
        let leading = self.store.lead(uuid::Uuid::new_v4(), self.worker, "here", ttl).await;
        let term = leading.expect("asked").expect("nobody else leads");

        let missed = TickInput {
            run: false,
            first_at: Some(first),
            count: 3,
            ..tick(at(2), "missed", Overlap::Allow)
        };
        for input in [
            missed,
            tick(at(3), "day", Overlap::Allow),
            tick(at(4), "day", Overlap::Allow),
            tick(at(5), "late", Overlap::Skip),
        ] {
            self.store.tick(&term, revision, &[input]).await.expect("asked").expect("in term");
        }
        self.backfilled(at(1)).await;
    }

    /// A missed instant that somebody ran after all, and thought better of it.
    async fn backfilled(&self, at: DateTime<Utc>) {
        let run = HandRun { task: task("sync"), scheduled_for: at, priority: Priority::Normal };
        let asked = Asked {
            schedule: "sync",
            kind: "backfill",
            overlap: Overlap::Allow,
            forced: false,
            by: "ann",
        };
        let made = self.store.run_by_hand(&asked, std::slice::from_ref(&run)).await;
        let made = made.expect("asked").expect("applied");
        assert!(matches!(made[0], HandRunEnd::Made(_)), "{made:?}");
        self.store.cancel(run.task.id).await.expect("asked");
    }

    /// A task that completes with a step and a model call, and one after a retry and a snooze.
    async fn completed(&self) {
        let attempt = self.started("done").await;
        let (task, token) = (attempt.task_id, attempt.token);
        let took = Duration::from_millis(5);
        let kept = self.store.keep_step(task, token, "load", b"in", &json!(1), took).await;
        assert!(kept.expect("asked"));
        self.call(&attempt, 1, CallEnd { unknown: true, ..CallEnd::default() }).await;
        self.call(&attempt, 2, CallEnd { response: Some(json!({})), ..CallEnd::default() }).await;
        self.end(&attempt, Outcome::Completed { result: json!({"ok": true}) }).await;

        let attempt = self.started("retried").await;
        let delay = Duration::from_secs(1);
        self.end(&attempt, Outcome::Retry { delay, failure: failure("503") }).await;
        self.database.move_clock(HOUR + 2).await;
        let attempt = self.claimed(attempt.task_id).await;
        self.end(&attempt, Outcome::Snooze { delay, failure: failure("429") }).await;
        self.database.move_clock(HOUR + 4).await;
        let attempt = self.claimed(attempt.task_id).await;
        self.end(&attempt, Outcome::Completed { result: json!(null) }).await;
    }

    /// Dead ones: open, discarded, replayed; and one that was cancelled while it ran.
    async fn failed(&self) {
        let dead = || Outcome::Dead { failure: failure("403") };
        for name in ["dead", "discarded", "replayed"] {
            let attempt = self.started(name).await;
            self.end(&attempt, dead()).await;
            let letter = self.letter_of(attempt.task_id).await;
            match name {
                "discarded" => assert!(self.store.discard(letter, "ann").await.expect("asked")),
                "replayed" => {
                    self.store.replay(letter, "ann").await.expect("replayed");
                    let again = self.claimed(attempt.task_id).await;
                    self.end(&again, Outcome::Completed { result: json!(2) }).await;
                }
                _ => {}
            }
        }
        let attempt = self.started("cancelled").await;
        self.store.cancel(attempt.task_id).await.expect("asked");
        let delay = Duration::from_mins(1);
        self.end(&attempt, Outcome::Retry { delay, failure: failure("503") }).await;
    }

    /// A worker that vanished with two tasks, of which one must not rerun.
    async fn crashed(&self) {
        let other = Incarnation::new();
        self.register(other).await;
        let rescued = self.enqueued(task("rescued")).await;
        let once = NewTask { semantics: Semantics::AtMostOnce, ..task("once") };
        let once = self.enqueued(once).await;
        for id in [rescued, once] {
            let claim = self.store.claim(id, ClaimToken::new(), other).await.expect("asked");
            assert!(matches!(claim, Claim::Run(_)), "{claim:?}");
        }
        self.store.retire(other).await.expect("retired");
        assert_eq!(self.store.rescue().await.expect("asked").len(), 2);
        let attempt = self.claimed(rescued).await;
        self.end(&attempt, Outcome::Completed { result: json!(3) }).await;
    }

    async fn under_way(&self) {
        let _running = self.started("running").await;
        self.enqueued(task("unpublished")).await;
        let published = self.enqueued(task("published")).await;
        self.store.mark_published(&[(published, 0)]).await.expect("marked");
        let later = NewTask { due: Due::In(Duration::from_hours(3)), ..task("later") };
        self.enqueued(later).await;
    }

    /// Ends everything but what is scheduled.
    pub async fn settle(&self) {
        let client = self.database.client().await;
        let sql =
            "SELECT id, claim_token FROM tasks WHERE finished_at IS NULL AND state <> 'scheduled'";
        for row in client.query(sql, &[]).await.expect("tasks") {
            let id = TaskId(row.get("id"));
            let token = row.get::<_, Option<uuid::Uuid>>("claim_token").map(ClaimToken);
            let token = match token {
                Some(token) => token,
                None => self.claimed(id).await.token,
            };
            self.ended(id, token, Outcome::Completed { result: json!({}) }).await;
        }
    }

    async fn enqueued(&self, task: NewTask) -> TaskId {
        self.store.enqueue(task).await.expect("enqueued").task_id
    }

    async fn started(&self, name: &str) -> Attempt {
        let id = self.enqueued(task(name)).await;
        self.claimed(id).await
    }

    async fn claimed(&self, id: TaskId) -> Attempt {
        match self.store.claim(id, ClaimToken::new(), self.worker).await.expect("asked") {
            Claim::Run(attempt) => *attempt,
            other => panic!("not claimed: {other:?}"),
        }
    }

    async fn end(&self, attempt: &Attempt, outcome: Outcome) {
        self.ended(attempt.task_id, attempt.token, outcome).await;
    }

    async fn ended(&self, task: TaskId, token: ClaimToken, outcome: Outcome) {
        let completion = Completion { task, token, traceparent: None, outcome };
        let recorded = self.store.record(&completion).await.expect("recorded");
        assert!(recorded.state.is_some(), "fenced");
    }

    async fn call(&self, attempt: &Attempt, call_no: u32, end: CallEnd) {
        let id = uuid::Uuid::new_v4();
        let call = NewCall {
            id,
            call_no,
            request_hash: b"question".to_vec(),
            endpoint: "model:80".to_owned(),
            model: "m".to_owned(),
            traceparent: None,
            est_tokens: 10,
            est_cost_micro: Some(100),
        };
        let at = CallStart { task: attempt.task_id, token: attempt.token, step: "ask" };
        let admitted = self.store.call_admit(at, &call).await.expect("asked");
        assert!(matches!(admitted, Admission::Granted), "{admitted:?}");
        self.store.call_ended(id, &end).await.expect("ended");
    }

    async fn letter_of(&self, task: TaskId) -> i64 {
        let sql = "SELECT id FROM dead_letters WHERE task_id = $1 AND resolved_at IS NULL";
        let client = self.database.client().await;
        client.query_one(sql, &[&task.0]).await.expect("a letter").get(0)
    }
}

/// The name tells the tasks apart.
fn task(name: &str) -> NewTask {
    NewTask { name: name.to_owned(), ..NewTask::ad_hoc("http_call", POOL, json!({})) }
}

fn failure(message: &str) -> Failure {
    Failure::new(ErrorClass::Retryable, message)
}

fn tick(planned_at: DateTime<Utc>, key: &str, overlap: Overlap) -> TickInput {
    TickInput {
        schedule: "sync".to_owned(),
        planned_at,
        run: true,
        first_at: None,
        count: 1,
        task_id: TaskId::new(),
        execution_key: key.to_owned(),
        task_type: "http_call".to_owned(),
        pool: POOL.to_owned(),
        payload: Value::Null,
        timeout: Duration::from_mins(1),
        retry: RetryPolicy::default(),
        semantics: Semantics::AtLeastOnce,
        overlap,
        traceparent: None,
        paused: false,
        delay: Duration::ZERO,
        deadline: None,
        priority: Priority::Normal,
    }
}
