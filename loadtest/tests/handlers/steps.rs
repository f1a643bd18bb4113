//! Steps: what is kept, what is run again, and who may keep.

use serde_json::{Value, json};
use shared::domain::attempt::Attempt;
use shared::domain::outcome::{ErrorClass, TaskError};

use crate::house::House;

/// Runs a step of an attempt; `ran` counts.
async fn step(house: &House, attempt: &Attempt, input: &Value, ran: &mut u32) -> u32 {
    let context = house.context(attempt);
    let work = async {
        *ran += 1;
        Ok(*ran)
    };
    context.step("count", input, work).await.expect("kept")
}

#[tokio::test]
async fn a_kept_step_is_not_run_again_unless_its_input_has_changed() {
    let house = House::open("").await;
    let task = house.task("probe", json!({})).await;
    let first = house.attempt(task).await;
    let mut ran = 0;
    assert_eq!(step(&house, &first, &json!({"n": 1}), &mut ran).await, 1);
    assert_eq!(step(&house, &first, &json!({"n": 1}), &mut ran).await, 1);
    house.lose(&first).await;

    let second = house.attempt(task).await;
    assert_eq!(step(&house, &second, &json!({"n": 1}), &mut ran).await, 1, "kept by the first");
    // Another input is other code, or another payload: what was kept is no answer to it.
    assert_eq!(step(&house, &second, &json!({"n": 2}), &mut ran).await, 2);
    assert_eq!(step(&house, &second, &json!({"n": 2}), &mut ran).await, 2);

    let row = house.store.task(task).await.expect("read").expect("a task");
    assert_eq!(row.steps.as_array().map(Vec::len), Some(1));
    // The attempt stays the first one: what is done anew is no progress.
    assert_eq!((&row.steps[0]["run"], &row.steps[0]["result"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn who_has_lost_the_claim_keeps_nothing() {
    let house = House::open("").await;
    let task = house.task("probe", json!({})).await;
    let late = house.attempt(task).await;
    house.lose(&late).await;
    let current = house.attempt(task).await;

    let context = house.context(&late);
    let kept: Result<u32, TaskError> = context.step("count", &json!(1), async { Ok(7) }).await;

    assert_eq!(kept.expect_err("fenced").class(), ErrorClass::Interrupted);
    let mut ran = 0;
    assert_eq!(step(&house, &current, &json!(1), &mut ran).await, 1, "nothing of the late one's");
}
