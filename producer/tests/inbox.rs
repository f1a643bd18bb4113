//! Requests on the broker: what becomes a task, what becomes a dead letter, and what survives.
#![expect(dead_code, reason = "house and tower serve several stories")]

mod house;
mod tower;

use serde_json::{Value, json};
use shared::broker::{Header, Properties};
use shared::domain::task::TaskId;
use shared::store::{TaskFilter, TaskSummary};
use shared::testing::eventually;

use house::TRACE;
use tower::Tower;

fn with_id(id: &str) -> Properties {
    Properties { message_id: Some(id.to_owned()), ..Properties::default() }
}

async fn tasks(tower: &Tower, count: usize) -> Vec<TaskSummary> {
    eventually(&format!("{count} tasks"), async || {
        let tasks = tower.house.store.tasks(&TaskFilter::default(), 10_000).await.ok()?;
        (tasks.len() == count).then_some(tasks)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_typed_into_the_ui_becomes_a_task_with_a_message() {
    let tower = Tower::open().await;
    let _producer = tower.producer("producer.log");

    tower.ask(r#"{"type": "mine", "payload": {"n": 1}}"#, Properties::default()).await;

    let task = tasks(&tower, 1).await.remove(0);
    assert_eq!(task.execution_key, task.task_id.to_string());
    tower.has(&tower.house.topology.pool_queue("io_pool"), 1).await;
    tower.has(&tower.house.topology.inbox(), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_says_all_that_publish_can_say() {
    let tower = Tower::open().await;
    let _producer = tower.producer("producer.log");
    let request = json!({
        "type": "mine", "payload": {"n": 1}, "key": "k-1", "name": "orders", "delay": "2h",
        "timeout": 60, "max_retry": 1,
    });
    let trace = ("traceparent".to_owned(), Header::Text(TRACE.to_owned()));
    let properties = Properties { headers: vec![trace], ..with_id("not the key") };

    tower.ask(&request.to_string(), properties).await;

    let task = tasks(&tower, 1).await.remove(0);
    assert_eq!((task.name.as_str(), task.execution_key.as_str()), ("orders", "k-1"));
    assert_eq!(task.state.as_str(), "scheduled");
    let row = tower.house.store.task(TaskId(task.task_id)).await.expect("read").expect("a task");
    assert_eq!(row.payload, json!({"n": 1}));
    let made_in = row.traceparent.expect("a context");
    assert_eq!(made_in[3..35], TRACE[3..35], "the sender's trace goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_comes_again_is_known_by_its_id() {
    let tower = Tower::open().await;
    let _producer = tower.producer("producer.log");
    let request = |n: u8| json!({"type": "mine", "payload": {"n": n}}).to_string();

    for _ in 0..3 {
        tower.ask(&request(1), with_id("order-7")).await;
    }
    tower.ask(&request(2), with_id("order-7")).await;

    let letter = tower.letters(1).await.remove(0);
    assert!(letter.error_message.starts_with("key_reused_with_other_payload"), "{letter:?}");
    let tasks = tasks(&tower, 1).await;
    assert_eq!(tasks[0].execution_key, "order-7");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_a_dead_letter_with_the_reason() {
    let tower = Tower::open().await;
    let _producer = tower.producer("producer.log");
    let large = json!({"type": "mine", "payload": "x".repeat(300 * 1024)}).to_string();
    let deep = format!("{{\"type\":\"mine\",\"payload\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    let pointer = json!({"task_id": TaskId::new()}).to_string();
    let wrong: [(&str, &str); 12] = [
        ("hello", "invalid request: one JSON object is wanted"),
        (r#"["mine", {}]"#, "invalid request: one JSON object is wanted"),
        (r#"{"payload": {}}"#, "invalid request: missing field `type`"),
        (r#"{"type": "mine", "paylod": {}}"#, "invalid request: unknown field `paylod`"),
        (
            r#"{"type": "mine", "max_retry": "3"}"#,
            "invalid request: max_retry: invalid type: string",
        ),
        (r#"{"type": "mine", "delay": "soon"}"#, "invalid request: delay: expected"),
        (r#"{"type": "nobody"}"#, "invalid request: no pool takes the task type \"nobody\""),
        (r#"{"type": "http_call"}"#, "invalid request: payload of http_call: missing field `url`"),
        (
            r#"{"type": "mine", "payload": "a\u0000"}"#,
            "invalid request: the payload contains a NUL",
        ),
        (&deep, "invalid request: payload: recursion limit exceeded"),
        (&large, "the request has 307"),
        (&pointer, "this is the message of a task"),
    ];

    for (body, _) in &wrong {
        tower.ask(body, Properties::default()).await;
    }

    let letters = tower.letters(wrong.len()).await;
    let dead = tower.house.topology.dead();
    tower.has(&dead, u32::try_from(wrong.len()).expect("few")).await;
    for copy in tower.taken(dead, wrong.len()).await {
        let (_, reason) = wrong.iter().find(|(body, _)| *body == copy.body).expect("one of them");
        let error = copy.error.expect("a reason");
        assert!(error.starts_with(reason), "{error:?}, not {reason:?}");
        let letter = letters.iter().find(|letter| Some(letter.id) == copy.letter).expect("a row");
        assert_eq!(letter.error_class, "invalid");
        assert!(letter.error_message.starts_with(reason), "{letter:?}");
    }
    tower.has(&tower.house.topology.inbox(), 0).await;
    assert!(tasks(&tower, 0).await.is_empty());
}

/// Both producers are killed at moments that they do not choose, with requests in hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_killed_with_requests_in_hand_loses_and_doubles_none() {
    const REQUESTS: usize = 1500;
    let tower = Tower::open().await;
    for n in 0..REQUESTS {
        let body = json!({"type": "mine", "payload": {"n": n}}).to_string();
        tower.ask(&body, with_id(&format!("order-{n}"))).await;
    }

    let mut killed_amid = 0;
    for round in 0..4 {
        let producer = tower.producer(&format!("killed-{round}.log"));
        let before = count(&tower).await;
        eventually("it has taken some", async || (count(&tower).await > before).then_some(()))
            .await;
        producer.kill();
        killed_amid += usize::from(count(&tower).await < REQUESTS);
        if count(&tower).await == REQUESTS {
            break;
        }
    }
    let _producer = tower.producer("last.log");

    tower.has(&tower.house.topology.inbox(), 0).await;
    let tasks = tasks(&tower, REQUESTS).await;
    let mut keys: Vec<_> = tasks.iter().map(|task| task.execution_key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), REQUESTS);
    assert!(killed_amid > 0, "none was killed with requests left");
    assert!(tower.letters(0).await.is_empty());
}

async fn count(tower: &Tower) -> usize {
    tower.house.store.tasks(&TaskFilter::default(), 10_000).await.expect("read").len()
}

/// Such a value is a gap in the checks before it. It must not hold up the requests beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_the_database_refuses_is_the_end_of_its_own_request() {
    let tower = Tower::open().await;
    let database = tower.house.database.client().await;
    let rule = "ALTER TABLE task_inputs ADD CONSTRAINT cursed CHECK (name <> 'cursed')";
    database.batch_execute(rule).await.expect("a rule");
    for name in ["orders", "cursed", "invoices"] {
        let request = json!({"type": "mine", "name": name}).to_string();
        tower.ask(&request, with_id(name)).await;
    }

    let _producer = tower.producer("producer.log");

    let letter = tower.letters(1).await.remove(0);
    assert!(letter.error_message.contains("cursed"), "{letter:?}");
    tasks(&tower, 2).await;
    tower.has(&tower.house.topology.inbox(), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_held_while_the_database_refuses_and_is_kept_afterwards() {
    let tower = Tower::open().await;
    let producer = tower.producer("producer.log");
    let database = tower.house.database.client().await;
    tower.ask(r#"{"type": "mine"}"#, with_id("first")).await;
    tasks(&tower, 1).await;

    database.batch_execute("ALTER TABLE execution_keys RENAME TO away").await.expect("away");
    tower.ask(r#"{"type": "mine"}"#, with_id("second")).await;
    producer.says("the inbox waits for the database").await;
    tower.ask(r#"{"type": "mine"}"#, with_id("third")).await;
    tower.has(&tower.house.topology.inbox(), 1).await;
    database.batch_execute("ALTER TABLE away RENAME TO execution_keys").await.expect("back");

    let keys: Vec<Value> =
        tasks(&tower, 3).await.iter().map(|task| json!(task.execution_key)).collect();
    assert!(keys.contains(&json!("second")) && keys.contains(&json!("third")), "{keys:?}");
    producer.says("the inbox is read again").await;
    assert!(tower.letters(0).await.is_empty());
}
