//! What a collector must have seen of a task's life.

use shared::telemetry::receiver::{Received, ReceivedSpan};

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
