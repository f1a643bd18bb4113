//! What the drill gave away, and how each of it must end: the side of the account that the house
//! never sees.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use shared::domain::task::{NewTask, TaskId};
use tokio::time::Instant;

/// How a task must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With its result.
    Completed,
    /// Among the dead letters, of this class.
    Dead(&'static str),
    /// Completed, or dead of an unknown outcome: it must not rerun, or not be paid again.
    Once,
    /// Cancelled.
    Cancelled,
}

/// What a task is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ends as told, and that is all.
    Plain,
    /// Writes a row in its completing transaction.
    Effect,
    /// Tells the outside by its idempotency key.
    Outside,
    /// Asks the model once.
    Question,
}

/// An accepted task.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What it is there for.
    pub kind: Kind,
    /// How it must end.
    pub end: End,
}

/// A request that was dropped into the inbox.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its body.
    pub body: Value,
    /// When it was last confirmed by the broker; `None` until then.
    pub confirmed: Option<Instant>,
    /// True once its task was seen.
    pub taken: bool,
}

#[derive(Debug, Default)]
struct Inner {
    tasks: BTreeMap<TaskId, Entry>,
    requests: BTreeMap<String, Request>,
    /// Since when nothing is broken; `None` while something is.
    whole_since: Option<Instant>,
    asked_again: u64,
    refused: u64,
    trouble: Option<String>,
}

/// See the module. Clones are the same book.
#[derive(Clone, Debug, Default)]
pub struct Book(Arc<Mutex<Inner>>);

impl Book {
    /// Writes tasks down before they are handed in: what cannot be handed in is a failed drill.
    pub fn write(&self, tasks: &[NewTask], entry: Entry) {
        self.lock().tasks.extend(tasks.iter().map(|task| (task.id, entry)));
    }

    /// All tasks.
    pub fn tasks(&self) -> BTreeMap<TaskId, Entry> {
        self.lock().tasks.clone()
    }

    /// Writes a request down.
    pub fn request(&self, key: &str, body: Value) {
        let request = Request { body, confirmed: None, taken: false };
        self.lock().requests.insert(key.to_owned(), request);
    }

    /// The broker has confirmed it.
    pub fn confirmed(&self, key: &str) {
        if let Some(request) = self.lock().requests.get_mut(key) {
            request.confirmed = Some(Instant::now());
        }
    }

    /// Their tasks are there.
    pub fn taken(&self, keys: &[String]) {
        let mut inner = self.lock();
        for key in keys {
            if let Some(request) = inner.requests.get_mut(key) {
                request.taken = true;
            }
        }
    }

    /// Requests that have no task yet.
    pub fn open_requests(&self) -> Vec<String> {
        let inner = self.lock();
        let open = inner.requests.iter().filter(|(_, request)| !request.taken);
        open.map(|(key, _)| key.clone()).collect()
    }

    /// A fault strikes: what does not come may only be late.
    pub fn broken(&self) {
        self.lock().whole_since = None;
    }

    /// Everything is healed and ready: what does not come now is lost.
    pub fn whole(&self) {
        self.lock().whole_since.get_or_insert_with(Instant::now);
    }

    /// Requests to be sent: those that no broker has confirmed, and those that have no task so long
    /// after it did and the house is whole. The latter are counted as asked again.
    pub fn to_send(&self, patience: Duration) -> Vec<(String, Value)> {
        let mut inner = self.lock();
        let mut again = 0;
        let is_whole = inner.whole_since.is_some_and(|since| since.elapsed() > patience);
        let open = inner.requests.iter().filter(|(_, request)| !request.taken);
        let due = open.filter(|(_, request)| match request.confirmed {
            None => true,
            Some(at) => {
                let late = is_whole && at.elapsed() > patience;
                again += u64::from(late);
                late
            }
        });
        let due = due.map(|(key, request)| (key.clone(), request.body.clone())).collect();
        inner.asked_again += again;
        due
    }

    /// The keys of all requests.
    pub fn request_keys(&self) -> Vec<String> {
        self.lock().requests.keys().cloned().collect()
    }

    /// How many requests there are, and how many were sent again because their task did not come.
    pub fn requests(&self) -> (usize, u64) {
        let inner = self.lock();
        (inner.requests.len(), inner.asked_again)
    }

    /// So many messages were sent to the inbox that nobody can turn into tasks.
    pub fn refused(&self, count: u64) {
        self.lock().refused += count;
    }

    /// How many those are.
    pub fn all_refused(&self) -> u64 {
        self.lock().refused
    }

    /// Why the load had to stop, the first reason.
    pub fn fail(&self, trouble: String) {
        self.lock().trouble.get_or_insert(trouble);
    }

    /// The reason, if there is one.
    pub fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_until_its_task_is_there_and_repeats_are_counted() {
        let book = Book::default();
        book.request("a", Value::Null);
        let keys = |patience| -> Vec<String> {
            book.to_send(patience).into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(keys(Duration::MAX), ["a"], "nobody has confirmed it");

        book.confirmed("a");
        assert!(keys(Duration::ZERO).is_empty(), "nobody knows yet that all is well");
        book.whole();
        assert!(keys(Duration::MAX).is_empty());
        assert_eq!(keys(Duration::ZERO), ["a"], "its task does not come");
        book.broken();
        assert!(keys(Duration::ZERO).is_empty(), "it may be held where the fault is");
        assert_eq!(book.requests(), (1, 1));

        book.taken(&["a".to_owned()]);
        assert!(keys(Duration::ZERO).is_empty() && book.open_requests().is_empty());
        assert_eq!(book.requests(), (1, 1));
    }
}
