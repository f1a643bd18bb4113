//! A task's whole way through a real broker and a real database, with a worker that is embedded as
//! a Rust user would: a handler of their own beside the house's.

mod house;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use house::House;
use serde_json::{Value, json};
use shared::broker::{Header, Operator, Properties, Publisher};
use shared::domain::outcome::TaskError;
use shared::domain::task::{Due, TaskId, TaskState};
use shared::store::DeadFilter;
use shared::testing::{PATIENCE, eventually};
use worker::context::Context;
use worker::handler::{Handler, Handlers};

/// Does what its payload says.
struct Fixture;

static RUNS: AtomicU32 = AtomicU32::new(0);

#[async_trait]
impl Handler for Fixture {
    fn task_type(&self) -> &'static str {
        "fixture"
    }

    fn summary(&self) -> &'static str {
        "does what its payload says"
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    fn check(&self, _payload: &Value) -> Result<(), String> {
        Ok(())
    }

    async fn run(&self, context: &Context, payload: Value) -> Result<Value, TaskError> {
        RUNS.fetch_add(1, Ordering::SeqCst);
        let failing = payload["fail_times"].as_u64().unwrap_or(0);
        if u64::from(context.run) <= failing {
            return Err(TaskError::retry("as asked"));
        }
        match payload["do"].as_str() {
            Some("permanent") => Err(TaskError::permanent("no")),
            Some("panic") => panic!("as asked"),
            Some("hang") => {
                context.cancelled().await;
                std::future::pending().await
            }
            Some("step") => {
                let n: u64 = context.step("count", &json!(1), async { Ok(7) }).await?;
                context.progress(n, 0).await?;
                Ok(json!({ "n": n }))
            }
            _ => Ok(json!({"run": context.run})),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_goes_from_its_row_to_its_result() {
    let house = House::open(Handlers::new().with(Fixture), "").await;

    let plain = house.given(json!({}), |_| ()).await;
    let step = house.given(json!({"do": "step"}), |_| ()).await;

    let row = house.ended(plain, TaskState::Completed).await;
    assert_eq!(row.result, Some(json!({"run": 1})));
    let row = house.ended(step, TaskState::Completed).await;
    assert_eq!(row.progress.expect("told").done, 7);
    assert_eq!(row.steps[0]["name"], "count");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_task_comes_back_through_the_delay_queues_and_works() {
    let house = House::open(Handlers::new().with(Fixture), "").await;

    let task = house.given(json!({"fail_times": 2}), |_| ()).await;

    let row = house.ended(task, TaskState::Completed).await;
    let outcomes: Vec<_> = row.attempts.iter().map(|a| a["outcome"].clone()).collect();
    assert_eq!(outcomes, ["retry", "retry", "completed"]);
    assert_eq!(row.summary.failures, 2);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_given_up_is_a_dead_letter_in_table_and_queue_and_works_after_its_replay() {
    let house = House::open(Handlers::new().with(Fixture), "").await;
    let task = house.given(json!({"fail_times": 1}), |task| task.retry.max_retry = 0).await;
    let panicking = house.given(json!({"do": "panic"}), |task| task.retry.max_retry = 0).await;
    house.ended(task, TaskState::Dead).await;
    let row = house.ended(panicking, TaskState::Dead).await;
    assert!(row.summary.error_message.expect("a reason").contains("panicked: as asked"));

    let operator = Operator::connect(&house.settings).await.expect("a broker");
    eventually("both copies are in the dead queue", async || {
        (operator.depth(&house.topology.dead()).await.ok()? == Some(2)).then_some(())
    })
    .await;
    operator.close().await;
    let letters = house.store.dead_letters(&DeadFilter::default(), 10).await.expect("read");
    let letter = letters.iter().find(|l| l.task_id == Some(task.0)).expect("a letter");
    house.store.replay(letter.id, "test").await.expect("replayed");
    house.relay.publish_now(&[task]).await.expect("published");

    house.ended(task, TaskState::Completed).await;
    house.close().await;
}

/// "Move messages", by the shovel: the copy comes with its headers, and by the default exchange.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_moved_by_hand_replays_its_own_task_once() {
    let house = House::open(Handlers::new().with(Fixture), "").await;
    let dying = |payload| house.given(payload, |task| task.retry.max_retry = 0);
    let task = dying(json!({"fail_times": 2})).await;
    let other = dying(json!({"do": "permanent"})).await;
    house.ended(task, TaskState::Dead).await;
    house.ended(other, TaskState::Dead).await;
    let letter_of = async |task: TaskId| {
        let letters = house.store.dead_letters(&DeadFilter::default(), 10).await.expect("read");
        letters.into_iter().find(|l| l.task_id == Some(task.0))
    };
    let letter = letter_of(task).await.expect("a letter");
    let others = letter_of(other).await.expect("a letter").id;
    let publisher = Publisher::start(&house.settings, &house.topology, &house.shutdown);
    let publisher = publisher.expect("a valid URL");
    publisher.ready(PATIENCE).await.expect("a publishing connection");
    let moved = async |letter: i64| {
        let body = json!({"task_id": task}).to_string();
        let headers = vec![("dead-letter".to_owned(), Header::Number(letter))];
        let properties = Properties { headers, ..Properties::default() };
        let queue = house.topology.pool_queue("io_pool");
        let sent = publisher.publish_raw("", &queue, body.as_bytes(), &properties).await;
        sent.expect("confirmed");
    };
    let runs_are = async |count: usize| {
        eventually(&format!("{count} attempts"), async || {
            let row = house.store.task(task).await.expect("read").expect("a task");
            (row.attempts.len() == count && row.summary.state.is_finished()).then_some(())
        })
        .await;
    };

    moved(others).await;
    moved(letter.id).await;
    runs_are(2).await;
    moved(letter.id).await;
    let second = letter_of(task).await.expect("it died again").id;
    moved(second).await;
    runs_are(3).await;

    let row = house.ended(task, TaskState::Completed).await;
    assert_eq!(row.attempts.len(), 3, "the first letter's copy was acked, not run");
    let all = DeadFilter { all: true, id: Some(letter.id), ..DeadFilter::default() };
    let first = house.store.dead_letters(&all, 1).await.expect("read").remove(0);
    assert_eq!(first.resolution.as_deref(), Some("replayed"));
    assert_eq!(first.resolved_by.as_deref(), Some("moved by hand in RabbitMQ"));
    assert!(letter_of(other).await.is_some(), "another task's letter stays open");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_handler_is_ended_by_its_timeout_and_a_running_one_by_a_cancel() {
    let house = House::open(Handlers::new().with(Fixture), "").await;
    let hanging = house
        .given(json!({"do": "hang"}), |task| {
            task.timeout = Duration::from_millis(300);
            task.retry.max_retry = 0;
        })
        .await;
    let cancelled = house.given(json!({"do": "hang"}), |_| ()).await;

    let row = house.ended(hanging, TaskState::Dead).await;
    assert_eq!(row.summary.error_class.as_deref(), Some("timeout"));
    house.ended(cancelled, TaskState::Running).await;
    house.store.cancel(cancelled).await.expect("asked");
    house.ended(cancelled, TaskState::Cancelled).await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_task_is_never_early() {
    let house = House::open(Handlers::new().with(Fixture), "").await;
    let delay = Due::In(Duration::from_millis(1500));

    let task = house.given(json!({}), |task| task.due = delay).await;

    let row = house.ended(task, TaskState::Completed).await;
    let started: chrono::DateTime<chrono::Utc> =
        serde_json::from_value(row.attempts[0]["started_at"].clone()).expect("a time");
    assert!(started >= row.summary.due_at, "{started} < {}", row.summary.due_at);
    house.close().await;
}

/// Longer than a session waits for a lock.
const BEYOND_THE_LOCKS: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_cannot_be_kept_now_is_kept_later_and_is_no_failure() {
    let house = House::open(Handlers::new().with(Fixture), "").await;
    let client = house.database.client().await;
    let lock = "BEGIN; LOCK TABLE steps IN ACCESS EXCLUSIVE MODE";
    client.batch_execute(lock).await.expect("locked");

    let task = house.given(json!({"do": "step"}), |_| ()).await;
    house.ended(task, TaskState::Running).await;
    tokio::time::sleep(BEYOND_THE_LOCKS).await; // time itself is under test
    assert_eq!(house.store.task(task).await.expect("read").expect("a task").summary.failures, 0);
    client.batch_execute("COMMIT").await.expect("unlocked");

    let row = house.ended(task, TaskState::Completed).await;
    assert_eq!(row.attempts.len(), 1);
    assert_eq!(row.steps[0]["name"], "count");
    house.close().await;
}
