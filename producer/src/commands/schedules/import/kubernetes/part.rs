//! A part of a document: whatever key of it nobody takes can be named.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// A mapping whose keys are taken one by one; what nobody took is told.
pub(super) struct Part<'a> {
    path: String,
    map: Option<&'a Map<String, Value>>,
    taken: RefCell<BTreeSet<String>>,
}

impl<'a> Part<'a> {
    pub(super) fn of(value: &'a Value, path: &str) -> Self {
        Self { path: path.to_owned(), map: value.as_object(), taken: RefCell::default() }
    }

    pub(super) fn take(&self, key: &str) -> Option<&'a Value> {
        let value = self.map?.get(key)?;
        self.taken.borrow_mut().insert(key.to_owned());
        (!value.is_null()).then_some(value)
    }

    pub(super) fn part(&self, key: &str) -> Part<'a> {
        Part::of(self.take(key).unwrap_or(&Value::Null), &self.path_of(key))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        self.typed(key, "a text", Value::as_str)
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, String> {
        self.typed(key, "a number", Value::as_u64)
    }

    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>, String> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(super) fn list(&self, key: &str) -> Result<&'a [Value], String> {
        let list = self.typed(key, "a list", |value| value.as_array())?;
        Ok(list.map_or(&[], Vec::as_slice))
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, String> {
        let text = |value: &Value| match value {
            Value::String(text) => Ok(text.clone()),
            _ => Err(format!("{}: expected texts", self.path_of(key))),
        };
        self.list(key)?.iter().map(text).collect()
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let wrong = || format!("{}: expected {expected}", self.path_of(key));
        self.take(key).map(|value| read(value).ok_or_else(wrong)).transpose()
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Paths of the keys that nobody took.
    pub(super) fn rest(&self) -> Vec<String> {
        let taken = self.taken.borrow();
        let keys = self.map.into_iter().flat_map(|map| map.keys());
        keys.filter(|key| !taken.contains(*key)).map(|key| self.path_of(key)).collect()
    }
}
