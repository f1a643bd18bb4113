//! What retention deletes, what it leaves, and that those who prune at once share the work.
#![cfg(feature = "testing")]

mod house;

use std::time::Duration;

use house::{House, completed, failure};
use serde_json::json;
use shared::config::Retention;
use shared::domain::outcome::Outcome;
use shared::domain::task::{Due, NewTask, TaskId, TaskState};
use shared::store::{
    Admission, CHUNK, CallEnd, CallStart, DeadFilter, NewArtifact, NewCall, Pruned, UsageBy,
    UsageRow,
};

const DAY: Duration = Duration::from_hours(24);

fn keep() -> Retention {
    Retention { completed: DAY * 30, dead: DAY * 90, execution_keys: DAY * 90, artifacts: None }
}

async fn days_later(house: &House, days: i64) {
    house.database.move_clock(days * 24 * 3600).await;
}

async fn count(house: &House, sql: &str) -> i64 {
    house.database.client().await.query_one(sql, &[]).await.expect(sql).get(0)
}

async fn rows(house: &House, table: &str) -> i64 {
    count(house, &format!("SELECT count(*) FROM {table}")).await
}

async fn letter_of(house: &House, task: TaskId) -> i64 {
    let letters = house.store.dead_letters(&DeadFilter::default(), 100).await.expect("read");
    letters.iter().find(|letter| letter.task_id == Some(task.0)).expect("an open letter").id
}

async fn dead(house: &House) -> TaskId {
    let task = house.given(|_| ()).await;
    let attempt = house.claimed(task, house.worker().await).await;
    let _ = house.record(&attempt, Outcome::Dead { failure: failure() }).await;
    task
}

#[tokio::test]
async fn a_task_goes_with_all_that_hangs_on_it_and_its_key_and_report_stay() {
    let house = House::open().await;
    let task = house.given(|_| ()).await;
    let attempt = house.claimed(task, house.worker().await).await;
    let took = Duration::from_millis(1);
    let kept = house.store.keep_step(task, attempt.token, "s", b"i", &json!(1), took).await;
    assert!(kept.expect("kept"));
    let call = NewCall {
        id: uuid::Uuid::new_v4(),
        call_no: 1,
        request_hash: b"q".to_vec(),
        endpoint: "model:80".to_owned(),
        model: "m".to_owned(),
        traceparent: None,
        est_tokens: 10,
        est_cost_micro: None,
    };
    let at = CallStart { task, token: attempt.token, step: "s" };
    let admitted = house.store.call_admit(at, &call).await.expect("answered");
    assert!(matches!(admitted, Admission::Granted), "{admitted:?}");
    let end = CallEnd {
        response: Some(json!({})),
        input_tokens: Some(7),
        output_tokens: Some(3),
        cost_micro: Some(20),
        ..CallEnd::default()
    };
    house.store.call_ended(call.id, &end).await.expect("ended");
    let other = NewCall { id: uuid::Uuid::new_v4(), call_no: 2, ..call };
    house.store.call_admit(at, &other).await.expect("answered");
    let report = NewArtifact {
        report: "r".to_owned(),
        date: "2026-08-14".to_owned(),
        content_type: "text/plain".to_owned(),
        content: b"all is well".to_vec(),
    };
    house.store.keep_artifact(task, attempt.token, &report).await.expect("kept");
    let _ = house.record(&attempt, completed()).await;
    days_later(&house, 31).await;
    let held = house.store.prune(&keep()).await.expect("pruned");
    assert_eq!(held.tasks, 0, "a call under way holds a part of its quota");
    house.store.end_lost_calls().await.expect("swept");
    let paid = usage(&house).await;

    days_later(&house, 29).await;
    assert_eq!(house.store.prune(&keep()).await.expect("pruned"), Pruned::default());
    days_later(&house, 31).await;
    let would = house.store.prunable(&keep()).await.expect("counted");
    let did = house.store.prune(&keep()).await.expect("pruned");

    assert_eq!(did.tasks, 1);
    assert_eq!(would, did);
    for table in ["tasks", "task_inputs", "task_results", "attempts", "steps", "llm_calls"] {
        assert_eq!(rows(&house, table).await, 0, "{table}");
    }
    assert_eq!((rows(&house, "execution_keys").await, rows(&house, "artifacts").await), (1, 1));
    assert_eq!(usage(&house).await, paid, "what was paid is still known");
    assert_eq!((paid[0].calls, paid[0].unknown, paid[0].input_tokens), (2, 1, 7));
    let month = Retention { artifacts: Some(DAY * 30), ..keep() };
    assert_eq!(house.store.prune(&month).await.expect("pruned").artifacts, 1);
}

/// What calls cost, by type: the same whether their tasks are there or gone.
async fn usage(house: &House) -> Vec<UsageRow> {
    house.store.usage(UsageBy::Type, None, None).await.expect("read")
}

#[tokio::test]
async fn what_lives_or_waits_for_a_person_stays_whatever_its_age() {
    let house = House::open().await;
    let by = house.worker().await;
    let queued = house.given(|_| ()).await;
    let scheduled = house.given(|task| task.due = Due::In(DAY * 365)).await;
    let running = house.given(|_| ()).await;
    let _attempt = house.claimed(running, by).await;
    let open = dead(&house).await;
    let discarded = dead(&house).await;
    let letter = letter_of(&house, discarded).await;
    assert!(house.store.discard(letter, "ann").await.expect("asked"));

    days_later(&house, 89).await;
    let early = house.store.prune(&keep()).await.expect("pruned");
    days_later(&house, 200).await;
    let late = house.store.prune(&keep()).await.expect("pruned");

    assert_eq!((early.tasks, early.execution_keys), (0, 0));
    // The discarded one has nothing left but its letter's copy, of which there never was one.
    assert_eq!((late.tasks, late.dead_letters, late.execution_keys), (1, 1, 1));
    let states = [TaskState::Queued, TaskState::Scheduled, TaskState::Running, TaskState::Dead];
    for (task, state) in [queued, scheduled, running, open].into_iter().zip(states) {
        assert_eq!(house.state(task).await, state);
    }
    assert_eq!(rows(&house, "execution_keys").await, 4);
    assert_eq!(rows(&house, "alerts").await, 1, "the alert of the open letter");
    // Its own row is how a rescue would find the running one.
    assert_eq!(rows(&house, "workers").await, 3, "none was fenced");
}

#[tokio::test]
async fn a_letter_stays_until_its_copy_has_left_the_dead_queue() {
    let house = House::open().await;
    let task = dead(&house).await;
    let letter = letter_of(&house, task).await;
    house.store.mark_letters(&[letter]).await.expect("published");
    assert!(house.store.discard(letter, "ann").await.expect("asked"));

    days_later(&house, 91).await;
    let first = house.store.prune(&keep()).await.expect("pruned");
    house.store.letters_removed(&[letter], Duration::ZERO).await.expect("walked");
    let second = house.store.prune(&keep()).await.expect("pruned");

    assert_eq!((first.tasks, first.dead_letters), (1, 0));
    assert_eq!(second.dead_letters, 1);
}

#[tokio::test]
async fn an_ended_incarnation_leaves_and_one_that_a_running_task_names_does_not() {
    let house = House::open().await;
    let (idle, busy) = (house.worker().await, house.worker().await);
    let task = house.given(|_| ()).await;
    let _attempt = house.claimed(task, busy).await;
    // A claim in flight is invisible to the statement that fences: the row stays running.
    for worker in [idle, busy] {
        house.store.retire(worker).await.expect("retired");
    }

    days_later(&house, 31).await;
    let first = house.store.prune(&keep()).await.expect("pruned");
    house.store.rescue().await.expect("rescued");
    let second = house.store.prune(&keep()).await.expect("pruned");

    assert_eq!((first.incarnations, second.incarnations), (1, 1));
}

#[tokio::test]
async fn those_who_prune_at_once_share_the_work() {
    let house = House::open().await;
    let many = 2 * CHUNK + 500;
    let tasks: Vec<NewTask> =
        (0..many).map(|n| NewTask::ad_hoc("probe", "io_pool", json!({"n": n}))).collect();
    house.store.enqueue_all(&tasks).await.expect("enqueued");
    let finish = "UPDATE tasks SET state = 'completed', finished_at = belfry_now()";
    house.database.client().await.batch_execute(finish).await.expect("finished");
    days_later(&house, 31).await;

    let prune = async || {
        let mut mine = 0;
        loop {
            let pruned = house.store.prune(&keep()).await.expect("pruned");
            assert!(pruned.tasks <= CHUNK);
            mine += pruned.tasks;
            if pruned.tasks == 0 {
                return mine;
            }
        }
    };
    let (one, two) = tokio::join!(prune(), prune());

    assert_eq!(one + two, many, "none twice, none left out");
    assert_eq!(rows(&house, "task_inputs").await, 0);
    assert_eq!(rows(&house, "execution_keys").await, many);
}
