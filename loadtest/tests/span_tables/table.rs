//! The span tables: what each kind of span must be and have.

use std::collections::BTreeMap;

use shared::telemetry::receiver::{Received, ReceivedSpan};

/// Attributes that each kind of span must have, by the beginning of its name. `a|b` is either.
const TABLE: [(&str, &str, &[&str]); 10] = [
    (
        "tick ",
        "internal",
        &[
            "belfry.schedule.name",
            "belfry.schedule.scheduled_at",
            "belfry.schedule.tz",
            "belfry.schedule.lag_ms",
            "belfry.tick.outcome",
            "belfry.execution_key",
        ],
    ),
    (
        "publish ",
        "producer",
        &[
            "messaging.system",
            "messaging.operation.name",
            "messaging.operation.type",
            "messaging.destination.name",
            "messaging.rabbitmq.destination.routing_key",
            "messaging.message.id",
            "server.address",
            "server.port",
            "belfry.task.type",
            "belfry.task.id",
        ],
    ),
    (
        "process ",
        "consumer",
        &[
            "messaging.system",
            "messaging.operation.name",
            "messaging.operation.type",
            "messaging.destination.name",
            "messaging.rabbitmq.destination.routing_key",
            "messaging.rabbitmq.message.delivery_tag",
            "messaging.message.id",
            "messaging.client.id",
            "server.address",
            "server.port",
            "belfry.attempt",
            "belfry.redelivered",
            "belfry.outcome",
        ],
    ),
    (
        "attempt ",
        "internal",
        &[
            "belfry.task.type",
            "belfry.attempt",
            "belfry.max_attempts",
            "belfry.task.id",
            "belfry.execution_key",
            "belfry.pool",
            "belfry.timeout_ms",
            "belfry.queue_wait_ms",
            "belfry.worker",
            "belfry.outcome",
        ],
    ),
    (
        "execute_tool leave_effect",
        "internal",
        &[
            "gen_ai.operation.name",
            "gen_ai.tool.name",
            "gen_ai.tool.type",
            "gen_ai.tool.call.id",
            "gen_ai.conversation.id",
            "belfry.step",
        ],
    ),
    (
        "chat ",
        "client",
        &[
            "gen_ai.operation.name",
            "gen_ai.provider.name",
            "gen_ai.request.model",
            "gen_ai.request.max_tokens",
            "gen_ai.output.type",
            "server.address",
            "server.port",
            "belfry.llm.call_id",
            "belfry.llm.wait_ms",
        ],
    ),
    (
        "admit ",
        "internal",
        &["belfry.quota.outcome", "belfry.quota.est_tokens", "belfry.quota.wait_ms"],
    ),
    (
        "POST",
        "client",
        &[
            "http.request.method",
            "server.address",
            "server.port",
            "url.full",
            "http.response.status_code|error.type",
        ],
    ),
    (
        "SELECT",
        "client",
        &[
            "db.system.name",
            "db.namespace",
            "db.operation.name",
            "db.query.summary",
            "db.query.text",
        ],
    ),
    (
        "replay ",
        "internal",
        &["belfry.replay.of_task_id", "belfry.replay.actor", "belfry.task.type"],
    ),
];

/// Every row is there, and each of its spans has all of it.
#[track_caller]
pub fn check(received: &Received) {
    for (beginning, kind, attributes) in TABLE {
        check_row(received, beginning, kind, attributes);
    }
}

/// The spans whose name begins so.
pub fn named<'a>(
    received: &'a Received,
    beginning: &'a str,
) -> impl Iterator<Item = &'a ReceivedSpan> {
    received.spans.iter().filter(move |span| span.name.starts_with(beginning))
}

#[track_caller]
fn check_row(received: &Received, beginning: &str, kind: &str, attributes: &[&str]) {
    let mut spans = named(received, beginning).peekable();
    assert!(spans.peek().is_some(), "no span {beginning:?}");
    for span in spans {
        assert_eq!(span.kind, kind, "{}", span.name);
        for attribute in attributes {
            let has = attribute.split('|').any(|name| span.attributes.contains_key(name));
            assert!(has, "{} has no {attribute}: {:?}", span.name, span.attributes);
        }
    }
}

/// What an attempt does is told under the attempt, and no trace has the work of two tasks: a span never
/// leaks into the task that follows in the same slot.
#[track_caller]
pub fn check_lineage(received: &Received) {
    let attempts: BTreeMap<&str, &ReceivedSpan> =
        named(received, "attempt ").map(|span| (span.span_id.as_str(), span)).collect();
    for beginning in ["admit ", "chat ", "SELECT"] {
        for span in named(received, beginning) {
            let attempt = attempts.get(span.parent_span_id.as_str());
            let attempt = attempt.unwrap_or_else(|| panic!("{} outside of any attempt", span.name));
            assert_eq!(span.trace_id, attempt.trace_id, "{}", span.name);
        }
    }
    let mut tasks: BTreeMap<&str, &serde_json::Value> = BTreeMap::new();
    for attempt in attempts.values() {
        let task = &attempt.attributes["belfry.task.id"];
        let other = tasks.insert(&attempt.trace_id, task).unwrap_or(task);
        assert_eq!(task, other, "two tasks in one trace");
    }
}
