//! Every row of the span tables at a real OTLP receiver, after real work: ticks, messages, attempts,
//! model calls, HTTP, a query, a dead letter and its replay. The tokens of the chat spans and of both
//! generations of metrics are those of the journal, and log lines carry their trace.

#[path = "fleet/programs.rs"]
mod programs;
#[path = "span_tables/table.rs"]
mod table;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use loadtest::database;
use loadtest::fleet::{Door, Ground, Member, Role};
use loadtest::stub_llm::{Stub, StubOptions};
use serde_json::{Value, json};
use shared::config;
use shared::domain::retry::RetryPolicy;
use shared::domain::task::NewTask;
use shared::telemetry::receiver::{Received, ReceivedSpan, Receiver};
use shared::testing::{needed, within};
use tokio::process::Command;
use tokio_postgres::Client;

use table::named;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_the_span_tables_arrives_and_the_sums_are_the_journals() {
    programs::are_fresh();
    shared::http::install_crypto();
    let receiver = Receiver::start().await.expect("a receiver");
    let stub = Stub::start(StubOptions::default()).await.expect("a stub");
    let mut ground = prepare(&stub).await;
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", receiver.http)),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf".to_owned()),
        ("OTEL_BSP_SCHEDULE_DELAY", "200".to_owned()),
    ] {
        ground.tell(name, value);
    }
    let mut fleet = Vec::new();
    for role in [Role::Producer, Role::Worker] {
        let mut member = Member::start(&ground, role).expect("started");
        member.ready(PATIENCE).await.expect("ready");
        fleet.push(member);
    }
    let client = database::connect(ground.config().database_url().expect("an address")).await;
    let client = client.expect("the database");
    let door = Door::open(&ground).await.expect("a door");
    door.accept(&work(&stub)).await.expect("published");
    ended(&client, 8).await;
    replay(&ground).await;
    ended(&client, 8).await;
    door.close().await;
    // Each sends what it has left, so that nothing is late.
    for member in fleet {
        member.stop(PATIENCE).await.expect("stopped");
    }
    let received = receiver.received();
    let journal = journal(&client).await;
    drop(client);
    ground.clear().await.expect("nothing left behind");

    table::check(&received);
    table::check_lineage(&received);
    check_details(&received);
    check_tokens(&received, &journal);
    check_logs(&received);
}

async fn prepare(stub: &Stub) -> Ground {
    let yaml = format!(
        "scheduler: {{heartbeat_interval: 1, heartbeat_ttl: 3}}\n\
         model: {{base_url: '{}', api_key: k, default_model: m, prices: {{m: {{input: 2, output: 10}}}}}}\n\
         sources: {{own: {{dsn: '{}'}}}}\nhttp: {{allow_hosts: [127.0.0.1]}}\n\
         task_pools:\n  io_pool: {{max_workers: 4, task_types: [agent_session, model_invoke, http_call, db_query]}}\n\
         tasks:\n  - {{name: nightly, schedule: '* * * * * *', task_type: model_invoke, payload: {{prompt: hello}}, overlap: skip}}\n",
        stub.url,
        needed("DATABASE_URL"),
    );
    let lookup = |name: &str| match name {
        "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
        _ => None,
    };
    let base = config::load_str("", "environment", &lookup).expect("addresses");
    Ground::prepare(&base, "tables", &yaml).await.expect("ground")
}

fn work(stub: &Stub) -> Vec<NewTask> {
    let asking = |more: Value| {
        let mut payload = json!({"prompt": "hi"});
        payload
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        ("model_invoke", payload)
    };
    let second = Duration::from_secs(1);
    let retry = RetryPolicy { max_retry: 1, base: second, max: second };
    [
        asking(json!({"model": "m", "temperature": 0.5, "seed": 7, "reasoning_effort": "low"})),
        asking(json!({"model": "m", "stream": true, "response_format": {"type": "json_object"}})),
        asking(json!({"model": "stub-refusal", "fallback": ["m"]})),
        asking(json!({"model": "stub-500x1"})),
        asking(json!({"model": "stub-404"})),
        (
            "http_call",
            json!({"url": format!("{}/echo?key=hidden", stub.url), "method": "POST", "body": {}}),
        ),
        (
            "agent_session",
            json!({"goal": "leave an effect", "model": "stub-session-1", "tools": [{
                "name": "leave_effect", "task_type": "http_call",
                "payload": {"url": format!("{}/effects", stub.url), "method": "POST"}}]}),
        ),
        ("db_query", json!({"source": "own", "sql": "SELECT 1 AS one"})),
    ]
    .into_iter()
    .zip(1_u32..)
    .map(|((task_type, payload), n)| NewTask {
        retry,
        // The span of whoever published it: each task has a trace of its own.
        traceparent: Some(format!("00-{n:032x}-b7ad6b7169203331-01")),
        ..NewTask::ad_hoc(task_type, "io_pool", payload)
    })
    .collect()
}

/// Waits until so many of our tasks, and a scheduled one, have ended.
async fn ended(client: &Client, count: i64) {
    within(PATIENCE, "the work ends", async || {
        let sql = "SELECT count(*) FILTER (WHERE schedule IS NULL AND finished_at IS NOT NULL),
            count(*) FILTER (WHERE schedule IS NOT NULL AND state = 'completed') FROM tasks";
        let row = client.query_one(sql, &[]).await.expect("counts");
        (row.get::<_, i64>(0) == count && row.get::<_, i64>(1) > 0).then_some(())
    })
    .await;
}

/// Replays the dead letter by the command.
async fn replay(ground: &Ground) {
    let replayed = Command::new(Role::Producer.path().expect("built"))
        .arg("--config")
        .arg(ground.file())
        .args(["dead", "replay", "--all"])
        .envs(ground.environment())
        .stdin(Stdio::null())
        .output()
        .await
        .expect("run");
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
}

/// Calls, input and output tokens by the journal.
#[derive(Debug)]
struct Journal {
    calls: i64,
    input: i64,
    output: i64,
    cost_micro: i64,
}

async fn journal(client: &Client) -> Journal {
    let sql = "SELECT count(*), coalesce(sum(input_tokens), 0)::bigint, coalesce(sum(output_tokens), 0)::bigint,
        coalesce(sum(cost_micro), 0)::bigint FROM llm_calls WHERE state <> 'sent'";
    let row = client.query_one(sql, &[]).await.expect("sums");
    Journal { calls: row.get(0), input: row.get(1), output: row.get(2), cost_micro: row.get(3) }
}

/// Single spans, by what they stand for.
fn check_details(received: &Received) {
    let chat = |what: &str, is_it: &dyn Fn(&ReceivedSpan) -> bool| -> ReceivedSpan {
        let found = named(received, "chat ").find(|span| is_it(span));
        found.unwrap_or_else(|| panic!("no chat span {what}")).clone()
    };
    let is =
        |span: &ReceivedSpan, name: &str, value: Value| span.attributes.get(name) == Some(&value);

    let plain = chat("with a seed", &|span| is(span, "gen_ai.request.seed", json!(7)));
    assert_eq!(plain.attributes["gen_ai.request.temperature"], 0.5);
    assert_eq!(plain.attributes["gen_ai.request.reasoning.level"], "low");
    assert_eq!(plain.attributes["gen_ai.output.type"], "text");
    assert_eq!(plain.attributes["gen_ai.response.finish_reasons"], json!(["stop"]));
    for name in ["gen_ai.response.id", "gen_ai.response.model", "belfry.llm.cost_usd"] {
        assert!(plain.attributes.contains_key(name), "{name}: {:?}", plain.attributes);
    }
    assert!(!plain.attributes.contains_key("gen_ai.request.stream") && !plain.failed);

    let streamed = chat("that streams", &|span| is(span, "gen_ai.request.stream", json!(true)));
    assert!(
        streamed.attributes["gen_ai.response.time_to_first_chunk"]
            .as_f64()
            .is_some_and(|s| s > 0.0)
    );
    assert_eq!(streamed.attributes["gen_ai.output.type"], "json");

    for (model, error) in
        [("stub-refusal", "answer_refused"), ("stub-500x1", "500"), ("stub-404", "model_not_found")]
    {
        let failed = chat(model, &|span| span.failed && span.name == format!("chat {model}"));
        assert_eq!(failed.attributes["error.type"], error, "{model}");
    }
    let turns = named(received, "chat stub-session-1").map(|span| &span.attributes["belfry.step"]);
    assert_eq!(turns.collect::<Vec<_>>(), ["turn-001", "turn-002"]);
    let tool = named(received, "execute_tool ").next().expect("a tool");
    let inside = named(received, "POST").any(|span| span.parent_span_id == tool.span_id);
    assert!(inside && !tool.failed, "the tool's request is its child");
    assert_eq!(tool.attributes["belfry.step"], "tool-001-1");
    // Content is not asked for, so there is none.
    assert!(!format!("{:?}", received.spans).contains("gen_ai.tool.call.result"));
    assert!(!format!("{:?}", received.spans).contains("gen_ai.input.messages"));
    assert!(!format!("{:?}", received.spans).contains("key=hidden"), "a query may hold a key");

    let died = named(received, "publish ")
        .find(|span| span.attributes.contains_key("belfry.dead_letter.reason"));
    let died = died.expect("the dead letter's message");
    assert_eq!(died.attributes["belfry.dead_letter.reason"], "permanent");
    let retried = named(received, "attempt ")
        .find(|span| span.attributes.contains_key("belfry.retry.delay_ms"));
    assert_eq!(retried.expect("a retried attempt").attributes["belfry.outcome"], "retry");
    let process =
        named(received, "process ").find(|span| is(span, "belfry.outcome", json!("retry")));
    assert!(process.expect("its delivery").failed, "an attempt that failed is a failed delivery");

    let replay = named(received, "replay ").next().expect("a replay");
    assert_eq!((replay.parent_span_id.as_str(), replay.links.len()), ("", 2));
    let http = named(received, "POST").find(|span| {
        span.attributes["url.full"].as_str().is_some_and(|url| url.ends_with("/echo"))
    });
    assert_eq!(http.expect("the call").attributes["network.protocol.version"], "1.1");
}

/// The last value of each series of a metric, by its attributes.
fn series(received: &Received, name: &str) -> BTreeMap<String, (f64, u64, Value)> {
    let points = received.metrics.iter().filter(|metric| metric.name == name);
    points
        .map(|point| {
            let attributes = json!(point.attributes);
            (attributes.to_string(), (point.value, point.count, attributes))
        })
        .collect()
}

fn check_tokens(received: &Received, journal: &Journal) {
    for span in received.spans.iter().filter(|span| !span.name.starts_with("chat ")) {
        let usage = span.attributes.keys().find(|name| name.starts_with("gen_ai.usage"));
        assert_eq!(usage, None, "{} counts tokens a second time", span.name);
    }
    let chats: Vec<&ReceivedSpan> = named(received, "chat ").collect();
    assert_eq!(chats.len() as i64, journal.calls, "one span a call");
    let spans = |name: &str| -> i64 {
        chats.iter().filter_map(|span| span.attributes.get(name)?.as_i64()).sum()
    };
    assert_eq!(spans("gen_ai.usage.input_tokens"), journal.input, "{journal:?}");
    assert_eq!(spans("gen_ai.usage.output_tokens"), journal.output, "{journal:?}");

    let sum = |name: &str, of: &str| -> i64 {
        let all = series(received, name).into_values();
        all.filter(|(_, _, at)| of.is_empty() || at["gen_ai.token.type"] == of)
            .map(|(value, ..)| value)
            .sum::<f64>()
            .round() as i64
    };
    // Both generations of the conventions.
    assert_eq!(sum("gen_ai.client.inference.usage.input_tokens", ""), journal.input);
    assert_eq!(sum("gen_ai.client.inference.usage.output_tokens", ""), journal.output);
    assert_eq!(sum("gen_ai.client.token.usage", "input"), journal.input);
    assert_eq!(sum("gen_ai.client.token.usage", "output"), journal.output);
    let count =
        |name: &str| series(received, name).into_values().map(|(_, count, _)| count).sum::<u64>();
    for name in ["gen_ai.client.inference.duration", "gen_ai.client.operation.duration"] {
        assert_eq!(count(name) as i64, journal.calls, "{name}");
    }
    assert_eq!(count("gen_ai.client.inference.time_to_first_chunk"), 1);
    assert!(count("gen_ai.client.inference.time_per_output_chunk") > 1);
    let cost: f64 =
        series(received, "belfry.llm.cost").into_values().map(|(value, ..)| value).sum();
    assert_eq!((cost * 1e6).round() as i64, journal.cost_micro);
    for name in [
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        "messaging.process.duration",
        "http.client.request.duration",
        "db.client.operation.duration",
        "belfry.task.attempts",
        "belfry.task.queue_wait",
        "belfry.tick.lag",
    ] {
        assert!(!series(received, name).is_empty(), "no metric {name}");
    }
    let ids = |at: &Value| at.to_string().contains("belfry.task.id");
    assert!(
        !received.metrics.iter().any(|metric| ids(&json!(metric.attributes))),
        "a series for each task"
    );
}

fn check_logs(received: &Received) {
    let traces: std::collections::BTreeSet<_> =
        named(received, "attempt ").map(|span| span.trace_id.as_str()).collect();
    let lines: Vec<_> = received.logs.iter().filter(|log| log.body == "completed").collect();
    assert!(!lines.is_empty(), "no line of a completed attempt");
    assert!(
        lines.iter().all(|line| traces.contains(line.trace_id.as_str())),
        "a line without its trace"
    );
    let letters: Vec<_> =
        received.logs.iter().filter(|log| log.event == "belfry.dead_letter").collect();
    assert_eq!(letters.len(), 2, "it died, and once more after its replay");
    assert_eq!(
        (letters[0].severity.as_str(), traces.contains(letters[0].trace_id.as_str())),
        ("ERROR", true)
    );
}
