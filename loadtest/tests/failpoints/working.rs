//! In the worker, from the claim to the ack: `after_claim`, `after_effect`, `after_record`, `in_retry`,
//! `before_mark`, `before_ack`.

use loadtest::fleet::Role;
use serde_json::json;
use shared::domain::task::{NewTask, TaskState};
use shared::store::TaskRow;

use crate::house::{House, died, outcomes, probe};

/// What was left of a task whose first worker died at a point, and that another has completed.
struct Story {
    row: TaskRow,
    requests: u64,
}

async fn story(name: &str, point: &str, task: impl FnOnce(&House) -> NewTask) -> Story {
    let house = House::open(name, "").await;
    let victim = house.armed(Role::Worker, point).await;

    let task = house.given(task(&house)).await;
    died(victim, point).await;
    let heir = house.started(Role::Worker).await;
    let row = house.is(task, TaskState::Completed).await;

    house.quiet().await;
    let requests = house.requests(task);
    assert!(house.letters().await.is_empty());
    house.close(vec![heir]).await;
    Story { row, requests }
}

/// Fails once, and is retried after a second.
fn failing_once(_: &House) -> NewTask {
    probe(json!({"mode": "retry", "fail_times": 1}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_the_claim_costs_a_crash_and_the_task_runs_again() {
    let Story { row, requests } = story("after_claim", "after_claim", House::effect).await;

    assert_eq!(outcomes(&row), ["lease_expired", "completed"]);
    assert_eq!(row.attempts[0]["error_class"], "crashed");
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 1));
    assert_eq!(requests, 1, "the first attempt had not begun");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_the_effect_repeats_it_under_the_same_key() {
    let Story { row, requests } = story("after_effect", "after_effect", House::effect).await;

    assert_eq!(outcomes(&row), ["lease_expired", "completed"]);
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 1));
    assert_eq!(requests, 2, "both attempts sent the task's own key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_the_record_repeats_nothing() {
    let Story { row, requests } = story("after_record", "after_record", House::effect).await;

    assert_eq!(outcomes(&row), ["completed"]);
    assert_eq!((row.summary.crashes, requests), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_between_record_and_ack_repeats_nothing() {
    let Story { row, requests } = story("before_ack", "before_ack", House::effect).await;

    assert_eq!(outcomes(&row), ["completed"]);
    assert_eq!((row.summary.crashes, requests), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_before_the_retrys_message_delays_it_and_no_more() {
    let Story { row, .. } = story("in_retry", "in_retry", failing_once).await;

    assert_eq!(outcomes(&row), ["retry", "completed"]);
    assert_eq!((row.summary.failures, row.summary.crashes), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_published_and_not_marked_runs_once() {
    let Story { row, .. } = story("retry_mark", "before_mark", failing_once).await;

    assert_eq!(outcomes(&row), ["retry", "completed"]);
    assert_eq!((row.summary.failures, row.summary.crashes), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_published_and_not_acked_runs_once_and_not_early() {
    let Story { row, .. } = story("retry_ack", "before_ack", failing_once).await;

    // That it was not early is a question of the audit.
    assert_eq!(outcomes(&row), ["retry", "completed"]);
    assert_eq!((row.summary.failures, row.summary.crashes), (1, 0));
}
