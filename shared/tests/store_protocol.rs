//! Enqueue, claim and record, raced against a real PostgreSQL: who wins, who is refused.
#![cfg(feature = "testing")]

mod house;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use house::{House, TTL, completed, failure};
use secrecy::SecretString;
use serde_json::json;
use shared::domain::attempt::{ClaimToken, Incarnation};
use shared::domain::execution_key::ExecutionKey;
use shared::domain::outcome::Outcome;
use shared::domain::task::{Due, NewTask, TaskId, TaskState};
use shared::store::{Action, Claim, EnqueueError, Purpose, Registration, Store, StoreOptions};
use shared::testing::TestDatabase;

#[tokio::test]
async fn sixteen_enqueuers_of_one_key_make_one_task() {
    let house = House::open().await;
    let racers = (0..16).map(|_| {
        let mut task = NewTask::ad_hoc("probe", "io_pool", json!({"n": 1}));
        task.execution_key = Some(ExecutionKey::new("the-one").expect("a key"));
        house.store.enqueue(task)
    });

    let answers: Vec<_> =
        join_all(racers).await.into_iter().map(|a| a.expect("answered")).collect();

    assert_eq!(answers.iter().filter(|a| !a.deduplicated).count(), 1);
    assert!(answers.iter().all(|a| a.task_id == answers[0].task_id));
}

#[tokio::test]
async fn a_key_with_another_payload_is_refused_and_names_the_task() {
    let house = House::open().await;
    let key = || Some(ExecutionKey::new("k").expect("a key"));
    let first = house.given(|task| task.execution_key = key()).await;

    let mut other = NewTask::ad_hoc("probe", "io_pool", json!({"n": 2}));
    other.execution_key = key();
    let error = house.store.enqueue(other).await.expect_err("refused");

    assert!(matches!(&error, EnqueueError::KeyReused { existing, .. } if *existing == first));
    assert!(error.to_string().starts_with("key_reused_with_other_payload"), "{error}");
}

#[tokio::test]
async fn one_list_may_hold_a_key_twice_and_a_bad_payload_without_harm_to_the_rest() {
    let house = House::open().await;
    let row = |key: &str, payload| {
        let mut task = NewTask::ad_hoc("probe", "io_pool", payload);
        task.execution_key = Some(ExecutionKey::new(key).expect("a key"));
        task
    };
    let rows =
        [row("a", json!(1)), row("a", json!(1)), row("b", json!("nul \0")), row("c", json!(1))];

    let answers = house.store.enqueue_all(&rows).await.expect("answered");

    assert!(answers[0].as_ref().is_ok_and(|a| !a.deduplicated));
    assert!(answers[1].as_ref().is_ok_and(|a| a.deduplicated));
    assert!(matches!(answers[2], Err(EnqueueError::Payload(_))));
    assert!(answers[3].as_ref().is_ok_and(|a| !a.deduplicated));
}

#[tokio::test]
async fn sixteen_claims_of_one_task_run_it_once() {
    let house = House::open().await;
    let (task, by) = (house.given(|_| ()).await, house.worker().await);

    let racers = (0..16).map(|_| house.store.claim(task, ClaimToken::new(), by));
    let claims = join_all(racers).await;

    let mut runs = 0;
    for claim in claims {
        match claim.expect("answered") {
            Claim::Run(_) => runs += 1,
            Claim::Skip(settlement) => assert!(settlement.is_ack()),
            Claim::LostIdentity => panic!("the worker is alive"),
        }
    }
    assert_eq!(runs, 1);
}

#[tokio::test]
async fn a_claim_repeated_with_its_token_gives_the_same_answer() {
    let house = House::open().await;
    let (task, by, token) = (house.given(|_| ()).await, house.worker().await, ClaimToken::new());

    for _ in 0..3 {
        let claim = house.store.claim(task, token, by).await.expect("answered");
        assert!(matches!(claim, Claim::Run(attempt) if attempt.run == 1));
    }

    let row = house.store.task(task).await.expect("read").expect("a task");
    assert_eq!(row.attempts.len(), 1);
}

#[tokio::test]
async fn an_early_message_is_delayed_for_the_rest_and_an_unknown_one_is_an_orphan() {
    let house = House::open().await;
    let by = house.worker().await;
    let early = house.given(|task| task.due = Due::In(Duration::from_secs(60))).await;

    let delayed = house.store.claim(early, ClaimToken::new(), by).await.expect("answered");
    let orphan = house.store.claim(TaskId::new(), ClaimToken::new(), by).await.expect("answered");

    let Claim::Skip(settlement) = delayed else { panic!("not due yet") };
    assert_eq!(settlement.rung().expect("a rung").label, "1m");
    let Claim::Skip(settlement) = orphan else { panic!("no such task") };
    assert!(matches!(settlement.into_action(), Action::Orphan));
}

#[tokio::test]
async fn a_dead_incarnation_claims_nothing_and_is_told_so() {
    let house = House::open().await;
    let (task, by) = (house.given(|_| ()).await, house.worker().await);
    house.database.move_clock(60).await;

    let expired = house.store.claim(task, ClaimToken::new(), by).await.expect("answered");
    let renewed = house.store.renew(by, TTL).await.expect("answered");

    assert!(matches!(expired, Claim::LostIdentity));
    assert_eq!(renewed, None);
    assert_eq!(house.state(task).await, TaskState::Queued);
}

#[tokio::test]
async fn a_completion_repeated_after_a_lost_answer_is_still_ours() {
    let house = House::open().await;
    let (task, by) = (house.given(|_| ()).await, house.worker().await);
    let attempt = house.claimed(task, by).await;

    for _ in 0..2 {
        assert!(house.record(&attempt, completed()).await.settlement.is_ack());
    }

    assert_eq!(house.state(task).await, TaskState::Completed);
}

#[tokio::test]
async fn a_retry_is_due_later_and_a_repeat_of_its_record_still_leads_to_publishing_it() {
    let house = House::open().await;
    let (task, by) = (house.given(|_| ()).await, house.worker().await);
    let attempt = house.claimed(task, by).await;
    let outcome = || Outcome::Retry { delay: Duration::from_secs(60), failure: failure() };

    for _ in 0..2 {
        let recorded = house.record(&attempt, outcome()).await;
        assert_eq!(recorded.settlement.rung().expect("a delay queue").label, "1m");
    }

    let row = house.store.task(task).await.expect("read").expect("a task");
    assert_eq!((row.summary.state, row.summary.failures), (TaskState::Retrying, 1));
}

/// A busy server reads the clock twice in one statement, seconds apart.
#[tokio::test]
async fn a_delay_counts_from_the_end_that_the_attempt_shows_however_slow_the_statement() {
    let house = House::open().await;
    let (task, by) = (house.given(|_| ()).await, house.worker().await);
    let attempt = house.claimed(task, by).await;
    let client = house.database.client().await;
    let jumping = "CREATE SEQUENCE readings; CREATE OR REPLACE FUNCTION belfry_now() RETURNS timestamptz
        LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() + nextval('readings') * interval '1 s' $$";
    client.batch_execute(jumping).await.expect("a clock that jumps");

    let retry = Outcome::Retry { delay: Duration::from_secs(5), failure: failure() };
    house.record(&attempt, retry).await;

    let sql = "SELECT t.due_at - a.ended_at = a.delay_ms * interval '1 ms' FROM tasks t
        JOIN attempts a ON a.task_id = t.id WHERE t.id = $1 AND t.state = 'retrying'";
    let row = client.query_one(sql, &[&task.0]).await.expect("a retry");
    assert!(row.get::<_, bool>(0));
}

/// Processes of two installations begin at the same moment: only those of one find the house free.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_installations_that_start_together_one_gets_the_database() {
    let database = TestDatabase::create().await;
    let starters = (0..16).map(|n| {
        let options =
            StoreOptions::new(SecretString::from(database.dsn.as_str()), "race", Purpose::Daemon);
        let place = Some(format!("prefix {:?}", n % 2));
        let store =
            Store::open(&StoreOptions { place: place.clone(), ..options }).expect("a store");
        let who = Registration {
            id: Incarnation::new(),
            role: "producer",
            label: format!("producer@test#{n}"),
            pools: BTreeMap::new(),
            ttl: TTL,
        };
        async move { store.register_first(&who).await.is_ok().then_some(place) }
    });

    let places: Vec<_> = join_all(starters).await.into_iter().flatten().collect();

    assert_eq!(places.len(), 8, "{places:?}");
    assert!(places.windows(2).all(|two| two[0] == two[1]), "{places:?}");
}
