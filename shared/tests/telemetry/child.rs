//! The process that the telemetry tests look at: `telemetry_child <runtime> <scenario>`.
//!
//! `life` makes the spans, logs and metrics of one task with a retry; `chatter` logs at TRACE for two
//! seconds. It prints `trace_id=` and `shutdown_ms=`.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use shared::domain::attempt::{Attempt, ClaimToken};
use shared::domain::message::Message;
use shared::domain::retry::RetryPolicy;
use shared::domain::task::{Priority, Semantics, TaskId};
use shared::telemetry::{self, Span, metrics, names, spans};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, scenario] = &arguments[..] else { panic!("runtime and scenario") };
    let mut runtime = match kind.as_str() {
        "current" => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    runtime.enable_all().build().expect("runtime").block_on(async {
        let telemetry = telemetry::init("worker", "worker@test#1").expect("first in this process");
        match scenario.as_str() {
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
        tracing::info!(task.run = run, "asked the model");
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
        priority: Priority::Normal,
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
