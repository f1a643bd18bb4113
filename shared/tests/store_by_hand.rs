//! Runs by hand: who asks twice gets one task, and nobody overlaps whom the policy forbids.
#![cfg(feature = "testing")]
#![expect(dead_code, reason = "the house serves several stories")]

mod house;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use house::House;
use serde_json::json;
use shared::domain::execution_key::ExecutionKey;
use shared::domain::schedule::Overlap;
use shared::domain::task::{NewTask, Priority, TaskId, TaskState};
use shared::store::{Asked, HandRun, HandRunEnd};
use shared::testing::put_in_force;

const FILE: &str = "
tasks:
- {name: beat, schedule: '* * * * *', task_type: http_call, payload: {url: 'https://x.example/'}}
";

async fn open() -> House {
    let house = House::open().await;
    let config = shared::config::load_str(FILE, "b.yaml", &|_| None).expect("right");
    put_in_force(&house.store, &config.schedules).await;
    house
}

fn asked(overlap: Overlap) -> Asked<'static> {
    Asked { schedule: "beat", kind: "trigger", overlap, forced: false, by: "ann@here" }
}

fn at(minute: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::minutes(minute)
}

fn run(minute: i64, key: &str) -> HandRun {
    let key = ExecutionKey::new(key).expect("a key");
    let task = NewTask::ad_hoc("http_call", "io_pool", json!({ "minute": minute }));
    let task = NewTask { name: "beat".to_owned(), execution_key: Some(key), ..task };
    HandRun { task, scheduled_for: at(minute), priority: Priority::Normal }
}

async fn ask(house: &House, overlap: Overlap, runs: &[HandRun]) -> Vec<HandRunEnd> {
    let ends = house.store.run_by_hand(&asked(overlap), runs).await.expect("answered");
    ends.expect("it is applied")
}

async fn states(house: &House, runs: &[&HandRun]) -> Vec<TaskState> {
    let mut states = Vec::new();
    for run in runs {
        states.push(house.state(run.task.id).await);
    }
    states
}

#[tokio::test]
async fn every_overlap_policy_holds_for_a_run_by_hand() {
    use HandRunEnd::{Made, Refused};
    use TaskState::{Cancelled, Queued, Waiting};
    let before = run(0, "before");
    let behind = Some(before.task.id);
    for (overlap, end, states_then) in [
        (Overlap::Skip, Refused { behind }, vec![Queued]),
        (Overlap::Queue, Made(Waiting), vec![Queued, Waiting]),
        (Overlap::QueueAll, Made(Waiting), vec![Queued, Waiting]),
        (Overlap::Replace, Made(Waiting), vec![Cancelled, Waiting]),
        (Overlap::Allow, Made(Queued), vec![Queued, Queued]),
    ] {
        let house = open().await;
        assert_eq!(
            ask(&house, overlap, std::slice::from_ref(&before)).await,
            [Made(Queued)],
            "{overlap:?}"
        );

        let second = run(1, "second");
        assert_eq!(ask(&house, overlap, std::slice::from_ref(&second)).await, [end], "{overlap:?}");

        let known: Vec<&HandRun> = [&before, &second].into_iter().take(states_then.len()).collect();
        assert_eq!(states(&house, &known).await, states_then, "{overlap:?}");
        let third = ask(&house, overlap, &[run(2, "third")]).await;
        let refuses = matches!(overlap, Overlap::Skip | Overlap::Queue);
        assert_eq!(matches!(third[0], Refused { .. }), refuses, "{overlap:?}");
    }
}

#[tokio::test]
async fn the_same_key_is_one_task_even_while_it_runs() {
    let house = open().await;
    let first = run(0, "hand:day");
    ask(&house, Overlap::Skip, std::slice::from_ref(&first)).await;

    let again = ask(&house, Overlap::Skip, &[run(0, "hand:day"), run(1, "hand:day")]).await;

    let known = |same_payload| HandRunEnd::Known {
        task: first.task.id,
        state: TaskState::Queued,
        same_payload,
    };
    assert_eq!(again, [known(true), known(false)]);
    let rows = house.store.runs_by_hand("beat", 10).await.expect("read");
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].asked_by.as_str(), rows[0].scheduled_for), ("ann@here", at(0)));
}

#[tokio::test]
async fn eight_people_who_ask_at_once_start_one_run() {
    let house = open().await;
    let runs: Vec<HandRun> = (0..8).map(|n| run(n, &format!("hand:{n}"))).collect();

    let ends =
        join_all(runs.iter().map(|run| ask(&house, Overlap::Skip, std::slice::from_ref(run))))
            .await;

    let made = ends.iter().filter(|end| matches!(end[0], HandRunEnd::Made(_))).count();
    assert_eq!(made, 1, "{ends:?}");
}

#[tokio::test]
async fn a_batch_that_may_not_overlap_runs_in_its_order() {
    use TaskState::{Queued, Waiting};
    let house = open().await;
    let runs = [run(0, "a"), run(1, "b"), run(2, "a"), run(3, "c")];

    let ends = ask(&house, Overlap::QueueAll, &runs).await;

    let ids: Vec<TaskId> = runs.iter().map(|run| run.task.id).collect();
    let made = HandRunEnd::Made;
    assert_eq!(ends[..2], [made(Queued), made(Waiting)]);
    assert!(matches!(ends[2], HandRunEnd::Known { task, .. } if task == ids[0]), "{ends:?}");
    assert_eq!(ends[3], made(Waiting));
    house.store.cancel(ids[0]).await.expect("ended");
    assert_eq!(house.store.release().await.expect("released"), 1);
    assert_eq!(states(&house, &[&runs[1], &runs[3]]).await, [Queued, Waiting]);
}

#[tokio::test]
async fn a_schedule_that_is_gone_runs_nothing() {
    let house = open().await;
    let file = house.store.file_in_force().await.expect("answered");
    let apply = house.store.begin_apply(file.revision).await.expect("answered");
    let mut apply = apply.expect("nobody else applies");
    apply.remove(&["beat"]).await.expect("removed");
    apply.commit(file.now, "test").await.expect("committed");

    let ends = house.store.run_by_hand(&asked(Overlap::Allow), &[run(0, "a")]).await;

    assert_eq!(ends.expect("answered"), None);
}

#[tokio::test]
async fn a_renamed_schedule_knows_what_ran_under_its_former_name() {
    let house = open().await;
    let before = run(0, "day");
    ask(&house, Overlap::Allow, std::slice::from_ref(&before)).await;
    let id = before.task.id.0;
    let ticked = "INSERT INTO ticks (schedule, planned_at, outcome, task_id, decided_at, epoch)
        VALUES ('beat', $1, 'enqueued', $2, belfry_now(), 0)";
    let client = house.database.client().await;
    client.execute(ticked, &[&at(0), &id]).await.expect("ticked");

    let text = FILE.replace("beat", "pulse");
    let config = shared::config::load_str(&text, "b.yaml", &|_| None).expect("right");
    let revision = put_in_force(&house.store, &config.schedules).await;
    let apply = house.store.begin_apply(revision).await.expect("answered");
    let mut apply = apply.expect("nobody else applies");
    apply.rename("beat", "pulse").await.expect("renamed");
    apply.remove(&["beat"]).await.expect("removed");
    apply.commit(house.store.now().await.expect("answered"), "test").await.expect("committed");
    let mut again = run(0, "day");
    again.task.name = "pulse".to_owned();
    let asked = Asked { schedule: "pulse", ..asked(Overlap::Allow) };
    let ends = house.store.run_by_hand(&asked, &[again]).await.expect("answered");

    let state = TaskState::Queued;
    let known = HandRunEnd::Known { task: before.task.id, state, same_payload: true };
    assert_eq!(ends.expect("it is applied"), [known]);
    let keys = house.store.known_keys("pulse", &["day".to_owned()]).await.expect("read");
    assert_eq!(keys.iter().map(|key| key.task_id).collect::<Vec<_>>(), [id]);
    let ticks = house.store.ticks_at("pulse", &[at(0), at(1)]).await.expect("read");
    assert_eq!(ticks.iter().map(|tick| tick.task_id).collect::<Vec<_>>(), [Some(id)]);
    assert_eq!(house.store.runs_by_hand("pulse", 10).await.expect("read").len(), 1);
}
