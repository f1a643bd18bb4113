//! A task's life as the house traces it, and what must be seen of it elsewhere.

use std::time::Duration;

use chrono::{DateTime, Utc};
use shared::domain::attempt::{Attempt, ClaimToken};
use shared::domain::message::Message;
use shared::domain::retry::RetryPolicy;
use shared::domain::task::{Semantics, TaskId};
use shared::telemetry::receiver::{Received, ReceivedSpan};
use shared::telemetry::{Span, metrics, names, spans};

/// A task's life: it fails once and completes in its second attempt.
pub async fn life() {
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
pub async fn chatter() {
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
pub fn assert_life(received: &Received, trace_id: &str) {
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
