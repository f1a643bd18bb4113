//! A task one crash short of the limit runs alone in its worker.

mod house;

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use house::House;
use serde_json::{Value, json};
use shared::domain::outcome::TaskError;
use shared::domain::task::{TaskId, TaskState};
use shared::testing::eventually;
use tokio::sync::Semaphore;
use worker::context::Context;
use worker::handler::{Handler, Handlers};

/// Notes who is at work, and waits for leave to end where its payload says so.
#[derive(Default)]
struct Worked;

static DIARY: Mutex<Vec<String>> = Mutex::new(Vec::new());
static LEAVE: Semaphore = Semaphore::const_new(0);

fn note(what: String) {
    DIARY.lock().expect("no panic").push(what);
}

fn diary() -> Vec<String> {
    DIARY.lock().expect("no panic").clone()
}

#[async_trait]
impl Handler for Worked {
    fn task_type(&self) -> &'static str {
        "fixture"
    }

    fn summary(&self) -> &'static str {
        "notes when it runs"
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    fn check(&self, _payload: &Value) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, _context: &Context, payload: Value) -> Result<Value, TaskError> {
        let name = payload["name"].as_str().unwrap_or_default();
        note(format!("{name} begins"));
        if payload["waits"] == json!(true) {
            LEAVE.acquire().await.expect("never closed").forget();
        }
        note(format!("{name} ends"));
        Ok(Value::Null)
    }
}

/// A task that has killed its worker so often, as the rescues left it.
async fn crashed(house: &House, name: &str, crashes: i32) -> TaskId {
    let delay = shared::domain::task::Due::In(Duration::from_secs(3600));
    let task = house.given(json!({ "name": name, "waits": true }), |task| task.due = delay).await;
    let sql =
        "UPDATE tasks SET crashes = $2, due_at = belfry_now(), published_at = NULL WHERE id = $1";
    let client = house.database.client().await;
    client.execute(sql, &[&task.0, &crashes]).await.expect("crashed");
    house.relay.publish_now(&[task]).await.expect("published");
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_drain_first_and_no_new_one_starts_until_it_has_ended() {
    let house = House::open(Handlers::new().with(Worked), "").await;
    let waits = |name: &str| json!({"name": name, "waits": true});
    let neighbour = house.given(waits("neighbour"), |_| ()).await;
    // One crash leaves room for another: it needs no quiet.
    let harmless = crashed(&house, "harmless", 1).await;
    eventually("both run", async || (diary().len() == 2).then_some(())).await;

    let suspect = crashed(&house, "suspect", 2).await;
    house.ended(suspect, TaskState::Running).await;
    let late = house.given(json!({"name": "late"}), |_| ()).await;
    LEAVE.add_permits(1);
    eventually("one has ended", async || (diary().len() == 3).then_some(())).await;
    assert!(!diary().contains(&"suspect begins".to_owned()), "{:?}", diary());
    LEAVE.add_permits(1);
    eventually("it begins", async || diary().contains(&"suspect begins".to_owned()).then_some(()))
        .await;
    LEAVE.add_permits(1);

    for task in [neighbour, harmless, suspect, late] {
        let row = house.ended(task, TaskState::Completed).await;
        assert_eq!(row.attempts.len(), 1, "nothing was given back");
    }
    let end = &diary()[4..];
    assert_eq!(end, ["suspect begins", "suspect ends", "late begins", "late ends"]);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_waits_too_long_is_given_back_at_no_cost_and_the_others_go_on() {
    let house = House::open(Handlers::new().with(Hanging), "").await;
    let neighbour = house.given(json!({}), |_| ()).await;
    house.ended(neighbour, TaskState::Running).await;
    let delay = shared::domain::task::Due::In(Duration::from_secs(3600));

    // Its own time bounds its patience: 5 s here.
    let suspect = house
        .given(json!({}), |task| {
            task.due = delay;
            task.timeout = Duration::from_millis(1);
        })
        .await;
    let sql =
        "UPDATE tasks SET crashes = 2, due_at = belfry_now(), published_at = NULL WHERE id = $1";
    house.database.client().await.execute(sql, &[&suspect.0]).await.expect("crashed");
    house.relay.publish_now(&[suspect]).await.expect("published");

    let row = eventually("it is given back", async || {
        let row = house.store.task(suspect).await.expect("read").expect("a task");
        row.attempts.first().is_some_and(|a| a["outcome"] == "snooze").then_some(row)
    })
    .await;
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 2));
    let next = house.given(json!({}), |_| ()).await;
    house.ended(next, TaskState::Running).await;
    for task in [neighbour, next, suspect] {
        house.store.cancel(task).await.expect("asked");
        house.ended(task, TaskState::Cancelled).await;
    }
    house.close().await;
}

/// Runs until it is cancelled.
struct Hanging;

#[async_trait]
impl Handler for Hanging {
    fn task_type(&self) -> &'static str {
        "fixture"
    }

    fn summary(&self) -> &'static str {
        "hangs"
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    fn check(&self, _payload: &Value) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, _context: &Context, _payload: Value) -> Result<Value, TaskError> {
        std::future::pending().await
    }
}
