//! A payload at rest: its text, a tenth of the size of the tree that it is when somebody reads it.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// A schedule's input as JSON text; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload(Arc<str>);

impl Payload {
    /// The tree.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).expect("a text that a tree was written as")
    }

    /// The text, keys sorted.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Value> for Payload {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
