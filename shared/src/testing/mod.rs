//! A house for tests: a database of their own on a real server, a broker prefix of their own.
//!
//! Behind the feature `testing`; never part of a release. A test that finds no service fails with
//! one clear line.

mod database;
mod unique;

use crate::domain::schedule::Schedule;
use crate::store::Store;

pub use database::TestDatabase;
pub use unique::Unique;

use std::future::Future;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// How long a test waits for a condition unless it says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A variable that a test needs, or a clear end.
#[expect(clippy::disallowed_methods, reason = "tests read where script/services put the services")]
pub fn needed(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `script/services up` and `eval \"$(script/services env)\"`"
        )
    })
}

/// Says what could not be looked at here, in the words that `script/test` counts.
#[expect(clippy::disallowed_methods, reason = "script/test tells where it counts")]
pub fn not_run(reason: &str) {
    println!("NOT RUN: {reason}");
    let Ok(list) = std::env::var("BELFRY_NOT_RUN") else { return };
    let mut list = std::fs::OpenOptions::new().append(true).open(list).expect("the list");
    writeln!(list, "NOT RUN: {reason}").expect("written");
}

/// Puts schedules in force beside those that are, as a leader does with new ones; answers the
/// revision.
pub async fn put_in_force(store: &Store, schedules: &[Schedule]) -> i64 {
    let file = store.file_in_force().await.expect("answered");
    let apply = store.begin_apply(file.revision).await.expect("answered");
    let mut apply = apply.expect("nobody else applies");
    let schedules: Vec<&Schedule> = schedules.iter().collect();
    apply.put(&schedules).await.expect("put");
    apply.commit(file.now, "test").await.expect("committed")
}

/// Waits until `probe` answers something, polling; panics with `what` after [`PATIENCE`].
pub async fn eventually<T, F, Fut>(what: &str, probe: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    within(PATIENCE, what, probe).await
}

/// As [`eventually`], with a deadline of the caller's.
pub async fn within<T, F, Fut>(patience: Duration, what: &str, mut probe: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(started.elapsed() < patience, "not within {patience:?}: {what}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}
