//! `producer publish`: one task and many, against real services.

mod house;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shared::domain::outcome::Outcome;
use shared::domain::task::{TaskId, TaskState};
use shared::store::TaskFilter;

use house::{House, TRACE, keys, run};

/// A broker that nobody runs.
const NOBODY: &str = "amqp://127.0.0.1:1";

fn id_of(document: &Value) -> TaskId {
    document["task_id"].as_str().expect("an id").parse().expect("a UUID")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_task_is_committed_and_on_the_broker() {
    let house = House::open().await.with_broker().await;

    let args = ["publish", "http_call", "--payload", r#"{"url":"https://x.example/"}"#, "--json"];
    let said = house.producer(&args).with(0);

    let document = said.json();
    let wanted = ["deduplicated", "execution_key", "name", "state", "task_id"];
    assert_eq!(keys(&document), wanted);
    assert_eq!(document["state"], "queued");
    assert_eq!(document["execution_key"], document["task_id"]);
    let task = house.store.task(id_of(&document)).await.expect("read").expect("a task");
    assert!(task.published_at.is_some(), "{task:?} {}", said.err);
    assert_eq!(house.depth(&house.topology.pool_queue("io_pool")).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_task_waits_on_the_broker_up_to_an_hour_and_in_postgres_beyond() {
    let house = House::open().await.with_broker().await;

    let soon = house.producer(&["publish", "mine", "--delay", "10m", "--json"]).with(0);
    let late = house.producer(&["publish", "mine", "--delay", "2h", "--json"]).with(0);
    let at = house.producer(&["publish", "mine", "--at", "2030-01-01T08:00", "--json"]).with(0);

    assert_eq!(soon.json()["state"], "queued");
    assert_eq!(late.json()["state"], "scheduled");
    let task = house.store.task(id_of(&at.json())).await.expect("read").expect("a task");
    assert_eq!(task.summary.due_at.to_rfc3339(), "2030-01-01T08:00:00+00:00");
    assert_eq!(house.depth(&house.topology.pool_queue("io_pool")).await, 0);
    let rung = shared::domain::delay::rung_for(Duration::from_secs(590)).expect("a rung");
    assert_eq!(house.depth(&house.topology.retry(rung)).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_is_one_task() {
    let house = House::open().await;
    house.configure(NOBODY, "");
    let publish = |payload: &str| {
        house.producer(&["publish", "mine", "--key", "k", "--payload", payload, "--json"])
    };

    let first = publish(r#"{"a": 1, "b": 2}"#).with(0).json();
    let again = publish(r#"{"b": 2, "a": 1}"#).with(0).json();
    let other = publish(r#"{"a": 2}"#).with(3).complains("key_reused_with_other_payload");

    assert_eq!((&first["deduplicated"], &again["deduplicated"]), (&json!(false), &json!(true)));
    assert_eq!(first["task_id"], again["task_id"]);
    assert_eq!(other.out, "");
    let elsewhere = ["publish", "mine", "--key", "k", "--name", "n", "--json"];
    assert_eq!(house.producer(&elsewhere).with(0).json()["deduplicated"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_the_commit_stands() {
    let house = House::open().await;
    house.configure(NOBODY, "");
    let started = Instant::now();

    let said = house.producer(&["publish", "mine", "--json"]).with(0);

    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    let said = said.complains("committed").complains("127.0.0.1:1");
    let task = house.store.task(id_of(&said.json())).await.expect("read").expect("a task");
    assert_eq!((task.summary.state, task.published_at), (TaskState::Queued, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_trace_goes_on_in_the_task() {
    let house = House::open().await;
    house.configure(NOBODY, "");
    let mut command = house.command(&["publish", "mine", "--json"]);
    command.env("TRACEPARENT", TRACE);

    let id = id_of(&run(command, None).with(0).json());

    let shown = house.producer(&["tasks", "show", &id.to_string(), "--json"]).with(0).json();
    assert_eq!(shown["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert_ne!(shown["traceparent"], TRACE, "the task hangs under a span of the command");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_the_result_or_with_exit_code_5() {
    let house = House::open().await;
    house.configure(NOBODY, "");

    let late = house.producer(&["publish", "mine", "--key", "a", "--wait=100ms"]).with(5);
    late.complains("still queued").complains("producer tasks why");

    let id = house.store.tasks(&TaskFilter::default(), 1).await.expect("read")[0].task_id;
    let attempt = house.claimed(TaskId(id)).await;
    house.ended(&attempt, Outcome::Completed { result: json!({"status": 200}) }).await;
    let done = house.producer(&["publish", "mine", "--key", "a", "--wait", "--json"]).with(0);
    let document = done.json();
    assert_eq!(document["result"], json!({"status": 200}));
    assert_eq!((&document["state"], &document["error"]), (&json!("completed"), &Value::Null));
    let plain = house.producer(&["tasks", "wait", &id.to_string()]).with(0);
    assert_eq!(plain.out, "{\"status\":200}\n");

    let (dead, _) = house.dead(json!({})).await;
    let given_up = house.producer(&["tasks", "wait", &dead.to_string(), "--json"]).with(5);
    assert_eq!(given_up.json()["error"]["class"], "permanent");
    given_up.complains("is dead: permanent: 404: no such page");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_comes_from_the_line_a_file_or_stdin() {
    let house = House::open().await;
    house.configure(NOBODY, "");
    house.file("p.json", "{\"n\": 2}\n");
    let publish = |input: &str, from: &str| {
        let args = ["publish", "mine", "--payload", from, "--delay", "2h", "--json"];
        house.fed(input, &args).with(0).json()
    };

    for (input, from, n) in [("", "{\"n\": 1}", 1), ("", "@p.json", 2), ("{\"n\": 3}", "-", 3)] {
        let task = house.store.task(id_of(&publish(input, from))).await.expect("read");
        assert_eq!(task.expect("a task").payload, json!({ "n": n }), "{from}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_resumed_by_its_keys() {
    let house = House::open().await;
    let row = |n| json!({"type": "mine", "payload": {"n": n}}).to_string() + "\n";
    let rows: String = (0..1203).map(row).collect();
    house.file("b.jsonl", &rows);
    let batch = || house.producer(&["publish", "--batch", "b.jsonl", "--json"]).with(0).json();

    assert_eq!(batch(), json!({"enqueued": 1203, "deduplicated": 0, "failed": 0}));
    assert_eq!(batch(), json!({"enqueued": 0, "deduplicated": 1203, "failed": 0}));
    let fed = house.fed(&rows, &["publish", "--batch", "-", "--json"]).with(0).json();
    assert_eq!(fed["deduplicated"], 1203, "stdin holds the same bytes");
    assert_eq!(house.store.tasks(&TaskFilter::default(), 2000).await.expect("read").len(), 1203);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_bad_lines_enqueues_nothing_unless_told_to() {
    let house = House::open().await;
    let rows = "{\"type\":\"mine\",\"key\":\"a\"}\nnonsense\n{\"type\":\"nope\"}\n\
                {\"type\":\"mine\",\"key\":\"a\",\"payload\":1}\n";
    house.file("b.jsonl", rows);

    let refused = house.producer(&["publish", "--batch", "b.jsonl"]).with(2);
    let refused =
        refused.complains("b.jsonl:2: one JSON object").complains("b.jsonl:3: no pool takes");
    refused.complains("2 lines of b.jsonl cannot be enqueued, and nothing was");
    assert!(house.store.tasks(&TaskFilter::default(), 5).await.expect("read").is_empty());

    let some = ["publish", "--batch", "b.jsonl", "--skip-invalid", "--json"];
    let some = house.producer(&some).with(3).complains("b.jsonl:4: key_reused");
    assert_eq!(some.json(), json!({"enqueued": 1, "deduplicated": 0, "failed": 3}));
}

/// What a session may use is the configuration's to say, at the door and not at three in the morning.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_a_tool_that_is_not_allowed_is_refused() {
    let house = House::open().await;
    let publish = |tool: &str| {
        let payload = json!({"goal": "do it", "tools": [tool]}).to_string();
        house.producer(&["publish", "agent_session", "--payload", &payload, "--json"])
    };

    house.configure(NOBODY, "");
    publish("http_call").with(0);
    let said = publish("model_invoke").with(2);
    for words in ["model_invoke", "handlers.agent_session.tools", "http_call, db_query"] {
        assert!(said.err.contains(words), "{}", said.err);
    }
    assert!(publish("agent_session").with(2).err.contains("cannot be a tool"));

    house.configure(NOBODY, "handlers: {agent_session: {tools: [model_invoke]}}");
    publish("model_invoke").with(0);
    publish("http_call").with(2);
}
