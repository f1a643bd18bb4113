//! A payload at rest: its text, a tenth of the size of the tree that it is when somebody reads it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::Value;
use serde_json::value::RawValue;

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

impl Serialize for Payload {
    /// As the JSON that it is. Written to a text, no tree is made on the way.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
