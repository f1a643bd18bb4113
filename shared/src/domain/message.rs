//! The message: a pointer to a task, legible in the RabbitMQ UI and without authority.
//!
//! A worker reads the ids from it and everything else from the row. The other fields are for the
//! person who looks at the queue.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::outcome::Failure;
use super::task::{Priority, TaskId};

/// Longest body that is even parsed, in bytes: ours are under 2 KiB, more is forged or damaged.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// Most tasks that one message may point to.
pub const MAX_BUNDLE: usize = 500;

/// The JSON body: `{"task_id","type","name","execution_key"}`, or `task_ids` in a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    /// The task pointed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The tasks pointed to, in a bundle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_ids: Vec<TaskId>,
    /// Task type, for the reader.
    #[serde(rename = "type", default)]
    pub task_type: String,
    /// Name, for the reader.
    #[serde(default)]
    pub name: String,
    /// Execution key, for the reader.
    #[serde(default)]
    pub execution_key: String,
}

/// Why a delivery's body points to no task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Over [`MAX_MESSAGE_BYTES`].
    #[error("the body has {0} bytes; a message of Belfry has at most {MAX_MESSAGE_BYTES}")]
    TooLarge(usize),
    /// What came with the body cannot be read, so that nobody knows what was meant.
    #[error("the message cannot be read: {0}")]
    Properties(&'static str),
    /// Not our JSON.
    #[error("the body is not a task message: {0}")]
    Unreadable(String),
    /// JSON without a task.
    #[error("the body names no \"task_id\"")]
    NoTask,
    /// Too many tasks.
    #[error("the bundle names {0} tasks; at most {MAX_BUNDLE}")]
    TooMany(usize),
}

impl Body {
    /// Reads a delivery's body.
    pub fn parse(bytes: &[u8]) -> Result<Self, BodyError> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(BodyError::TooLarge(bytes.len()));
        }
        // serde would take an array for the object's values in their order.
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            return Err(BodyError::Unreadable("a JSON array where an object belongs".to_owned()));
        }
        let body: Self =
            serde_json::from_slice(bytes).map_err(|e| BodyError::Unreadable(e.to_string()))?;
        match body.ids().len() {
            0 => Err(BodyError::NoTask),
            n if n > MAX_BUNDLE => Err(BodyError::TooMany(n)),
            _ => Ok(body),
        }
    }

    /// The tasks pointed to, one or many.
    pub fn ids(&self) -> Vec<TaskId> {
        self.task_id.into_iter().chain(self.task_ids.iter().copied()).collect()
    }
}

/// A message about to be published. Headers are flat and few; no `x-*` header is ever copied.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The task.
    pub task_id: TaskId,
    /// Also the AMQP `type` property.
    pub task_type: String,
    /// With the type, the routing key `<pool>.<task_type>`.
    pub pool: String,
    /// Name.
    pub name: String,
    /// Execution key.
    pub execution_key: String,
    /// Attempts so far (header `run`).
    pub run: u32,
    /// Failures so far (header `failures`).
    pub failures: u32,
    /// Retries allowed (header `max-retry`).
    pub max_retry: u32,
    /// Schedule it came from (header `schedule`).
    pub schedule: Option<String>,
    /// Planned instant (header `scheduled-for`, RFC 3339).
    pub scheduled_for: Option<DateTime<Utc>>,
    /// The row's creation context; on the wire the span that published this copy, which continues
    /// it (header `traceparent`).
    pub traceparent: Option<String>,
    /// The last attempt's span (header `previous-attempt`).
    pub previous_attempt: Option<String>,
    /// Last failure (headers `error-class`, `error-message`).
    pub failure: Option<Failure>,
    /// Who ran it last (header `worker`).
    pub worker: Option<String>,
    /// Only on the copy in the dead queue: the letter's id (header `dead-letter`).
    pub dead_letter: Option<i64>,
    /// The AMQP priority, for brokers that can tell.
    pub priority: Priority,
}

impl Message {
    /// The body as published.
    pub fn body(&self) -> Body {
        Body {
            task_id: Some(self.task_id),
            task_ids: Vec::new(),
            task_type: self.task_type.clone(),
            name: self.name.clone(),
            execution_key: self.execution_key.clone(),
        }
    }

    /// `<pool>.<task_type>`, kept through every hop.
    pub fn routing_key(&self) -> String {
        format!("{}.{}", self.pool, self.task_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_task_or_a_bundle_and_nothing_else() {
        let id = TaskId::new();
        let one = format!(r#"{{"task_id":"{id}","type":"http_call","extra":1}}"#);
        assert_eq!(Body::parse(one.as_bytes()).expect("one").ids(), vec![id]);
        let two = format!(r#"{{"task_ids":["{id}","{id}"]}}"#);
        assert_eq!(Body::parse(two.as_bytes()).expect("two").ids().len(), 2);
        assert_eq!(Body::parse(b"{}"), Err(BodyError::NoTask));
        assert!(matches!(Body::parse(b"\xff\0"), Err(BodyError::Unreadable(_))));
        assert!(matches!(
            Body::parse(&vec![b' '; MAX_MESSAGE_BYTES + 1]),
            Err(BodyError::TooLarge(_))
        ));
        let values = format!(r#" ["{id}", [], "http_call", "", ""]"#);
        assert!(matches!(Body::parse(values.as_bytes()), Err(BodyError::Unreadable(_))));
        let deep = "[".repeat(60_000);
        assert!(matches!(Body::parse(deep.as_bytes()), Err(BodyError::Unreadable(_))));
    }
}
