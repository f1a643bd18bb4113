//! A running task with a schedule, whose calls race for quotas.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use shared::domain::attempt::Attempt;
use shared::domain::quota::{Limits, Quota, Reason, Scope};
use shared::store::{
    Admission, CallEnd, CallStart, Closing, Denial, Error, NewCall, QuotaRow, Store, StoreOptions,
};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::house::House;

/// For a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many ask at once.
pub const RACERS: usize = 40;

/// Time does not pass until it is moved.
const STOP_THE_CLOCK: &str = "DO $$ BEGIN EXECUTE format(
    'CREATE OR REPLACE FUNCTION belfry_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS %L',
    format('SELECT %L::timestamptz', belfry_now())); END $$";

pub struct Fleet {
    pub house: House,
    pub store: Store,
    pub attempt: Box<Attempt>,
    pub client: Client,
    calls: AtomicU32,
}

impl Fleet {
    /// With the clock stopped, and one task of the schedule `s` running.
    pub async fn open() -> Self {
        Self::with_connections(4).await
    }

    /// The same, for so many racers.
    pub async fn with_connections(pool_size: usize) -> Self {
        let house = House::open().await;
        let options = StoreOptions { pool_size, ..house.database.options() };
        let store = Store::open(&options).expect("a valid connection string");
        let client = house.database.client().await;
        client.batch_execute(STOP_THE_CLOCK).await.expect("the clock stops");
        let worker = house.worker().await;
        let task = house.given(|task| task.timeout = Duration::from_hours(24 * 365)).await;
        let sql = "UPDATE tasks SET schedule = 's' WHERE id = $1";
        client.execute(sql, &[&task.0]).await.expect("a schedule's task");
        let attempt = house.claimed(task, worker).await;
        Self { house, store, attempt, client, calls: AtomicU32::new(0) }
    }

    /// Stops the clock at an instant.
    pub async fn at(&self, instant: &str) {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION belfry_now() RETURNS timestamptz LANGUAGE sql VOLATILE \
             AS $$ SELECT '{instant}'::timestamptz $$"
        );
        self.client.batch_execute(&sql).await.expect(instant);
    }

    /// Moves the stopped clock on.
    pub async fn pass(&self, time: Duration) {
        let sql = format!(
            "DO $do$ BEGIN EXECUTE format('CREATE OR REPLACE FUNCTION belfry_now() RETURNS timestamptz \
             LANGUAGE sql VOLATILE AS %L', format('SELECT %L::timestamptz', \
             belfry_now() + interval '{} milliseconds')); END $do$",
            time.as_millis()
        );
        self.client.batch_execute(&sql).await.expect("the clock moves");
    }

    /// The file says so of a model or schedule that is known to answer.
    pub async fn limit(&self, scope: Scope, name: &str, limits: Limits) {
        let quota = Quota { scope, name: name.to_owned(), limits };
        self.store.apply_quotas(&[quota], &[]).await.expect("applied");
        let sql = "UPDATE llm_quotas SET untried_until = '-infinity' WHERE name = $1";
        self.client.execute(sql, &[&name]).await.expect("known to answer");
    }

    /// A call of 10 tokens and 100 millionths.
    pub fn call(&self, model: &str) -> NewCall {
        NewCall {
            id: Uuid::new_v4(),
            call_no: self.calls.fetch_add(1, Ordering::Relaxed) + 1,
            request_hash: b"question".to_vec(),
            endpoint: "h:1".to_owned(),
            model: model.to_owned(),
            traceparent: None,
            est_tokens: 10,
            est_cost_micro: Some(100),
        }
    }

    /// Asks to be let in.
    pub async fn admit(&self, call: &NewCall) -> Admission {
        let at = CallStart { task: self.attempt.task_id, token: self.attempt.token, step: "ask" };
        patiently(|| self.store.call_admit(at, call)).await
    }

    /// Is let in; answers the call's id.
    #[track_caller]
    pub fn granted(&self, model: &str) -> impl Future<Output = Uuid> {
        let call = self.call(model);
        let caller = std::panic::Location::caller();
        async move {
            match self.admit(&call).await {
                Admission::Granted => call.id,
                other => panic!("{caller}: {other:?}"),
            }
        }
    }

    /// Is not let in; answers why and for how long.
    #[track_caller]
    pub fn denied(&self, model: &str) -> impl Future<Output = Denial> {
        let call = self.call(model);
        let caller = std::panic::Location::caller();
        async move {
            match self.admit(&call).await {
                Admission::Denied(denial) => denial,
                other => panic!("{caller}: {other:?}"),
            }
        }
    }

    /// Many at once; answers how many were let in.
    pub async fn race(&self, model: &str) -> usize {
        let calls: Vec<NewCall> = (0..RACERS).map(|_| self.call(model)).collect();
        let answers = futures::future::join_all(calls.iter().map(|call| self.admit(call))).await;
        answers.iter().filter(|answer| matches!(answer, Admission::Granted)).count()
    }

    /// A call is answered, with so many tokens in and so many millionths.
    pub async fn answered(&self, call: Uuid, tokens: i64, cost: i64) {
        let end = CallEnd {
            response: Some(json!({})),
            input_tokens: Some(tokens),
            output_tokens: Some(0),
            cost_micro: Some(cost),
            ..CallEnd::default()
        };
        patiently(|| self.store.call_ended(call, &end)).await;
    }

    /// A call failed, and this is what that says about the model.
    pub async fn failed(&self, call: Uuid, class: &str, closes: Option<Closing>) {
        let class = class.parse().expect("a class");
        let failure = shared::domain::outcome::Failure::new(class, "slow down");
        let end = CallEnd { failure: Some(failure), closes, ..CallEnd::default() };
        patiently(|| self.store.call_ended(call, &end)).await;
    }

    /// What is left of a quota.
    pub async fn quota(&self, name: &str) -> QuotaRow {
        let all = self.store.quotas().await.expect("read");
        all.into_iter().find(|quota| quota.name == name).expect("a quota")
    }
}

/// As the workers do: a statement that a loaded machine did not answer in time is repeated.
pub async fn patiently<T, F, Fut>(ask: F) -> T
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    let began = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if error.is_outage() && began.elapsed() < PATIENCE => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The reason and the wait in milliseconds.
pub fn told(denial: &Denial) -> (Reason, u64) {
    (denial.reason, u64::try_from(denial.wait.as_millis()).expect("a wait"))
}
