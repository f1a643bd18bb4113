//! A session that does not end where it began: handed over, moved by a deploy, cancelled.

use std::time::{Duration, Instant};

use loadtest::fleet::Role;
use loadtest::stub_llm::Fault;
use shared::domain::task::TaskState;
use shared::testing::within;

use crate::house::{PATIENCE, outcomes, signal, told};
use crate::{calls, house, journal, session};

/// More than an attempt's share: the next message goes on with it, at no cost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_session_goes_on_in_its_next_message() {
    let house = house("session_long").await;
    let worker = house.started(Role::Worker).await;
    let task = house.given(session(&house, &[1; 6])).await;

    let row = house.is(task, TaskState::Completed).await;

    assert_eq!(outcomes(&row), ["released", "completed"]);
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 0));
    assert_eq!(calls(&house), 13);
    let said = row.attempts[0]["error_message"].as_str().expect("a reason");
    assert!(said.contains("handed over after 10 steps"), "{said}");
    house.close(vec![worker]).await;
}

/// A deploy: the worker is told to stop in the middle of a turn. It ends the turn and hands over; no
/// call is made twice, and nothing is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_survives_a_deploy_without_a_call_too_many() {
    let house = house("session_deploy").await;
    let old = house.started(Role::Worker).await;
    let task = house.given(session(&house, &[1, 1])).await;
    within(PATIENCE, "a turn is on its way", async || (calls(&house) == 1).then_some(())).await;

    signal(&old, "TERM").await;
    assert!(old.ended(PATIENCE).await.expect("ended").success());
    let new = house.started(Role::Worker).await;
    let row = house.is(task, TaskState::Completed).await;

    assert_eq!(outcomes(&row), ["released", "completed"]);
    let said = row.attempts[0]["error_message"].as_str().expect("a reason");
    assert!(said.contains("handed over after 1 steps"), "{said}");
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 0));
    assert_eq!((calls(&house), journal(&house, task, "unknown").await), (5, 0));
    house.close(vec![new]).await;
}

/// In the middle of a turn that would take an hour: gone within two seconds, with its steps to be seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_session_ends_at_once_and_keeps_its_steps() {
    let house = house("session_cancel").await;
    let worker = house.started(Role::Worker).await;
    let task = house.given(session(&house, &[1, 1])).await;
    // Behind a thousand slow answers nobody waits: its own model hangs.
    let mut hanging = session(&house, &[]);
    hanging.payload["model"] = "hanging".into();
    house.outside.script("hanging", vec![Fault { hang_ms: 3_600_000, ..Fault::default() }]);
    let hanging = house.given(hanging).await;
    house.is(task, TaskState::Completed).await;
    within(PATIENCE, "the turn is on its way", async || {
        (journal(&house, hanging, "sent").await == 1).then_some(())
    })
    .await;

    let asked = Instant::now();
    let state = house.door.store.cancel(hanging).await.expect("asked");
    assert_eq!(state, Some(TaskState::Running));
    let row = house.is(hanging, TaskState::Cancelled).await;

    let took = asked.elapsed();
    assert!(took <= Duration::from_secs(2), "it took {took:?}");
    assert_eq!(outcomes(&row), ["cancelled"]);
    assert_eq!(journal(&house, hanging, "unknown").await, 1, "it may have been billed");

    let shown = house.command(&["tasks", "show", &task.to_string()], &[]).await;
    let shown = told(&shown);
    for words in ["turn-001", "tool-001-1", "leave_effect", "Done after 2 turns"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    house.close(vec![worker]).await;
}
