//! The worker is killed with SIGKILL at each of twenty steps, while the step's call is on its way.

use loadtest::fleet::Role;
use serde_json::json;
use shared::domain::task::TaskState;
use shared::testing::within;

use crate::house::{House, PATIENCE, outcomes};
use crate::{calls, house, journal, session};

/// Ten turns, whose first nine leave ten effects: twenty steps.
const PLAN: [usize; 9] = [1, 1, 2, 1, 1, 1, 1, 1, 1];
const STEPS: usize = 20;
const TURNS: usize = 10;

/// Steps whose call has arrived at least once: answers change the question, and keys are of a step.
fn begun(house: &House) -> usize {
    let mut questions: Vec<_> = house.outside.calls().into_iter().map(|it| it.messages).collect();
    questions.dedup();
    questions.len() + house.outside.effects().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_each_of_its_twenty_steps_a_session_pays_only_for_the_calls_on_their_way() {
    let house = house("session_killed").await;
    let mut workers = vec![house.started(Role::Worker).await];
    let undisturbed = house.given(session(&house, &PLAN)).await;
    let expected = house.is(undisturbed, TaskState::Completed).await.result.expect("a result");
    assert_eq!(expected["turns"], TURNS);
    let (calls_before, begun_before) = (calls(&house), begun(&house));
    assert_eq!((calls_before, begun_before), (STEPS, STEPS), "undisturbed, each step is one call");

    let task = house.given(session(&house, &PLAN)).await;
    for kill in 1..=STEPS {
        within(PATIENCE, &format!("step {kill} is on its way"), async || {
            (begun(&house) - begun_before >= kill).then_some(())
        })
        .await;
        let victim = workers.pop().expect("a worker");
        victim.kill().await.expect("killed");
        workers.push(house.started(Role::Worker).await);
    }
    let row = house.is(task, TaskState::Completed).await;

    assert_eq!(row.result.as_ref(), Some(&expected), "as if nothing had happened");
    assert_eq!(calls(&house) - calls_before, STEPS + STEPS, "steps and calls on their way");
    let (done, unknown) =
        (journal(&house, task, "done").await, journal(&house, task, "unknown").await);
    assert_eq!((done, unknown), (TURNS, TURNS), "the journal has a reason for each further call");
    let requests = house.outside.effects();
    let of_task = |key: &&String| key.starts_with(&task.to_string());
    assert_eq!(requests.keys().filter(of_task).count(), STEPS - TURNS, "each effect happened once");
    let ends = outcomes(&row);
    let crashed = ends.iter().filter(|end| **end == "lease_expired").count();
    assert_eq!((crashed, ends.last()), (STEPS, Some(&"completed")), "{ends:?}");
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 1), "it got on between any two");
    assert_eq!(row.steps.as_array().map(Vec::len), Some(STEPS));
    assert_eq!(row.steps[0]["name"], json!("turn-001"));
    house.close(workers).await;
}
