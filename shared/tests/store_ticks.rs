//! Ticks: one row per planned instant whatever producers do, and what overlap makes of each.
#![cfg(feature = "testing")]

use std::time::Duration;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use futures::future::join_all;
use serde_json::json;
use shared::domain::attempt::Incarnation;
use shared::domain::cron::Cron;
use shared::domain::retry::RetryPolicy;
use shared::domain::schedule::{Overlap, Schedule, TickOutcome};
use shared::domain::task::{Priority, Semantics, TaskId, TaskState};
use shared::store::{DecidedTick, Store, TaskFilter, Term, TickInput};
use shared::testing::{TestDatabase, put_in_force};
use uuid::Uuid;

const TTL: Duration = Duration::from_secs(15);

struct House {
    database: TestDatabase,
    store: Store,
    revision: i64,
}

impl House {
    async fn open() -> Self {
        let database = TestDatabase::create().await;
        let store = database.store();
        let revision = put_in_force(&store, &[beat()]).await;
        Self { database, store, revision }
    }

    async fn term(&self) -> Term {
        self.lead().await.expect("the lead is free")
    }

    async fn lead(&self) -> Option<Term> {
        let (token, by) = (Uuid::new_v4(), Incarnation::new());
        self.store.lead(token, by, "producer@test#1", TTL).await.expect("answered")
    }

    async fn tick(&self, term: &Term, ticks: &[TickInput]) -> Vec<DecidedTick> {
        self.store.tick(term, self.revision, ticks).await.expect("answered").expect("our term")
    }

    async fn states(&self) -> Vec<TaskState> {
        let mut tasks = self.store.tasks(&TaskFilter::default(), 100).await.expect("read");
        tasks.sort_by_key(|task| task.task_id);
        tasks.into_iter().map(|task| task.state).collect()
    }
}

fn beat() -> Schedule {
    let cron = Cron::parse("* * * * * *").expect("a cron line");
    Schedule::new("beat", cron, "probe", "io_pool")
}

fn at(second: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::seconds(second)
}

fn tick(second: i64, overlap: Overlap) -> TickInput {
    TickInput {
        schedule: "beat".to_owned(),
        planned_at: at(second),
        run: true,
        first_at: None,
        count: 1,
        task_id: TaskId::new(),
        execution_key: format!("beat@{second}"),
        task_type: "probe".to_owned(),
        pool: "io_pool".to_owned(),
        payload: json!({}),
        timeout: Duration::from_secs(300),
        retry: RetryPolicy::default(),
        semantics: Semantics::AtLeastOnce,
        overlap,
        traceparent: None,
        paused: false,
        delay: Duration::ZERO,
        deadline: None,
        priority: Priority::Normal,
    }
}

fn outcomes(decided: &[DecidedTick]) -> Vec<Option<TickOutcome>> {
    decided.iter().map(|tick| tick.outcome).collect()
}

#[tokio::test]
async fn eight_candidates_give_one_leader_and_a_free_lead_is_taken_at_once() {
    let house = House::open().await;

    let terms = join_all((0..8).map(|_| house.lead())).await;

    let mut led: Vec<Term> = terms.into_iter().flatten().collect();
    assert_eq!(led.len(), 1);
    let term = led.remove(0);
    assert!(house.lead().await.is_none());
    house.store.step_down(term.token).await.expect("stepped down");
    assert_eq!(house.lead().await.expect("free").epoch, term.epoch + 1);
}

#[tokio::test]
async fn eight_repeats_of_an_instant_make_one_row_and_one_task() {
    let house = House::open().await;
    let term = house.term().await;

    let one = [tick(1, Overlap::Allow)];
    let decided = join_all((0..8).map(|_| house.tick(&term, &one))).await;
    let other = house.tick(&term, &[tick(1, Overlap::Allow)]).await;

    assert_eq!(decided.iter().filter(|d| d[0].fresh).count(), 1);
    assert!(!other[0].fresh);
    assert_eq!(other[0].task_id, Some(one[0].task_id));
    assert_eq!(house.states().await.len(), 1);
}

#[tokio::test]
async fn a_leader_whose_lease_is_over_decides_nothing() {
    let house = House::open().await;
    let late = house.term().await;
    house.database.move_clock(60).await;
    let term = house.term().await;

    let one = [tick(1, Overlap::Allow)];
    let refused = house.store.tick(&late, house.revision, &one).await.expect("answered");
    let accepted = house.tick(&term, &[tick(1, Overlap::Allow)]).await;

    assert!(refused.is_none());
    assert_eq!(outcomes(&accepted), [Some(TickOutcome::Enqueued)]);
}

/// The clock that its leader counts from was another one before.
#[tokio::test]
async fn an_instant_that_lies_ahead_of_a_clock_set_back_is_not_decided() {
    let house = House::open().await;
    let term = house.term().await;
    let early = TickInput { planned_at: term.now, ..tick(1, Overlap::Allow) };
    house.database.move_clock(-10).await;

    let one = std::slice::from_ref(&early);
    let refused = house.store.tick(&term, house.revision, one).await.expect("answered");
    house.database.move_clock(0).await;
    let accepted = house.tick(&term, one).await;

    assert!(refused.is_none());
    assert_eq!(outcomes(&accepted), [Some(TickOutcome::Enqueued)]);
}

#[tokio::test]
async fn missed_paused_and_known_keys_are_rows_without_a_new_task() {
    use TickOutcome::{Deduplicated, Enqueued, Missed, Paused};
    let house = House::open().await;
    let term = house.term().await;
    let missed =
        TickInput { run: false, first_at: Some(at(1)), count: 3, ..tick(3, Overlap::Skip) };
    let paused = TickInput { paused: true, ..tick(4, Overlap::Skip) };
    let first = tick(5, Overlap::Allow);
    let same = TickInput { execution_key: first.execution_key.clone(), ..tick(6, Overlap::Allow) };

    let decided = house.tick(&term, &[missed, paused, first.clone()]).await;
    let known = house.tick(&term, std::slice::from_ref(&same)).await;
    let other = TickInput { payload: json!({"v": 2}), planned_at: at(7), ..same };
    let other = house.tick(&term, &[other]).await;

    assert_eq!(outcomes(&decided), [Some(Missed), Some(Paused), Some(Enqueued)]);
    assert_eq!(outcomes(&known), [Some(Deduplicated)]);
    assert_eq!(known[0].task_id, Some(first.task_id));
    assert_eq!((outcomes(&other), other[0].conflict), (vec![Some(Deduplicated)], true));
    let rows = house.store.ticks(Some("beat"), 2).await.expect("read");
    let kept: Vec<_> = rows.iter().map(|row| (row.task_id, row.other_payload)).collect();
    assert_eq!(kept, [(Some(first.task_id.0), true), (Some(first.task_id.0), false)]);
    assert_eq!(house.states().await.len(), 1);
}

/// Nobody waits for the instants of a pause, so none is missed: not in an outage, not behind a deadline,
/// not in a span, and not when somebody resumes before they are decided.
#[tokio::test]
async fn every_instant_of_a_pause_is_paused_whenever_it_is_decided() {
    use TickOutcome::{Missed, Paused};
    let house = House::open().await;
    let began = house.store.now().await.expect("the clock").trunc_subsecs(0);
    let after = |seconds| began + TimeDelta::seconds(seconds);
    let due = |from, to| TickInput {
        run: false,
        planned_at: after(to),
        first_at: Some(after(from)),
        count: 3,
        ..tick(1, Overlap::Skip)
    };
    let by_file = |tick| TickInput { paused: true, ..tick };
    let deadline = Some(Duration::from_secs(1));
    let late = TickInput { run: true, count: 1, first_at: None, deadline, ..due(-90, -90) };

    let term = house.term().await;
    let by_file = [by_file(due(-300, -200)), by_file(due(-100, -100)), by_file(late)];
    let by_file = house.tick(&term, &by_file).await;
    house.store.pause_schedule("beat", Some("ann")).await.expect("paused");
    let by_hand = [due(-80, -70), due(-60, 10), due(11, 20), due(21, 21)];
    house.database.move_clock(30).await;
    let by_hand = house.tick(&house.term().await, &by_hand).await;
    house.database.move_clock(100).await;
    house.store.pause_schedule("beat", None).await.expect("resumed");
    house.store.pause_schedule("beat", None).await.expect("resumed already");
    house.database.move_clock(160).await;
    let resumed = [due(30, 60), due(61, 61), due(62, 130), due(140, 150)];
    let resumed = house.tick(&house.term().await, &resumed).await;

    assert_eq!(outcomes(&by_file), [Some(Paused); 3]);
    assert_eq!(outcomes(&by_hand), [Missed, Missed, Paused, Paused].map(Some));
    assert_eq!(outcomes(&resumed), [Paused, Paused, Missed, Missed].map(Some));
}

/// Pauses that follow each other while nobody ticks all count, and are forgotten once they are decided.
#[tokio::test]
async fn an_earlier_pause_counts_until_its_instants_are_decided() {
    use TickOutcome::{Enqueued, Missed, Paused};
    let house = House::open().await;
    let began = house.store.now().await.expect("the clock").trunc_subsecs(0);
    let due = |second, run| TickInput {
        run,
        planned_at: began + TimeDelta::seconds(second),
        ..tick(1, Overlap::Allow)
    };
    for (from, to) in [(60, 120), (180, 240)] {
        house.database.move_clock(from).await;
        house.store.pause_schedule("beat", Some("ann")).await.expect("paused");
        house.database.move_clock(to).await;
        house.store.pause_schedule("beat", None).await.expect("resumed");
    }
    house.database.move_clock(300).await;
    let term = house.term().await;
    let pauses = async || {
        let edges = house.store.pause_edges(&["beat", "other"]).await.expect("read");
        edges.get("beat").map_or(0, Vec::len)
    };

    let kept = pauses().await;
    let instants = [due(30, false), due(90, false), due(150, false), due(210, false)];
    let decided = house.tick(&term, &instants).await;
    let running = house.tick(&term, &[due(211, true)]).await;
    let left = pauses().await;
    let later = house.tick(&term, &[due(270, true)]).await;

    assert_eq!(outcomes(&decided), [Missed, Paused, Missed, Paused].map(Some));
    assert_eq!((outcomes(&running), outcomes(&later)), (vec![Some(Paused)], vec![Some(Enqueued)]));
    assert_eq!((kept, left, pauses().await), (4, 2, 0), "what is decided needs no pause");
}

#[tokio::test]
async fn pausing_answers_with_the_row_and_who_had_paused_it() {
    let house = House::open().await;
    let pause = async |by| {
        let paused = house.store.pause_schedule("beat", by).await.expect("answered");
        let paused = paused.expect("it is in force");
        (paused.was_paused_by, paused.row.paused_by)
    };
    let (ann, bob) = (Some("ann".to_owned()), "bob");

    assert_eq!(pause(None).await, (None, None));
    assert_eq!(pause(Some("ann")).await, (None, ann.clone()));
    assert_eq!(pause(Some(bob)).await, (ann.clone(), ann.clone()));
    assert_eq!(pause(None).await, (ann, None));
    assert!(house.store.pause_schedule("never", Some(bob)).await.expect("answered").is_none());
}

/// Three ticks in a row while nothing finishes.
#[track_caller]
fn check(
    seen: &(Vec<Option<TickOutcome>>, Vec<TaskState>),
    ticks: [TickOutcome; 3],
    tasks: &[TaskState],
) {
    assert_eq!(seen.0, ticks.map(Some));
    assert_eq!(seen.1, tasks);
}

async fn three_ticks(overlap: Overlap) -> (Vec<Option<TickOutcome>>, Vec<TaskState>) {
    let house = House::open().await;
    let term = house.term().await;
    let mut decided = Vec::new();
    for second in 1..=3 {
        decided.extend(outcomes(&house.tick(&term, &[tick(second, overlap)]).await));
    }
    let states = house.states().await;
    (decided, states)
}

#[tokio::test]
async fn every_overlap_policy_does_what_its_name_says() {
    use TaskState::{Cancelled, Queued, Waiting};
    use TickOutcome::{Enqueued, SkippedOverlap};
    let seen = three_ticks(Overlap::Skip).await;
    check(&seen, [Enqueued, SkippedOverlap, SkippedOverlap], &[Queued]);
    let seen = three_ticks(Overlap::Allow).await;
    check(&seen, [Enqueued; 3], &[Queued, Queued, Queued]);
    let seen = three_ticks(Overlap::Queue).await;
    check(&seen, [Enqueued, Enqueued, SkippedOverlap], &[Queued, Waiting]);
    let seen = three_ticks(Overlap::QueueAll).await;
    check(&seen, [Enqueued; 3], &[Queued, Waiting, Waiting]);
    let seen = three_ticks(Overlap::Replace).await;
    check(&seen, [Enqueued; 3], &[Cancelled, Cancelled, Waiting]);
}

#[tokio::test]
async fn waiting_tasks_take_their_turn_one_after_another() {
    use TaskState::{Cancelled, Queued, Waiting};
    let house = House::open().await;
    let term = house.term().await;
    let mut ids = Vec::new();
    for second in 1..=3 {
        let input = tick(second, Overlap::QueueAll);
        ids.push(input.task_id);
        house.tick(&term, &[input]).await;
    }

    let early = house.store.release().await.expect("released");
    house.store.cancel(ids[0]).await.expect("ended");
    let next = house.store.release().await.expect("released");

    assert_eq!((early, next), (0, 1));
    assert_eq!(house.states().await, [Cancelled, Queued, Waiting]);
}
