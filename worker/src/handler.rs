//! The trait that every task type implements, and the list of them.
//!
//! A handler never meets AMQP, claims or retries: it gets a payload and a context, and returns a
//! JSON value or a [`TaskError`].

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use shared::domain::outcome::TaskError;

use crate::context::Context;

/// Code for one task type.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Its name in messages, rows and configuration, e.g. `http_call`.
    fn task_type(&self) -> &'static str;

    /// One line for `worker handlers`.
    fn summary(&self) -> &'static str;

    /// JSON Schema of the payload, with `description`s and an `examples` entry.
    fn schema(&self) -> Value;

    /// Checks a payload at publish and at load: what is wrong, where, and what to do.
    fn check(&self, payload: &Value) -> Result<(), String>;

    /// Runs one attempt. It is stopped by dropping: at its timeout, at a cancel, at a lost lease.
    async fn run(&self, context: &Context, payload: Value) -> Result<Value, TaskError>;
}

/// Handlers by task type.
#[derive(Clone, Default)]
pub struct Handlers(BTreeMap<&'static str, Arc<dyn Handler>>);

impl Handlers {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one; a later one of the same type replaces it.
    #[must_use]
    pub fn with(mut self, handler: impl Handler + 'static) -> Self {
        self.0.insert(handler.task_type(), Arc::new(handler));
        self
    }

    /// The handler of a type.
    pub fn get(&self, task_type: &str) -> Option<Arc<dyn Handler>> {
        self.0.get(task_type).cloned()
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Handler>> {
        self.0.values()
    }
}
