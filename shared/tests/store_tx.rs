//! The completing transaction against a real PostgreSQL: all of it or nothing, and who may.
#![cfg(feature = "testing")]

mod house;

use std::time::Duration;

use house::{House, TTL, completed};
use serde_json::{Value, json};
use shared::domain::attempt::ClaimToken;
use shared::domain::execution_key::ExecutionKey;
use shared::domain::outcome::{ErrorClass, TaskError};
use shared::domain::task::{NewTask, TaskState};
use shared::store::{EnqueueError, Standing, TxEnd};

async fn ledger(house: &House) {
    let sql = "CREATE TABLE ledger (n int NOT NULL CHECK (n > 0))";
    house.database.client().await.batch_execute(sql).await.expect("a table");
}

async fn count(house: &House, sql: &str) -> i64 {
    house.database.client().await.query_one(sql, &[]).await.expect(sql).get(0)
}

const WRITES: &str = "SELECT count(*) FROM ledger";

#[tokio::test]
async fn a_late_workers_rows_and_follow_ups_are_rolled_back_and_its_successors_stay() {
    let house = House::open().await;
    ledger(&house).await;
    let task = house.given(|_| ()).await;
    let late = house.claimed(task, house.worker().await).await;
    let tx = house.store.begin(task, late.token).await.expect("begun");
    tx.execute("INSERT INTO ledger VALUES ($1)", &[&1i32]).await.expect("written");
    tx.enqueue(&[NewTask::ad_hoc("probe", "io_pool", json!({}))]).await.expect("enqueued");

    house.database.move_clock(TTL.as_secs() as i64 + 1).await;
    house.store.rescue().await.expect("rescued");
    let next = house.claimed(task, house.worker().await).await;
    let refused = tx.complete(&json!("late"), None).await.expect("answered");
    let tx = house.store.begin(task, next.token).await.expect("begun");
    tx.execute("INSERT INTO ledger VALUES ($1)", &[&2i32]).await.expect("written");
    let accepted = tx.complete(&json!("in time"), None).await.expect("answered");

    assert!(matches!(refused, TxEnd::Fenced(recorded) if recorded.settlement.is_fenced()));
    assert!(matches!(accepted, TxEnd::Committed(recorded) if recorded.settlement.is_ack()));
    assert_eq!(count(&house, "SELECT n::bigint FROM ledger").await, 2);
    assert_eq!(count(&house, "SELECT count(*) FROM tasks").await, 1);
    let row = house.store.task(task).await.expect("read").expect("a task");
    assert_eq!(row.result, Some(json!("in time")));
}

#[tokio::test]
async fn a_second_completion_of_the_same_claim_writes_nothing_more() {
    let house = House::open().await;
    ledger(&house).await;
    let task = house.given(|_| ()).await;
    let attempt = house.claimed(task, house.worker().await).await;

    for n in [1i32, 2] {
        let tx = house.store.begin(task, attempt.token).await.expect("begun");
        tx.execute("INSERT INTO ledger VALUES ($1)", &[&n]).await.expect("written");
        let end = tx.complete(&json!(n), None).await.expect("answered");
        assert_eq!(matches!(end, TxEnd::Committed(_)), n == 1, "{end:?}");
    }

    assert_eq!(count(&house, "SELECT n::bigint FROM ledger").await, 1);
    // The processor's own record, had it not known: it answers as ours.
    assert!(house.record(&attempt, completed()).await.settlement.is_ack());
    let failed = shared::domain::outcome::Outcome::Dead { failure: house::failure() };
    assert!(house.record(&attempt, failed).await.settlement.is_ack());
    assert_eq!(house.state(task).await, TaskState::Completed);
}

#[tokio::test]
async fn a_transaction_that_is_dropped_or_fails_leaves_nothing() {
    let house = House::open().await;
    ledger(&house).await;
    let task = house.given(|_| ()).await;
    let attempt = house.claimed(task, house.worker().await).await;
    let insert = "INSERT INTO ledger VALUES ($1)";

    let dropped = house.store.begin(task, attempt.token).await.expect("begun");
    dropped.execute(insert, &[&1i32]).await.expect("written");
    drop(dropped);
    let failed = house.store.begin(task, attempt.token).await.expect("begun");
    failed.execute(insert, &[&1i32]).await.expect("written");
    let error = failed.execute(insert, &[&0i32]).await.expect_err("a broken rule");
    let kept = failed.clone();
    let end = failed.complete(&Value::Null, None).await;

    assert_eq!(error.code(), Some("23514"));
    assert!(end.is_err_and(|end| end.code() == Some("23514")), "the first trouble is told");
    kept.rollback().await;
    assert_eq!(count(&house, WRITES).await, 0);
    assert_eq!(house.state(task).await, TaskState::Running);
}

#[tokio::test]
async fn a_key_with_another_payload_fails_the_transaction_for_good() {
    let house = House::open().await;
    let key = || Some(ExecutionKey::new("k").expect("a key"));
    house.given(|task| task.execution_key = key()).await;
    let task = house.given(|_| ()).await;
    let attempt = house.claimed(task, house.worker().await).await;
    let tx = house.store.begin(task, attempt.token).await.expect("begun");
    let mut other = NewTask::ad_hoc("probe", "io_pool", json!({"n": 2}));
    other.execution_key = key();

    let error = tx.enqueue(&[other]).await.expect_err("refused");

    assert!(matches!(error, EnqueueError::KeyReused { .. }));
    assert_eq!(TaskError::from(error).class(), ErrorClass::Permanent);
}

#[tokio::test]
async fn after_a_lost_answer_the_claims_own_attempt_is_the_proof() {
    let house = House::open().await;
    let task = house.given(|_| ()).await;
    let attempt = house.claimed(task, house.worker().await).await;
    let stranger = ClaimToken::new();
    let standing = async |token| house.store.standing(task, token).await.expect("answered");
    assert!(matches!(standing(attempt.token).await, Standing::Open));
    assert!(matches!(standing(stranger).await, Standing::Fenced(_)));

    // A commit that is still under way: the question waits for it.
    let client = house.database.client().await;
    client.batch_execute("BEGIN").await.expect("begun");
    let sql = include_str!("../src/store/sql/complete.sql");
    let traces: Vec<Option<&str>> = vec![None];
    client
        .query(sql, &[&vec![task.0], &vec![attempt.token.0], &vec![json!(1)], &traces])
        .await
        .expect("completed");
    let asking = standing(attempt.token);
    futures::pin_mut!(asking);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut asking).await;
    assert!(early.is_err(), "answered before the commit: {early:?}");
    client.batch_execute("COMMIT").await.expect("committed");

    assert!(matches!(asking.await, Standing::Completed(_)));
    assert!(matches!(standing(stranger).await, Standing::Fenced(_)));
}
