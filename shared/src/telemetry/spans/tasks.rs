//! Spans of a task's way: tick, publish, process, attempt, replay.

use std::sync::OnceLock;

use chrono::{DateTime, SecondsFormat, Utc};
use opentelemetry::trace::SpanKind;

use super::guard::{Draft, Link, Parent, Span};
use crate::domain::attempt::Attempt;
use crate::domain::message::Message;
use crate::domain::task::NewTask;
use crate::telemetry::names::{self, belfry, messaging};

/// Host and port of the process's broker.
static BROKER: OnceLock<(String, u16)> = OnceLock::new();

/// Says where the broker is, for the spans of messages. The first call counts: a process has one.
pub fn broker_is(host: &str, port: u16) {
    let _ = BROKER.set((host.to_owned(), port));
}

fn at_broker(draft: Draft) -> Draft {
    let broker = BROKER.get();
    draft
        .with_some(names::SERVER_ADDRESS, broker.map(|(host, _)| host.clone()))
        .with_some(names::SERVER_PORT, broker.map(|(_, port)| i64::from(*port)))
}

/// One planned instant of a schedule: the root of its task's trace.
///
/// Set `belfry.tick.outcome` when it is known; a lost race is no failure.
pub fn tick(schedule: &str, scheduled_at: DateTime<Utc>, timezone: &str) -> Span {
    Draft::new(format!("tick {schedule}"), SpanKind::Internal)
        .with(belfry::SCHEDULE, schedule.to_owned())
        .with(belfry::SCHEDULED_AT, scheduled_at.to_rfc3339_opts(SecondsFormat::Secs, true))
        .with(belfry::TIMEZONE, timezone.to_owned())
        .logged("schedule", schedule)
        .start(&Parent::Root)
}

/// A task made by hand or by request: the root of its trace, or a part of its caller's.
pub fn enqueue(task: &NewTask, parent: Option<&str>) -> Span {
    Draft::new(format!("enqueue {}", task.task_type), SpanKind::Internal)
        .with(belfry::TASK_ID, task.id.to_string())
        .with(belfry::TASK_TYPE, task.task_type.clone())
        .with(belfry::EXECUTION_KEY, task.key())
        .with(belfry::POOL, task.pool.clone())
        .logged("task.id", task.id.to_string())
        .start(&Parent::Remote(parent))
}

/// A message going out. Its `traceparent` is the creation context where the task has none yet.
///
/// `parent` is where the task began (its row's context); `None` takes the running scope, which for a
/// command line may be the caller's.
pub fn publish(exchange: &str, message: &Message, parent: Option<&str>) -> Span {
    let key = message.routing_key();
    let destination = destination(&[exchange, &key]);
    let parent = if parent.is_some() { Parent::Remote(parent) } else { Parent::Scope };
    // A dead letter's copy says why, so that one can be found by it.
    let died = message.failure.as_ref().filter(|_| message.dead_letter.is_some());
    at_broker(Draft::new(format!("publish {destination}"), SpanKind::Producer))
        .with(messaging::SYSTEM, messaging::RABBITMQ)
        .with(messaging::OPERATION_NAME, "publish")
        .with(messaging::OPERATION_TYPE, "send")
        .with(messaging::DESTINATION, destination)
        .with(messaging::ROUTING_KEY, key)
        .with(messaging::MESSAGE_ID, message.task_id.to_string())
        .with(belfry::TASK_ID, message.task_id.to_string())
        .with(belfry::TASK_TYPE, message.task_type.clone())
        .with(belfry::EXECUTION_KEY, message.execution_key.clone())
        .with_some(belfry::SCHEDULE, message.schedule.clone())
        .with_some(belfry::DEAD_LETTER_REASON, died.map(|failure| failure.class.as_str()))
        .with_some(belfry::DEAD_LETTER_ATTEMPTS, died.map(|_| i64::from(message.run)))
        .logged("task.id", message.task_id.to_string())
        .start(&parent)
}

/// As [`publish`], for one copy of a task's message: the span continues the task's creation, and the
/// copy carries the span, so that whoever receives it continues from here.
pub fn publish_copy(exchange: &str, message: &mut Message) -> Span {
    let span = publish(exchange, message, message.traceparent.as_deref());
    if let Some(traceparent) = span.traceparent() {
        message.traceparent = Some(traceparent);
    }
    span
}

/// What is known of a delivery before its task is claimed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery<'a> {
    /// Queue it came from.
    pub queue: &'a str,
    /// Exchange it was published to.
    pub exchange: &'a str,
    /// Its routing key.
    pub routing_key: &'a str,
    /// Delivery tag on its channel.
    pub delivery_tag: u64,
    /// Seen before by the broker.
    pub redelivered: bool,
    /// Task it points to.
    pub task_id: &'a str,
    /// Who received it.
    pub worker: &'a str,
    /// Bytes of its body.
    pub body_size: usize,
}

/// The handling of one delivery: child of the creation context and linked to it.
///
/// `creation` and `previous` are `traceparent`s of the message; garbage gives a new trace.
pub fn process(delivery: &Delivery<'_>, creation: Option<&str>, previous: Option<&str>) -> Span {
    let Delivery { queue, exchange, routing_key, .. } = *delivery;
    at_broker(Draft::new(format!("process {queue}"), SpanKind::Consumer))
        .with(messaging::SYSTEM, messaging::RABBITMQ)
        .with(messaging::OPERATION_NAME, "process")
        .with(messaging::OPERATION_TYPE, "process")
        .with(messaging::DESTINATION, destination(&[exchange, routing_key, queue]))
        .with(messaging::ROUTING_KEY, routing_key.to_owned())
        .with(messaging::DELIVERY_TAG, i64::try_from(delivery.delivery_tag).unwrap_or(i64::MAX))
        .with(messaging::MESSAGE_ID, delivery.task_id.to_owned())
        .with(messaging::BODY_SIZE, i64::try_from(delivery.body_size).unwrap_or(i64::MAX))
        .with(messaging::CLIENT_ID, delivery.worker.to_owned())
        .with(belfry::TASK_ID, delivery.task_id.to_owned())
        .with(belfry::REDELIVERED, delivery.redelivered)
        .link(creation, Link::Creation)
        .link(previous, Link::PreviousAttempt)
        .logged("task.id", delivery.task_id)
        .start(&Parent::Remote(creation))
}

/// One run of a task: child of the running scope, which is its `process` span.
pub fn attempt(attempt: &Attempt, worker: &str) -> Span {
    Draft::new(format!("attempt {}", attempt.task_type), SpanKind::Internal)
        .with(belfry::TASK_TYPE, attempt.task_type.clone())
        .with(belfry::ATTEMPT, i64::from(attempt.run))
        .with(belfry::MAX_ATTEMPTS, i64::from(attempt.retry.max_retry) + 1)
        .with(belfry::TASK_ID, attempt.task_id.to_string())
        .with(belfry::EXECUTION_KEY, attempt.execution_key.clone())
        .with(belfry::POOL, attempt.pool.clone())
        .with(belfry::TIMEOUT_MS, i64::try_from(attempt.timeout.as_millis()).unwrap_or(i64::MAX))
        .with(belfry::QUEUE_WAIT_MS, i64::try_from(attempt.waited.as_millis()).unwrap_or(i64::MAX))
        .with(belfry::WORKER, worker.to_owned())
        .with_some(belfry::SCHEDULE, attempt.schedule.clone())
        .logged("task.id", attempt.task_id.to_string())
        .logged("task.type", attempt.task_type.clone())
        .logged("task.run", attempt.run)
        .start(&Parent::Scope)
}

/// A dead letter sent again by hand: a new trace, linked to where the task began and last ended.
pub fn replay(
    task_id: &str,
    task_type: &str,
    actor: &str,
    origin: Option<&str>,
    previous: Option<&str>,
) -> Span {
    Draft::new(format!("replay {task_type}"), SpanKind::Internal)
        .with(belfry::REPLAY_OF, task_id.to_owned())
        .with(belfry::TASK_TYPE, task_type.to_owned())
        .with(belfry::REPLAY_ACTOR, actor.to_owned())
        .link(origin, Link::Origin)
        .link(previous, Link::PreviousAttempt)
        .logged("task.id", task_id)
        .start(&Parent::Root)
}

/// `exchange:key:queue` as the conventions spell it: no empty parts, none twice in a row.
fn destination(parts: &[&str]) -> String {
    let mut named: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    named.dedup();
    if named.is_empty() { "amq.default".to_owned() } else { named.join(":") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_names_what_there_is() {
        assert_eq!(
            destination(&["belfry.tasks", "io_pool.http_call"]),
            "belfry.tasks:io_pool.http_call"
        );
        assert_eq!(destination(&["", "q", "q"]), "q");
        assert_eq!(destination(&["", ""]), "amq.default");
    }
}
