//! Writes made with the completion: committed with it or not at all, whatever dies in between.

mod house;

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use house::House;
use serde_json::{Value, json};
use shared::domain::outcome::TaskError;
use shared::domain::task::{NewTask, TaskState};
use shared::testing::eventually;
use worker::context::Context;
use worker::handler::{Handler, Handlers};

/// Books an order and asks for its parcel, all in the completing transaction.
struct Booking;

static ROUNDS: AtomicU32 = AtomicU32::new(0);

#[async_trait]
impl Handler for Booking {
    fn task_type(&self) -> &'static str {
        "fixture"
    }

    fn summary(&self) -> &'static str {
        "books an order"
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    fn check(&self, _payload: &Value) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, context: &Context, payload: Value) -> Result<Value, TaskError> {
        let Some(order) = payload["order"].as_str() else { return Ok(json!("packed")) };
        let crashing = payload["crash"] == json!(true) && context.run == 1;
        let done = context
            .complete_in(|tx| async move {
                ROUNDS.fetch_add(1, Ordering::SeqCst);
                tx.execute("INSERT INTO orders (id) VALUES ($1)", &[&order]).await?;
                let parcel = NewTask::ad_hoc("fixture", "io_pool", json!({"parcel": order}));
                tx.enqueue(&[parcel]).await?;
                assert!(!crashing, "as asked");
                Ok(json!({ "booked": order }))
            })
            .await?;
        match payload["then"].as_str() {
            // What is committed is committed, whatever comes after it.
            Some("fail") => Err(TaskError::permanent("too late")),
            Some("panic") => panic!("too late"),
            _ => Ok(done),
        }
    }
}

/// Its transactions die at their first commit, and only there.
const FRAGILE: &str = "
    CREATE SEQUENCE kills;
    CREATE FUNCTION kill_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('kills') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER fragile AFTER INSERT ON orders
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION kill_first();
";

async fn open() -> House {
    let house = House::open(Handlers::new().with(Booking), "").await;
    let orders = "CREATE TABLE orders (id text NOT NULL)";
    house.database.client().await.batch_execute(orders).await.expect("a table");
    house
}

async fn count(house: &House, sql: &str) -> i64 {
    house.database.client().await.query_one(sql, &[]).await.expect(sql).get(0)
}

const ORDERS: &str = "SELECT count(*) FROM orders";
const PARCELS: &str = "SELECT count(*) FROM task_inputs WHERE payload ? 'parcel'";

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_follow_ups_are_there_once_though_the_handler_crashed_and_ran_again() {
    let house = open().await;

    let task = house.given(json!({"order": "a", "crash": true}), |_| ()).await;

    let row = house.ended(task, TaskState::Completed).await;
    assert_eq!(row.result, Some(json!({"booked": "a"})));
    let outcomes: Vec<_> = row.attempts.iter().map(|a| a["outcome"].clone()).collect();
    assert_eq!(outcomes, ["retry", "completed"]);
    assert_eq!((count(&house, ORDERS).await, count(&house, PARCELS).await), (1, 1));
    let packed = "SELECT count(*) FROM task_results WHERE result = '\"packed\"'";
    eventually("the follow-up ran", async || (count(&house, packed).await == 1).then_some(()))
        .await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_stands_whatever_the_handler_returns_after_it() {
    let house = open().await;
    for (n, then) in ["fail", "panic"].into_iter().enumerate() {
        let task = house.given(json!({"order": then, "then": then}), |_| ()).await;

        let row = house.ended(task, TaskState::Completed).await;

        assert_eq!(row.result, Some(json!({ "booked": then })));
        assert_eq!(row.attempts.len(), 1);
        assert_eq!(count(&house, ORDERS).await, n as i64 + 1);
    }
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_dies_at_the_commit_costs_another_round_and_no_failure() {
    let house = open().await;
    house.database.client().await.batch_execute(FRAGILE).await.expect("a trigger");
    let before = ROUNDS.load(Ordering::SeqCst);

    let task = house.given(json!({"order": "fragile"}), |_| ()).await;

    let row = house.ended(task, TaskState::Completed).await;
    assert_eq!((row.summary.failures, row.attempts.len()), (0, 1));
    assert!(ROUNDS.load(Ordering::SeqCst) - before >= 2, "the first commit was not killed");
    assert_eq!((count(&house, ORDERS).await, count(&house, PARCELS).await), (1, 1));
    house.close().await;
}
