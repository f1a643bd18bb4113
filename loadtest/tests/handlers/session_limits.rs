//! Where a session ends, and where an attempt at it does: limits, hand-over, a spent budget.

use serde_json::{Value, json};
use shared::domain::outcome::{ErrorClass, TaskError};

use crate::house::{House, fate};
use crate::session::{call, effects, steps};

/// A plan of turns with one effect each.
fn plan(turns: usize) -> Value {
    vec![vec![call("leave_effect", &json!({}))]; turns].into()
}

fn limited(house: &House, turns: usize, limits: Value) -> Value {
    let mut asked = effects(house, &plan(turns));
    asked["limits"] = limits;
    asked
}

/// Ten steps are an attempt's share; the session goes on in its next message and pays nothing twice.
#[tokio::test]
async fn a_long_session_hands_over_between_steps_at_no_cost() {
    let house = House::open("").await;
    let task = house.task("agent_session", limited(&house, 12, json!({"steps": 40}))).await;

    let mut handed = 0;
    let result = loop {
        match house.once(task).await {
            Ok(result) => break result,
            Err(TaskError::HandOver(failure)) => {
                handed += 1;
                assert!(failure.message.contains("handed over after 10 steps"), "{failure}");
            }
            Err(other) => panic!("{other}"),
        }
    };

    assert_eq!((handed, &result["turns"], &result["tool_calls"]), (2, &json!(13), &json!(12)));
    assert_eq!(house.stub.calls().len(), 13);
    let row = house.store.task(task).await.expect("read").expect("a task");
    assert_eq!((row.summary.run, row.summary.failures, row.summary.crashes), (3, 0, 0));
    let outcomes: Vec<_> = row.attempts.iter().map(|it| it["outcome"].clone()).collect();
    assert_eq!(outcomes, ["released", "released", "completed"]);
    assert_eq!(row.attempts[0]["delay_ms"], 0);
}

#[tokio::test]
async fn a_worker_that_is_told_to_stop_hands_over_at_the_next_step() {
    let house = House::open("").await;
    let task = house.task("agent_session", effects(&house, &plan(2))).await;
    house.draining.cancel();
    let (seen, failure) = fate(house.once(task).await);
    assert_eq!((seen, failure.class), ("hand over", ErrorClass::Interrupted));
    assert!(failure.message.contains("the worker was told to stop"), "{failure}");
    assert_eq!(house.stub.calls().len(), 0);
}

/// A limit ends the session for good, says which and what to do, and keeps its steps. A replay is leave
/// for as much once more.
#[tokio::test]
async fn each_limit_is_a_dead_letter_from_which_a_replay_goes_on() {
    let house = House::open("").await;
    for (limit, value) in [
        ("steps", json!(4)),
        ("tokens", json!(150)),
        ("cost", json!(0.000_001)),
        ("wall_time", json!("1ms")),
    ] {
        let mut asked = limited(&house, 3, json!({ limit: value }));
        asked["goal"] = format!("{limit}: {}", asked["goal"].as_str().expect("text")).into();
        let task = house.task("agent_session", asked).await;
        let (seen, failure) = fate(house.once(task).await);
        assert_eq!((seen, failure.class), ("dead", ErrorClass::Permanent), "{limit}: {failure}");
        for words in [&format!("limit of {limit}"), "dead replay", &format!("limits.{limit}")] {
            assert!(failure.message.contains(words), "{failure}");
        }
        let kept = steps(&house, task).await;
        house.replay(task).await;
        let mut replays = 1;
        while limit == "steps" && house.once(task).await.is_err() {
            house.replay(task).await;
            replays += 1;
        }
        if limit == "steps" {
            assert_eq!((kept.len(), replays), (4, 1), "four steps, and three more");
            assert_eq!(steps(&house, task).await.len(), 7);
        }
    }
}

/// A limit of money needs a price.
#[tokio::test]
async fn a_limit_of_cost_needs_a_price() {
    let house = House::open("").await;
    let mut asked = limited(&house, 1, json!({"cost": 1}));
    asked["model"] = json!("stub-session-1");
    let (seen, failure) = fate(house.first("agent_session", asked).await);
    assert_eq!(seen, "dead");
    assert!(failure.message.contains("model.prices"), "{failure}");
}

/// The day's budget is spent in the middle of a session: it is parked, not dead, and goes on from its
/// last step when there is money again.
#[tokio::test]
async fn a_session_over_the_budget_is_parked_and_goes_on_the_next_day() {
    let house = House::open("").await;
    let mut asked = effects(&house, &plan(2));
    let flaky = format!("{}/flaky?key=budget&fail=1", house.stub.url);
    asked["tools"][0]["payload"] = json!({ "url": flaky });
    let task = house.task("agent_session", asked).await;
    assert_eq!(fate(house.once(task).await).0, "retry", "after its first turn");
    let client = house.database.client().await;
    let spent =
        "UPDATE llm_quotas SET daily_tokens = 9000, used_tokens = 8999 WHERE name = 'stub-session'";
    assert_eq!(client.execute(spent, &[]).await.expect("a budget"), 1);

    let (seen, failure) = fate(house.once(task).await);

    assert_eq!((seen, failure.class), ("snooze", ErrorClass::Throttled));
    assert!(failure.message.contains("daily budget"), "{failure}");
    assert_eq!(steps(&house, task).await, ["tool-001-1", "turn-001"]);
    assert_eq!(house.stub.calls().len(), 1);

    let more = "UPDATE llm_quotas SET daily_tokens = NULL WHERE name = 'stub-session'";
    client.execute(more, &[]).await.expect("more");
    house.once(task).await.expect("completed");
    assert_eq!(house.stub.calls().len(), 3, "each turn once");
}
