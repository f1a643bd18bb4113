//! Tasks that must not run twice, and a worker that dies over each of them at another point: whatever
//! may have begun is never begun again, and what nobody knows goes to a person.

use std::collections::BTreeMap;

use loadtest::fleet::{Launch, Member, Role};
use serde_json::json;
use shared::domain::task::{NewTask, Semantics, TaskId, TaskState};

use crate::house::{House, died, outcomes, probe, told};

/// A pool for each point, so that each has a worker and a task of its own.
const POINTS: [&str; 6] =
    ["after_claim", "after_effect", "after_record", "before_ack", "in_dead_letter", "in_retry"];

fn pools() -> String {
    // A type belongs to one pool; where a task runs, its own row says.
    let pools = POINTS.map(|point| {
        let types = if point == POINTS[0] {
            "probe, http_call".to_owned()
        } else {
            format!("only_{point}")
        };
        format!("  {point}: {{max_workers: 1, task_types: [{types}]}}\n")
    });
    format!("task_pools:\n{}", pools.concat())
}

fn once(mut task: NewTask, pool: &str) -> NewTask {
    pool.clone_into(&mut task.pool);
    task.semantics = Semantics::AtMostOnce;
    task
}

async fn victim(house: &House, point: &str) -> Member {
    let armed = format!("{point}:abort");
    let how = Launch {
        arguments: &["--pool", point],
        variables: &[("BELFRY_FAILPOINT", &armed)],
        ..Launch::default()
    };
    house.launched(Role::Worker, &how).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_once_is_once_wherever_the_worker_dies() {
    let house = House::with("once", &pools()).await;
    let mut victims = Vec::new();
    let mut tasks: BTreeMap<&str, TaskId> = BTreeMap::new();
    for point in POINTS {
        victims.push((point, victim(&house, point).await));
        let task = match point {
            "in_dead_letter" => probe(json!({"mode": "retry"})),
            "in_retry" => probe(json!({"mode": "snooze", "fail_times": 1})),
            _ => house.effect(),
        };
        tasks.insert(point, house.given(once(task, point)).await);
    }
    for (point, victim) in victims {
        died(victim, point).await;
    }
    let heirs = vec![house.started(Role::Producer).await, house.started(Role::Worker).await];

    for (point, state, ended, class, requests) in [
        ("after_claim", TaskState::Dead, ["lease_expired"].as_slice(), Some("unknown_outcome"), 0),
        ("after_effect", TaskState::Dead, &["lease_expired"], Some("unknown_outcome"), 1),
        ("after_record", TaskState::Completed, &["completed"], None, 1),
        ("before_ack", TaskState::Completed, &["completed"], None, 1),
        // It failed: that it may have had its effect is reason enough.
        ("in_dead_letter", TaskState::Dead, &["dead"], Some("retryable"), 0),
        // The handler said itself that nothing was done.
        ("in_retry", TaskState::Completed, &["snooze", "completed"], None, 0),
    ] {
        let task = tasks[point];
        let row = house.is(task, state).await;
        assert_eq!(outcomes(&row), ended, "{point}");
        assert_eq!(row.summary.error_class.as_deref(), class, "{point}");
        assert_eq!(house.requests(task), requests, "{point}");
    }
    assert_eq!(house.letters().await.len(), 3);
    assert_eq!(house.count("SELECT count(*) FROM alerts").await, 3);

    // A replay is a person's word, and good for one more run.
    let letter = house.letters().await;
    let letter = letter.iter().find(|letter| letter.task_id == Some(tasks["after_effect"].0));
    let letter = letter.expect("a letter").id.to_string();
    let replay = ["dead", "replay", letter.as_str()];
    let dead = house.command(&replay, &[("BELFRY_FAILPOINT", "in_replay:abort")]).await;
    assert_eq!(dead.status.code(), None, "it was not killed: {}", told(&dead));
    let row = house.is(tasks["after_effect"], TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["lease_expired", "completed"]);
    assert_eq!(house.requests(tasks["after_effect"]), 2);
    house.close(heirs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_once_is_once_though_its_rescuer_dies_too() {
    let house = House::open("once_rescue", "").await;
    let worker = house.started(Role::Worker).await;
    let task = house.given(once(probe(json!({"mode": "hang"})), "io_pool")).await;
    house.runs(task, 1).await;
    let rescuer = house.armed(Role::Producer, "in_rescue").await;

    worker.kill().await.expect("killed");
    died(rescuer, "in_rescue").await;
    let heirs = vec![house.started(Role::Producer).await, house.started(Role::Worker).await];

    let row = house.is(task, TaskState::Dead).await;
    house.has(&house.ground.topology().dead(), 1).await;
    assert_eq!(outcomes(&row), ["lease_expired"]);
    assert_eq!(row.summary.error_class.as_deref(), Some("unknown_outcome"));
    let letters = house.letters().await;
    assert_eq!((letters.len(), letters[0].error_class.as_str()), (1, "unknown_outcome"));
    assert_eq!(house.count("SELECT count(*) FROM alerts").await, 1);
    house.close(heirs).await;
}
