//! Handlers that block their thread and do not end when they are told to.

mod house;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use house::House;
use serde_json::{Value, json};
use shared::domain::outcome::TaskError;
use shared::domain::task::{TaskId, TaskState};
use shared::testing::eventually;
use worker::context::Context;
use worker::handler::{Handler, Handlers};
use worker::places::SlotsLost;

/// Computes until it is let go, or waits for ever as a handler should.
struct Stubborn(&'static AtomicBool);

#[async_trait]
impl Handler for Stubborn {
    fn task_type(&self) -> &'static str {
        "fixture"
    }

    fn summary(&self) -> &'static str {
        "does not end"
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    fn check(&self, _payload: &Value) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, _context: &Context, payload: Value) -> Result<Value, TaskError> {
        while payload["spin"] == json!(true) && !self.0.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
        std::future::pending().await
    }
}

async fn spinner(house: &House) -> TaskId {
    let change = |task: &mut shared::domain::task::NewTask| {
        task.timeout = Duration::from_millis(300);
        task.retry.max_retry = 0;
    };
    house.given(json!({"spin": true}), change).await
}

async fn running(house: &House, n: i64) {
    let client = house.database.client().await;
    eventually(&format!("{n} run"), async || {
        let sql = "SELECT count(*) FROM tasks WHERE state = 'running'";
        let row = client.query_one(sql, &[]).await.expect(sql);
        (row.get::<_, i64>(0) == n).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_whose_handler_blocks_is_not_given_to_another_until_it_returns() {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let house = House::open(Handlers::new().with(Stubborn(&ENOUGH)), "").await;
    let spinning = spinner(&house).await;
    let row = house.ended(spinning, TaskState::Dead).await;
    assert_eq!(row.summary.error_class.as_deref(), Some("timeout"));

    // Four slots, one lost: three of five run, and when one ends, it is three again.
    let mut given = Vec::new();
    for _ in 0..5 {
        given.push(house.given(json!({}), |_| ()).await);
    }
    running(&house, 3).await;
    house.store.cancel(given[0]).await.expect("asked");
    house.ended(given[0], TaskState::Cancelled).await;
    house.ended(given[3], TaskState::Running).await;
    running(&house, 3).await;
    assert_eq!(house.store.task(given[4]).await.expect("read").expect("a task").summary.run, 0);

    ENOUGH.store(true, Ordering::SeqCst);
    running(&house, 4).await;
    for task in &given[1..] {
        house.store.cancel(*task).await.expect("asked");
        house.ended(*task, TaskState::Cancelled).await;
    }
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_has_lost_half_its_slots_drains_and_asks_to_be_started_anew() {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let house = House::open(Handlers::new().with(Stubborn(&ENOUGH)), "").await;
    let given = [spinner(&house).await, spinner(&house).await];

    let end = tokio::time::timeout(Duration::from_secs(20), house.serving).await;
    ENOUGH.store(true, Ordering::SeqCst);

    let error = end.expect("in time").expect("no panic").expect_err("not a clean end");
    assert!(error.is::<SlotsLost>(), "{error:#}");
    for task in given {
        let row = house.store.task(task).await.expect("read").expect("a task");
        assert_eq!(row.summary.state, TaskState::Dead);
    }
}
