//! When and in which order a tick's task may start: jitter, deadline, priority.
#![cfg(feature = "testing")]

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use serde_json::json;
use shared::domain::attempt::{ClaimToken, Incarnation};
use shared::domain::cron::Cron;
use shared::domain::outcome::{ErrorClass, Failure, Outcome};
use shared::domain::retry::RetryPolicy;
use shared::domain::schedule::{Overlap, Schedule, TickOutcome};
use shared::domain::task::{NewTask, Priority, Semantics, TaskId, TaskState};
use shared::store::{Claim, Completion, DecidedTick, Registration, Store, Term, TickInput};
use shared::testing::{TestDatabase, put_in_force};
use uuid::Uuid;

/// Longer than any step of a clock in these stories.
const TTL: Duration = Duration::from_secs(24 * 3600);

struct House {
    database: TestDatabase,
    store: Store,
    term: Term,
    worker: Incarnation,
    revision: i64,
}

impl House {
    async fn open() -> Self {
        let database = TestDatabase::create().await;
        let store = database.store();
        let cron = Cron::parse("* * * * *").expect("a cron line");
        let beat = Schedule::new("beat", cron, "probe", "io_pool");
        let revision = put_in_force(&store, &[beat]).await;
        let worker = Incarnation::new();
        let term = store.lead(Uuid::new_v4(), worker, "producer@test#1", TTL).await;
        let who = Registration {
            id: worker,
            role: "worker",
            label: "worker@test#1".to_owned(),
            pools: BTreeMap::new(),
            ttl: TTL,
        };
        store.register(&who).await.expect("registered");
        let term = term.expect("answered").expect("the lead is free");
        Self { database, store, term, worker, revision }
    }

    async fn tick(&self, tick: TickInput) -> DecidedTick {
        let decided = self.store.tick(&self.term, self.revision, &[tick]).await.expect("answered");
        decided.expect("our term").remove(0)
    }

    async fn claim(&self, task: TaskId) -> Claim {
        self.store.claim(task, ClaimToken::new(), self.worker).await.expect("answered")
    }

    async fn state(&self, task: TaskId) -> TaskState {
        self.store.task(task).await.expect("read").expect("a task").summary.state
    }

    fn now(&self) -> DateTime<Utc> {
        self.term.now.trunc_subsecs(3)
    }
}

fn tick(planned_at: DateTime<Utc>) -> TickInput {
    TickInput {
        schedule: "beat".to_owned(),
        planned_at,
        run: true,
        first_at: None,
        count: 1,
        task_id: TaskId::new(),
        execution_key: format!("beat@{planned_at}"),
        task_type: "probe".to_owned(),
        pool: "io_pool".to_owned(),
        payload: json!({}),
        timeout: Duration::from_secs(300),
        retry: RetryPolicy::default(),
        semantics: Semantics::AtLeastOnce,
        overlap: Overlap::Allow,
        traceparent: None,
        paused: false,
        delay: Duration::ZERO,
        deadline: None,
        priority: Priority::Normal,
    }
}

#[tokio::test]
async fn a_task_is_held_for_its_schedules_delay_and_its_tick_keeps_its_instant() {
    let house = House::open().await;
    let at = house.now();

    let soon = tick(at);
    let soon = house.tick(TickInput { delay: Duration::from_secs(40), ..soon }).await;
    let later = tick(at + TimeDelta::milliseconds(1));
    let later = house.tick(TickInput { delay: Duration::from_secs(7200), ..later }).await;
    // Decided late, by more than the delay: there is nothing left to wait for.
    let late = tick(at - TimeDelta::seconds(100));
    let late = house.tick(TickInput { delay: Duration::from_secs(40), ..late }).await;

    let row = house.store.task(soon.task_id.expect("a task")).await.expect("read").expect("it");
    assert_eq!(row.summary.due_at, at + TimeDelta::seconds(40));
    assert_eq!((soon.planned_at, row.scheduled_for), (at, Some(at)));
    let unpublished = house.store.unpublished(None, Duration::ZERO).await.expect("read");
    let waits = unpublished.iter().find(|task| Some(task.message.task_id) == soon.task_id);
    assert!(waits.is_some_and(|task| task.remaining > Duration::from_secs(20)));
    assert!(matches!(house.claim(soon.task_id.expect("a task")).await, Claim::Skip(_)));
    assert_eq!(house.state(later.task_id.expect("a task")).await, TaskState::Scheduled);
    assert!(matches!(house.claim(late.task_id.expect("a task")).await, Claim::Run(_)));
}

#[tokio::test]
async fn a_task_that_has_not_started_by_its_deadline_never_does_and_says_why() {
    let house = House::open().await;
    let due = TickInput { deadline: Some(Duration::from_secs(60)), ..tick(house.now()) };
    let task = house.tick(due).await.task_id.expect("a task");
    house.database.move_clock(61).await;

    let claimed = house.claim(task).await;

    let Claim::Skip(settlement) = claimed else { panic!("it runs late: {claimed:?}") };
    assert!(settlement.is_ack(), "its message is not needed any more");
    let row = house.store.task(task).await.expect("read").expect("a task");
    assert_eq!((row.summary.state, row.summary.run), (TaskState::Cancelled, 0));
    assert_eq!(row.summary.error_class.as_deref(), Some("timeout"));
    let why = row.summary.error_message.expect("a reason");
    assert!(why.contains("had not started by") && why.contains("deadline"), "{why}");
}

/// No worker was there: the instants count among the missed ones, until one is known to have started. What a
/// person cancelled was not missed.
#[tokio::test]
async fn instants_whose_tasks_did_not_start_are_told_until_one_does() {
    let house = House::open().await;
    let deadline = Some(Duration::from_secs(60));
    let due = |ms| tick(house.now() + TimeDelta::milliseconds(ms));
    let with_deadline = async |ms| {
        let made = house.tick(TickInput { deadline, ..due(ms) }).await;
        made.task_id.expect("a task")
    };
    let newest = async || {
        let newest = house.store.newest_ticks(&["beat"]).await.expect("read").remove(0);
        newest.newest.map(|(at, outcome)| ((at - house.now()).num_milliseconds(), outcome))
    };
    let told = |outcome: &str, ms| Some((ms, outcome.to_owned()));
    house.tick(TickInput { run: false, ..due(0) }).await;
    for ms in [1, 2] {
        with_deadline(ms).await;
    }
    let cancelled = with_deadline(3).await;
    house.store.cancel(cancelled).await.expect("cancelled");

    house.database.move_clock(61).await;
    house.store.end_late_starts().await.expect("swept");
    let missed = house.store.missed_ticks(TTL, 10).await.expect("read").remove(0);
    let recent = house.store.recent_ticks(Some("beat")).await.expect("read").remove(0);
    let rows = house.store.ticks(Some("beat"), 10).await.expect("read");
    let by_person = newest().await;
    // Due by the clock as it is now, and not known to start.
    let overdue = Some(Duration::from_secs(120));
    let pending = house.tick(TickInput { deadline: overdue, ..due(4) }).await.task_id;
    let still = newest().await;
    let claimed = house.claim(pending.expect("a task")).await;

    assert_eq!((missed.count, missed.not_started), (3, 2));
    assert_eq!(
        (missed.first, missed.last),
        (house.now(), house.now() + TimeDelta::milliseconds(2))
    );
    assert_eq!(missed.last_not_started, Some(missed.last));
    let late: Vec<bool> = rows.iter().map(|row| row.not_started_at.is_some()).collect();
    assert_eq!(late, [false, true, true, false]);
    let counted: Vec<_> = recent.outcomes.into_iter().collect();
    assert_eq!(counted, [("enqueued", 1), ("missed", 1), ("not_started", 2)]);
    assert_eq!((recent.runs.len(), recent.last_not_started), (1, false));
    assert_eq!((by_person, still), (told("enqueued", 3), told("enqueued", 3)));
    assert!(matches!(claimed, Claim::Run(_)));
    assert_eq!(newest().await, told("enqueued", 4));
}

#[tokio::test]
async fn the_sweep_ends_what_nobody_claims_and_touches_nothing_that_has_started() {
    let house = House::open().await;
    let deadline = Some(Duration::from_secs(60));
    let at = house.now();
    let overlap = Overlap::QueueAll;
    let first = house.tick(TickInput { deadline, ..tick(at) }).await.task_id.expect("a task");
    let next = tick(at + TimeDelta::milliseconds(1));
    let waits = house.tick(TickInput { deadline, overlap, ..next }).await.task_id.expect("a task");
    let Claim::Run(attempt) = house.claim(first).await else { panic!("it is due") };

    let early = house.store.end_late_starts().await.expect("swept");
    house.database.move_clock(61).await;
    let late = house.store.end_late_starts().await.expect("swept");

    assert_eq!((early.as_slice(), late.as_slice()), ([].as_slice(), [waits].as_slice()));
    assert_eq!(house.state(waits).await, TaskState::Cancelled);
    // It has started in time, so that its retries may come later.
    let failure = Failure::new(ErrorClass::Retryable, "503");
    let outcome = Outcome::Retry { delay: Duration::ZERO, failure };
    let ended = Completion { task: first, token: attempt.token, traceparent: None, outcome };
    house.store.record(&ended).await.expect("recorded");
    assert!(matches!(house.claim(first).await, Claim::Run(_)));
}

#[tokio::test]
async fn a_tick_that_is_decided_after_its_deadline_is_missed() {
    let house = House::open().await;
    let late = tick(house.now() - TimeDelta::seconds(61));

    let decided = house.tick(TickInput { deadline: Some(Duration::from_secs(60)), ..late }).await;

    assert_eq!((decided.outcome, decided.task_id), (Some(TickOutcome::Missed), None));
}

#[tokio::test]
async fn urgent_tasks_are_published_first() {
    let house = House::open().await;
    let mut expected = Vec::new();
    let order = [Priority::Low, Priority::Normal, Priority::High, Priority::Normal, Priority::High];
    for (n, priority) in (0..).zip(order) {
        let at = house.now() + TimeDelta::milliseconds(n);
        house.tick(TickInput { priority, ..tick(at) }).await;
        expected.push(priority.level());
    }
    house.store.enqueue(NewTask::ad_hoc("probe", "io_pool", json!({}))).await.expect("enqueued");
    expected.push(0);
    expected.sort_unstable_by(|a, b| b.cmp(a));

    let all = house.store.unpublished(None, Duration::ZERO).await.expect("read");

    let levels: Vec<i16> = all.iter().map(|task| task.message.priority.level()).collect();
    assert_eq!(levels, expected);
    let ids: Vec<TaskId> = all.iter().rev().map(|task| task.message.task_id).collect();
    let named = house.store.unpublished(Some(&ids), Duration::ZERO).await.expect("read");
    let levels: Vec<i16> = named.iter().map(|task| task.message.priority.level()).collect();
    assert_eq!(levels, expected);
}
