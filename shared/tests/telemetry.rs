//! What a collector sees of a process, and what a process suffers from a collector.
//!
//! Telemetry belongs to a whole process, so each story runs this test binary again as a child with
//! an environment of its own and looks from outside: at its output, and at a real OTLP receiver.

use std::net::Ipv4Addr;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use shared::domain::attempt::{Attempt, ClaimToken};
use shared::domain::message::Message;
use shared::domain::retry::RetryPolicy;
use shared::domain::task::{Semantics, TaskId};
use shared::telemetry::receiver::{Received, ReceivedSpan, Receiver};
use shared::telemetry::{self, Span, metrics, names, spans};
use tokio::net::TcpListener;
use tokio::process::Command;

/// Long enough for a loaded machine; nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the child with these variables and no others.
async fn child(scenario: &str, variables: &[(&str, &str)]) -> Output {
    let program = std::env::current_exe().expect("own path");
    let child = Command::new(program)
        .args(["--ignored", "--exact", "child_process", "--nocapture", "--test-threads=1"])
        .env_clear()
        .env("BELFRY_TEST_SCENARIO", scenario)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output();
    let output = tokio::time::timeout(PATIENCE, child).await.expect("in time").expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// What the child printed after `name=`.
fn printed(output: &Output, name: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.lines().find_map(|line| line.split_once(&format!("{name}=")));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).1.to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The other side of [`child`].
#[test]
#[ignore = "a process of its own, started by the other tests"]
fn child_process() {
    #[expect(clippy::disallowed_methods, reason = "how the parent tells its child what to do")]
    let scenario = std::env::var("BELFRY_TEST_SCENARIO").expect("started by another test");
    let (kind, scenario) = scenario.split_once(' ').expect("runtime and scenario");
    let mut runtime = match kind {
        "current" => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    runtime.enable_all().build().expect("runtime").block_on(async {
        let telemetry = telemetry::init("worker", "worker@test#1").expect("first in this process");
        match scenario {
            "life" => life().await,
            "chatter" => chatter().await,
            other => panic!("unknown scenario {other}"),
        }
        let started = Instant::now();
        telemetry.shutdown().await;
        println!("shutdown_ms={}", started.elapsed().as_millis());
    });
}

/// A task's life: it fails once and completes in its second attempt.
async fn life() {
    let planned = "2026-11-30T18:00:00Z".parse::<DateTime<Utc>>().expect("instant");
    let task = TaskId::new();
    let tick = spans::tick("nightly", planned, "Europe/Berlin");
    tick.set(names::belfry::TICK_OUTCOME, "enqueued");
    let publish =
        tick.in_scope(async { spans::publish("belfry.tasks", &message(task), None) }).await;
    let creation = publish.traceparent().expect("valid without and with a collector");
    println!("trace_id={}", tick.trace_id().expect("valid"));
    drop((publish, tick));

    let first = delivered(task, &creation, None);
    first.in_scope(attempted(task, 1)).await;
    first.set(names::belfry::OUTCOME, "retry");
    first.fail("503", "the model is busy");
    let previous = first.traceparent().expect("valid");
    drop(first);

    let second = delivered(task, &creation, Some(&previous));
    second.in_scope(attempted(task, 2)).await;
    second.set(names::belfry::OUTCOME, "completed");
    metrics::attempt_ended("model_invoke", "completed", None);
}

/// One attempt with a model call that fails the first time.
async fn attempted(task: TaskId, run: u32) {
    let attempt = spans::attempt(&claimed(task, run), "w1");
    let work = async {
        let call = spans::Chat {
            model: "m-1",
            provider: "openai",
            server: Some(spans::Server { host: "api.example", port: 443 }),
            ..spans::Chat::default()
        };
        let chat = spans::chat(&call);
        let answer = spans::ChatAnswer {
            finish_reasons: vec!["stop".to_owned()],
            input_tokens: Some(10),
            output_tokens: Some(20),
            ..spans::ChatAnswer::default()
        };
        let error_type = (run == 1).then_some("503");
        match error_type {
            Some(error) => chat.fail(error, "busy"),
            None => chat.chat_answer(&answer),
        }
        metrics::chat_ended(&metrics::ChatMeasures {
            model: "m-1",
            provider: "openai",
            server: None,
            took: Duration::from_millis(300),
            answer: error_type.is_none().then_some(&answer),
            error_type,
        });
        tracing::info!(run, "asked the model");
    };
    attempt.in_scope(work).await;
    if run == 1 {
        attempt.fail("503", "busy");
    }
}

/// Work while exporters are busy, at the most talkative level.
async fn chatter() {
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    for n in 0..40 {
        pace.tick().await;
        let span = spans::tick("chatter", DateTime::<Utc>::UNIX_EPOCH, "UTC");
        span.run(|| tracing::trace!(n, "word"));
    }
}

fn delivered(task: TaskId, creation: &str, previous: Option<&str>) -> Span {
    let id = task.to_string();
    let delivery = spans::Delivery {
        queue: "belfry.tasks.io_pool",
        exchange: "belfry.tasks",
        routing_key: "io_pool.model_invoke",
        delivery_tag: 7,
        task_id: &id,
        worker: "w1",
        ..spans::Delivery::default()
    };
    spans::process(&delivery, Some(creation), previous)
}

fn message(task_id: TaskId) -> Message {
    Message {
        task_id,
        task_type: "model_invoke".to_owned(),
        pool: "io_pool".to_owned(),
        name: "nightly".to_owned(),
        execution_key: "nightly@1".to_owned(),
        run: 0,
        failures: 0,
        max_retry: 3,
        schedule: Some("nightly".to_owned()),
        scheduled_for: None,
        traceparent: None,
        previous_attempt: None,
        failure: None,
        worker: None,
        dead_letter: None,
    }
}

fn claimed(task_id: TaskId, run: u32) -> Attempt {
    Attempt {
        task_id,
        token: ClaimToken::new(),
        run,
        failures: run - 1,
        crashes: 0,
        task_type: "model_invoke".to_owned(),
        pool: "io_pool".to_owned(),
        name: "nightly".to_owned(),
        execution_key: "nightly@1".to_owned(),
        payload: serde_json::Value::Null,
        timeout: Duration::from_mins(5),
        retry: RetryPolicy::default(),
        semantics: Semantics::AtLeastOnce,
        schedule: Some("nightly".to_owned()),
        scheduled_for: None,
        traceparent: None,
        previous_attempt: None,
        waited: Duration::from_millis(12),
    }
}

/// All that must be true of a life, whatever it came over.
fn assert_life(received: &Received, trace_id: &str) {
    let named = |name: &str| -> Vec<&ReceivedSpan> {
        received.spans.iter().filter(|span| span.name == name).collect()
    };
    let [tick] = named("tick nightly")[..] else { panic!("{received:#?}") };
    let [publish] = named("publish belfry.tasks:io_pool.model_invoke")[..] else {
        panic!("{received:#?}")
    };
    let [first, second] = named("process belfry.tasks.io_pool")[..] else {
        panic!("{received:#?}")
    };
    let [attempt_1, attempt_2] = named("attempt model_invoke")[..] else { panic!("{received:#?}") };
    let [chat_1, chat_2] = named("chat m-1")[..] else { panic!("{received:#?}") };

    assert!(received.spans.iter().all(|span| span.trace_id == trace_id), "one trace");
    assert_eq!(tick.parent_span_id, "");
    for (span, parent, kind) in [
        (publish, tick, "producer"),
        (first, publish, "consumer"),
        (second, publish, "consumer"),
        (attempt_1, first, "internal"),
        (attempt_2, second, "internal"),
        (chat_1, attempt_1, "client"),
        (chat_2, attempt_2, "client"),
    ] {
        assert_eq!((&span.parent_span_id, span.kind), (&parent.span_id, kind), "{}", span.name);
    }
    let link = |span: &ReceivedSpan, role: &str| {
        (trace_id.to_owned(), span.span_id.clone(), role.to_owned())
    };
    assert_eq!(first.links, [link(publish, "creation")]);
    assert_eq!(second.links, [link(publish, "creation"), link(first, "previous_attempt")]);
    for (span, failed) in [(first, true), (second, false), (attempt_1, true), (chat_2, false)] {
        assert_eq!(span.failed, failed, "{}", span.name);
    }
    assert_eq!(first.attributes["error.type"], "503");
    assert_eq!(first.message, "the model is busy");
    assert_eq!(
        publish.attributes["messaging.destination.name"],
        "belfry.tasks:io_pool.model_invoke"
    );
    assert_eq!(
        second.attributes["messaging.destination.name"],
        "belfry.tasks:io_pool.model_invoke:belfry.tasks.io_pool"
    );
    assert_eq!(chat_2.attributes["gen_ai.response.finish_reasons"], serde_json::json!(["stop"]));
    assert_eq!(chat_2.attributes["gen_ai.usage.input_tokens"], 10);
    assert_eq!(tick.resource["service.name"], "belfry-worker");
    assert_eq!(tick.resource["service.instance.id"], "worker@test#1");

    let lines: Vec<_> = received.logs.iter().filter(|log| log.body == "asked the model").collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line.trace_id == trace_id && line.severity == "INFO"));
    let metric = |name: &str| {
        received
            .metrics
            .iter()
            .find(|metric| metric.name == name)
            .unwrap_or_else(|| panic!("{name}"))
    };
    assert!((metric("belfry.task.attempts").value - 1.0).abs() < f64::EPSILON);
    assert_eq!(metric("gen_ai.client.inference.duration").bounds.len(), 17);
    assert_eq!(metric("gen_ai.client.operation.duration").count, 1);
}

#[tokio::test]
async fn one_trace_per_task_arrives_over_grpc_and_over_http() {
    for (runtime, protocol) in [
        ("multi", "grpc"),
        ("current", "grpc"),
        ("multi", "http/protobuf"),
        ("current", "http/protobuf"),
    ] {
        let receiver = Receiver::start().await.expect("receiver");
        let address = if protocol == "grpc" { receiver.grpc } else { receiver.http };

        let output = child(
            &format!("{runtime} life"),
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}")),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ],
        )
        .await;

        // The child has flushed and gone: everything is there or never will be.
        assert_life(&receiver.received(), &printed(&output, "trace_id"));
    }
}

#[tokio::test]
async fn nothing_is_sent_unless_it_is_asked_for() {
    let receiver = Receiver::start().await.expect("receiver");
    let endpoint = format!("http://{}", receiver.http);
    let none = |name| (name, "none");
    for switch in [
        vec![("OTEL_SDK_DISABLED", "true")],
        ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"].map(none).to_vec(),
    ] {
        let mut variables = switch;
        variables.push(("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint));
        child("multi life", &variables).await;
        let seen = receiver.received();
        assert!(seen.spans.is_empty() && seen.logs.is_empty(), "{seen:#?}");
        assert!(seen.metrics.is_empty(), "{seen:#?}");
    }

    // The standard's default endpoint is localhost; somebody may listen there.
    let usual = TcpListener::bind((Ipv4Addr::LOCALHOST, 4318)).await;
    let output = child("multi life", &[]).await;
    assert_eq!(printed(&output, "trace_id").len(), 32, "ids are valid without a collector");
    assert_eq!(stderr(&output).lines().count(), 2, "only our own: {}", stderr(&output));
    if let Ok(usual) = usual {
        let asked = tokio::time::timeout(Duration::from_millis(10), usual.accept()).await;
        assert!(asked.is_err(), "it connected to the default endpoint");
    }
}

#[tokio::test]
async fn one_signal_can_be_turned_off_alone() {
    let receiver = Receiver::start().await.expect("receiver");
    let endpoint = format!("http://{}", receiver.http);
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_LOGS_EXPORTER", "none")];
    child("multi life", &variables).await;

    let seen = receiver.received();

    assert!(seen.span("tick nightly").is_some() && !seen.metrics.is_empty());
    assert!(seen.logs.is_empty());
}

/// A collector that refuses, one that accepts and never answers, one that wants TLS: the process
/// works on and ends in time.
#[tokio::test]
async fn a_dead_collector_costs_a_moment_at_the_end() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
    let silent = (silent.local_addr().expect("bound"), silent);
    let refused = {
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
        gone.local_addr().expect("bound")
    };
    for (endpoint, runtime) in [
        (format!("http://{refused}"), "multi"),
        (format!("https://{refused}"), "multi"),
        (format!("http://{}", silent.0), "multi"),
        (format!("http://{}", silent.0), "current"),
    ] {
        for protocol in ["grpc", "http/protobuf"] {
            let output = child(
                &format!("{runtime} life"),
                &[
                    ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                    ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ],
            )
            .await;
            let took: u64 = printed(&output, "shutdown_ms").parse().expect("a number");
            assert!(took < 3000, "{endpoint} {protocol}: {took} ms\n{}", stderr(&output));
            assert!(!stderr(&output).contains("are not exported"), "{}", stderr(&output));
        }
    }
    drop(silent);
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_one_is_said_once_and_the_work_goes_on() {
    let output = child("multi life", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")]).await;
    let lines = stderr(&output);
    assert_eq!(lines.matches("OTEL_EXPORTER_OTLP_ENDPOINT is not a URL").count(), 1, "{lines}");
    assert_eq!(printed(&output, "trace_id").len(), 32);
}

/// Exporting causes log lines; exporting those would never end.
#[tokio::test]
async fn the_most_talkative_level_feeds_no_loop() {
    for protocol in ["grpc", "http/protobuf"] {
        let receiver = Receiver::start().await.expect("receiver");
        let address = if protocol == "grpc" { receiver.grpc } else { receiver.http };
        child(
            "multi chatter",
            &[
                ("RUST_LOG", "trace"),
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}")),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_BSP_SCHEDULE_DELAY", "50"),
                ("OTEL_BLRP_SCHEDULE_DELAY", "50"),
            ],
        )
        .await;

        let seen = receiver.received();

        let strangers: Vec<_> =
            seen.logs.iter().filter(|log| log.target != "telemetry").take(5).collect();
        assert!(strangers.is_empty(), "{protocol}: {strangers:#?}");
        assert_eq!(seen.logs.len(), 40, "{protocol}");
        assert_eq!(seen.spans.len(), 40, "{protocol}");
    }
}

#[tokio::test]
async fn json_lines_carry_the_trace_and_the_task() {
    let output = child("multi life", &[("LOG_FORMAT", "json")]).await;
    let text = stderr(&output);
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    let line = lines.iter().find(|line| line["message"] == "asked the model").expect("the line");
    assert_eq!(line["trace_id"], printed(&output, "trace_id"));
    assert_eq!(line["task.type"], "model_invoke");
    assert_eq!(line["task.run"], "1");
}
