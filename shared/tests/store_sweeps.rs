//! What comes back and who is refused: rescue, deadline, audit, replay, cancel, lost messages.
#![cfg(feature = "testing")]

mod house;

use std::time::Duration;

use futures::future::join_all;
use house::{House, completed, failure};
use shared::broker::{Operator, Publisher, Settings, Topology};
use shared::config;
use shared::domain::outcome::Outcome;
use shared::domain::task::{Semantics, TaskId, TaskState};
use shared::relay::Relay;
use shared::shutdown::Shutdown;
use shared::store::{Action, DeadFilter, Lost, Replayed};
use shared::sweeps::Sweeps;
use shared::testing::{PATIENCE, eventually, needed};

/// A backup that would leave everything to the leader.
const NEVER: Duration = Duration::from_secs(3600);
const POOL: &str = "io_pool";

#[tokio::test]
async fn a_rescued_task_runs_again_and_the_late_worker_is_refused() {
    let house = House::open().await;
    let (task, first) = (house.given(|_| ()).await, house.worker().await);
    let late = house.claimed(task, first).await;
    house.database.move_clock(60).await;
    let second = house.worker().await;

    let rescued = house.store.rescue().await.expect("swept");
    let again = house.claimed(task, second).await;
    let refused = house.record(&late, completed()).await;
    let accepted = house.record(&again, completed()).await;

    assert_eq!(rescued.len(), 1);
    assert!(refused.settlement.is_fenced() && accepted.settlement.is_ack());
    let row = house.store.task(task).await.expect("read").expect("a task");
    assert_eq!((row.summary.run, row.summary.crashes, row.summary.failures), (2, 1, 0));
    assert_eq!(row.attempts[0]["outcome"], "lease_expired");
}

#[tokio::test]
async fn a_claim_that_was_in_flight_when_its_worker_was_fenced_is_freed_by_the_next_sweep() {
    let house = House::open().await;
    let (task, by) = (house.given(|_| ()).await, house.worker().await);
    let _attempt = house.claimed(task, by).await;
    // Fenced by a statement that did not see the claim.
    let fence = format!("UPDATE workers SET fenced_at = belfry_now() WHERE id = '{}'", by.0);
    house.database.client().await.batch_execute(&fence).await.expect("fenced");

    let rescued = house.store.rescue().await.expect("swept");

    assert_eq!(rescued.len(), 1);
    assert_eq!(house.state(task).await, TaskState::Queued);
}

#[tokio::test]
async fn completion_and_rescue_race_without_a_contradiction() {
    let house = House::open().await;
    let (mut finished, mut rescued) = (0, 0);
    for _ in 0..30 {
        let (task, by) = (house.given(|_| ()).await, house.worker().await);
        let attempt = house.claimed(task, by).await;
        let fence = format!(
            "UPDATE workers SET lease_until = belfry_now() - interval '1 s' WHERE id = '{}'",
            by.0
        );
        house.database.client().await.batch_execute(&fence).await.expect("expired");

        let (recorded, swept) =
            tokio::join!(house.record(&attempt, completed()), house.store.rescue());

        let swept = swept.expect("swept").iter().any(|given| given.task == task);
        match (recorded.settlement.is_fenced(), swept, house.state(task).await) {
            (false, false, TaskState::Completed) => finished += 1,
            (true, true, TaskState::Queued) => rescued += 1,
            other => panic!("contradiction: fenced, swept, state = {other:?}"),
        }
    }
    assert_eq!(finished + rescued, 30);
}

#[tokio::test]
async fn three_crashes_make_a_dead_letter_and_one_alert() {
    let house = House::open().await;
    let task = house.given(|_| ()).await;

    for crash in 1..=3_i64 {
        let by = house.worker().await;
        let _attempt = house.claimed(task, by).await;
        house.database.move_clock(60 * crash).await;
        house.store.rescue().await.expect("swept");
    }

    assert_eq!(house.state(task).await, TaskState::Dead);
    let letters = house.store.dead_letters(&DeadFilter::default(), 10).await.expect("read");
    assert_eq!((letters.len(), letters[0].error_class.as_str()), (1, "crashed"));
    assert_eq!(house.store.alerts(10).await.expect("read").len(), 1);
}

/// What gets on between its crashes is no killer: a new step begins the count again. One that is kept
/// anew is none, or a killer could look alive by repeating itself.
#[tokio::test]
async fn a_crash_after_a_new_step_is_the_first_in_a_row() {
    let house = House::open().await;
    let task = house.given(|_| ()).await;
    let mut clock = 0;
    let mut crash_after = async |step: Option<(&str, &str)>| {
        let by = house.worker().await;
        let attempt = house.claimed(task, by).await;
        if let Some((name, input)) = step {
            let (hash, result) = (input.as_bytes(), serde_json::json!(1));
            let keep =
                house.store.keep_step(task, attempt.token, name, hash, &result, Duration::ZERO);
            assert!(keep.await.expect("kept"));
        }
        clock += 60;
        house.database.move_clock(clock).await;
        house.store.rescue().await.expect("swept");
        let row = house.store.task(task).await.expect("read").expect("a task");
        (row.summary.state, row.summary.crashes)
    };

    for turn in 1..=4 {
        let step = format!("turn-{turn}");
        assert_eq!(crash_after(Some((&step, "a"))).await, (TaskState::Queued, 1));
        assert_eq!(crash_after(None).await, (TaskState::Queued, 2));
    }
    assert_eq!(crash_after(Some(("turn-1", "b"))).await, (TaskState::Dead, 3));
}

#[tokio::test]
async fn an_overdue_attempt_is_given_back_though_its_worker_lives() {
    let house = House::open().await;
    let (task, by) =
        (house.given(|t| t.timeout = Duration::from_secs(1)).await, house.worker().await);
    let _attempt = house.claimed(task, by).await;
    house.database.move_clock(12).await;

    assert!(house.store.rescue().await.expect("swept").is_empty());
    let overdue = house.store.release_overdue().await.expect("swept");

    assert_eq!(overdue.len(), 1);
    assert_eq!(house.state(task).await, TaskState::Queued);
}

#[tokio::test]
async fn the_audit_gives_back_what_no_slot_holds_and_nothing_else() {
    let house = House::open().await;
    let by = house.worker().await;
    let held = house.claimed(house.given(|_| ()).await, by).await;
    let lost = house.claimed(house.given(|_| ()).await, by).await;

    let young = house.store.audit(by, &[held.token]).await.expect("audited");
    house.database.move_clock(11).await;
    let old = house.store.audit(by, &[held.token]).await.expect("audited");

    assert!(young.is_empty(), "a claim may be younger than the list of tokens");
    assert_eq!(old.iter().map(|g| g.task).collect::<Vec<_>>(), [lost.task_id]);
}

#[tokio::test]
async fn a_death_can_be_replayed_once() {
    let house = House::open().await;
    let (task, by) = (house.given(|_| ()).await, house.worker().await);
    let attempt = house.claimed(task, by).await;
    let recorded = house.record(&attempt, Outcome::Dead { failure: failure() }).await;
    let Action::DeadLetter { message } = recorded.settlement.into_action() else {
        panic!("a dead letter");
    };
    let letter = message.dead_letter.expect("a number");

    let racers = (0..6).map(|_| house.store.replay(letter, "me"));
    let answers: Vec<_> =
        join_all(racers).await.into_iter().map(|a| a.expect("answered")).collect();

    assert_eq!(answers.iter().filter(|a| matches!(a, Replayed::Queued(_))).count(), 1);
    assert_eq!(answers.iter().filter(|a| matches!(a, Replayed::NotOpen)).count(), 5);
    assert_eq!(house.store.replay(999, "me").await.expect("answered"), Replayed::Unknown);
    assert_eq!(house.claimed(task, by).await.run, 2);
}

#[tokio::test]
async fn an_at_most_once_task_whose_worker_vanished_is_dead_with_an_unknown_outcome() {
    let house = House::open().await;
    let task = house.given(|t| t.semantics = Semantics::AtMostOnce).await;
    let _attempt = house.claimed(task, house.worker().await).await;
    house.database.move_clock(60).await;

    house.store.rescue().await.expect("swept");

    let letters = house.store.dead_letters(&DeadFilter::default(), 10).await.expect("read");
    assert_eq!(letters[0].error_class, "unknown_outcome");
    assert_eq!(house.state(task).await, TaskState::Dead);
}

#[tokio::test]
async fn a_cancel_wins_over_a_failure_and_a_completion_wins_over_a_cancel() {
    let house = House::open().await;
    let by = house.worker().await;
    let (failing, completing) = (
        house.claimed(house.given(|_| ()).await, by).await,
        house.claimed(house.given(|_| ()).await, by).await,
    );
    let waiting = house.given(|_| ()).await;
    for task in [failing.task_id, completing.task_id, waiting] {
        house.store.cancel(task).await.expect("asked");
    }

    let retry = Outcome::Retry { delay: Duration::from_secs(1), failure: failure() };
    house.record(&failing, retry).await;
    house.record(&completing, completed()).await;

    assert_eq!(house.state(failing.task_id).await, TaskState::Cancelled);
    assert_eq!(house.state(completing.task_id).await, TaskState::Completed);
    assert_eq!(house.state(waiting).await, TaskState::Cancelled);
}

#[tokio::test]
async fn a_late_publish_mark_does_not_hide_a_task_that_was_given_back() {
    let house = House::open().await;
    let (task, by) = (house.given(|_| ()).await, house.worker().await);
    let attempt = house.claimed(task, by).await;
    let snooze = Outcome::Snooze { delay: Duration::ZERO, failure: failure() };
    house.record(&attempt, snooze).await;

    let late = house.store.mark_published(&[(task, 0)]).await.expect("marked");

    assert_eq!(late, 0);
    assert_eq!(house.store.unpublished(None, Duration::ZERO).await.expect("read").len(), 1);
}

#[tokio::test]
async fn a_lost_message_is_published_again_once_per_grace_and_a_backlog_is_left_alone() {
    let house = House::open().await;
    let task = house.given(|_| ()).await;
    house.store.mark_published(&[(task, 0)]).await.expect("marked");
    let grace = Duration::from_secs(15);
    let depth = |ready| [Lost { pool: "io_pool".to_owned(), ready }];
    let sweep = async |ready| house.store.find_lost(grace, &depth(ready)).await.expect("swept");

    assert!(sweep(0).await.is_empty(), "not yet");
    house.database.move_clock(20).await;
    assert!(sweep(1).await.is_empty(), "the broker still holds it");
    assert_eq!(sweep(0).await, [task]);
    house.store.mark_published(&[(task, 0)]).await.expect("marked");
    assert!(sweep(0).await.is_empty(), "inside the grace");
}

#[tokio::test]
async fn a_backup_publishes_what_its_own_sweep_gave_back_and_leaves_the_rest() {
    let house = House::open().await;
    let (prefix, shutdown) = (format!("test-{}", TaskId::new()), Shutdown::new());
    let settings = Settings::new(needed("AMQP_URL").into(), &prefix, "test@here#1");
    let topology = Topology::new(&prefix, [POOL]);
    let publisher = Publisher::start(&settings, &topology, &shutdown).expect("a valid URL");
    publisher.ready(PATIENCE).await.expect("a broker that answers");
    let relay = Relay::new(house.store.clone(), publisher.clone());
    let (backup, until) = (relay.clone(), shutdown.clone());
    shutdown.spawn(async move { backup.run(|| NEVER, &until).await });
    let (fresh, lost) = (house.given(|_| ()).await, house.given(|_| ()).await);
    let by = house.worker().await;
    let _held = house.claimed(lost, by).await;
    house.database.move_clock(60).await;

    let yaml = format!(
        "scheduler: {{heartbeat_interval: 1s, heartbeat_ttl: 3s}}\n\
         task_pools: {{{POOL}: {{max_workers: 1, task_types: [probe]}}}}"
    );
    let config = config::load_str(&yaml, "belfry.yaml", &|_| None).expect("a configuration");
    let (sweeps, until) =
        (Sweeps::new(house.store.clone(), publisher, relay, &config), shutdown.clone());
    shutdown.spawn(async move { sweeps.run(&until).await });

    eventually("what was given back is published", async || {
        let left = house.store.unpublished(None, Duration::ZERO).await.expect("read");
        let left: Vec<_> = left.iter().map(|task| task.message.task_id).collect();
        (left == [fresh]).then_some(())
    })
    .await;
    shutdown.soft.cancel();
    shutdown.hard.cancel();
    shutdown.drained().await;
    let operator = Operator::connect(&settings).await.expect("a broker");
    operator.delete_all(&topology).await.expect("deleted");
    operator.close().await;
}
