//! Forty racers for each limit; and the statement that everybody writes first.

use futures::future::join_all;
use shared::domain::quota::{Limits, Reason, Scope};
use shared::store::{Closing, UNTRIED_CALLS, UNTRIED_FOR};
use shared::testing::eventually;
use std::time::Duration;

use crate::fleet::{Fleet, RACERS};

/// Of one limit, let in from forty at once: what fits and no more, and nobody is counted for less.
#[tokio::test]
async fn each_limit_lets_in_exactly_what_fits_of_forty_racers() {
    let fleet = Fleet::with_connections(RACERS).await;
    let per_model = [
        ("requests", Limits { requests_per_minute: Some(60), burst: Some(10), ..none() }),
        ("tokens", Limits { tokens_per_minute: Some(600), ..none() }),
        ("in_flight", Limits { in_flight: Some(10), ..none() }),
        ("daily_tokens", Limits { daily_tokens: Some(100), ..none() }),
        ("daily_cost", Limits { daily_cost_micro: Some(1000), ..none() }),
    ];
    for (model, limits) in per_model {
        fleet.limit(Scope::Model, model, limits).await;

        assert_eq!(fleet.race(model).await, 10, "{model}");

        let quota = fleet.quota(model).await;
        assert_eq!((quota.in_flight, quota.held_tokens), (10, 100), "{model}");
        assert!((quota.held_cost - 0.001).abs() < 1e-9, "{model}: {}", quota.held_cost);
    }
    fleet.limit(Scope::Model, "unlimited", none()).await;
    assert_eq!(fleet.race("unlimited").await, RACERS);
}

/// A provider that refuses says so at once: until it has answered, or been silent for a while, a few
/// of the fleet find out.
#[tokio::test]
async fn a_model_that_has_not_answered_yet_is_asked_by_a_few_of_forty_racers() {
    let few = usize::try_from(UNTRIED_CALLS).expect("a count");
    let fleet = Fleet::with_connections(RACERS).await;
    assert_eq!(fleet.race("silent").await, few);
    assert_eq!(fleet.denied("silent").await.reason, Reason::Untried);
    fleet.pass(UNTRIED_FOR).await;
    assert_eq!(fleet.race("silent").await, RACERS, "it thinks, and does not refuse");

    let call = fleet.granted("answers").await;
    fleet.answered(call, 10, 10).await;
    assert_eq!(fleet.race("answers").await, RACERS);

    let call = fleet.granted("fails").await;
    fleet.failed(call, "retryable", None).await;
    assert_eq!(fleet.race("fails").await, few, "a failure is no answer");
}

/// The schedule's budget stands in the way: then the model is not counted for those either.
#[tokio::test]
async fn a_call_takes_all_of_its_limits_or_none() {
    let fleet = Fleet::with_connections(RACERS).await;
    let tight = [
        Limits { daily_tokens: Some(100), ..none() },
        Limits { daily_cost_micro: Some(1000), ..none() },
    ];
    for (round, budget) in tight.into_iter().enumerate() {
        let model = format!("m{round}");
        let rate = Limits { requests_per_minute: Some(60), burst: Some(RACERS as u32), ..none() };
        fleet.limit(Scope::Model, &model, rate).await;
        fleet
            .client
            .execute("DELETE FROM llm_quotas WHERE scope = 'schedule'", &[])
            .await
            .expect("none");
        fleet.limit(Scope::Schedule, "s", budget).await;

        assert_eq!(fleet.race(&model).await, 10);

        for name in [model.as_str(), "s"] {
            let quota = fleet.quota(name).await;
            assert_eq!((quota.in_flight, quota.held_tokens), (10, 100), "{name}");
        }
        let sql = "SELECT request_tat = belfry_now() + interval '10 seconds' FROM llm_quotas WHERE name = $1";
        let ten = fleet.client.query_one(sql, &[&model]).await.expect("a row");
        assert!(ten.get::<_, bool>(0), "the rate is charged for those who were let in alone");
    }
}

/// A model whose time is over is tried by one, whoever asks.
#[tokio::test]
async fn one_of_forty_racers_probes() {
    let fleet = Fleet::with_connections(RACERS).await;
    let call = fleet.granted("m").await;
    let hint = Duration::from_secs(5);
    fleet.failed(call, "throttled", Some(Closing::For(hint))).await;
    assert_eq!(fleet.race("m").await, 0);

    fleet.pass(hint).await;

    assert_eq!(fleet.race("m").await, 1);
    assert_eq!(fleet.quota("m").await.state, "probing");
}

/// The bucket is read in one part of the statement and written in another: under READ COMMITTED the
/// part that reads keeps what it saw before it waited for the row, and every racer spends the same rest.
const NAIVE: &str = "
    WITH bucket AS (SELECT name, tokens FROM naive WHERE name = 'm')
    UPDATE naive n SET tokens = b.tokens - 1 FROM bucket b
    WHERE n.name = b.name AND b.tokens >= 1
    RETURNING n.tokens";

/// Forty who wait for one row that somebody holds, and then go on.
async fn held_up<F: Future>(fleet: &Fleet, lock: &str, racers: Vec<F>) -> Vec<F::Output> {
    let holder = fleet.house.database.client().await;
    holder.batch_execute(&format!("BEGIN; {lock}")).await.expect(lock);
    let watcher = fleet.house.database.client().await;
    let released = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let all = racers_of(RACERS);
        eventually("all of them wait", async || {
            let row = watcher.query_one(waiting, &[]).await.expect("the server's view");
            (row.get::<_, i64>(0) == all).then_some(())
        })
        .await;
        holder.batch_execute("COMMIT").await.expect("released");
    };
    let (answers, ()) = futures::future::join(join_all(racers), released).await;
    answers
}

fn racers_of(count: usize) -> i64 {
    i64::try_from(count).expect("few")
}

#[tokio::test]
async fn the_naive_token_bucket_grants_what_it_does_not_have_and_ours_does_not() {
    let fleet = Fleet::open().await;
    fleet
        .client
        .batch_execute("CREATE TABLE naive (name text PRIMARY KEY, tokens int); INSERT INTO naive VALUES ('m', 10)")
        .await
        .expect("a bucket");
    let clients = join_all((0..RACERS).map(|_| fleet.house.database.client())).await;

    let naive = clients.iter().map(|client| client.query(NAIVE, &[])).collect();
    let naive = held_up(&fleet, "SELECT FROM naive FOR UPDATE", naive).await;
    let granted =
        naive.into_iter().filter(|rows| !rows.as_ref().expect("asked").is_empty()).count();
    assert_eq!(granted, RACERS, "each saw the ten that were there before it waited");

    let limits = Limits { requests_per_minute: Some(60), burst: Some(10), ..none() };
    fleet.limit(Scope::Model, "m", limits).await;
    let calls: Vec<_> = (0..RACERS).map(|_| fleet.call("m")).collect();
    let ours = clients.iter().zip(&calls).map(|(client, call)| ask(&fleet, client, call)).collect();
    let ours = held_up(&fleet, "SELECT FROM llm_quotas FOR UPDATE", ours).await;
    assert_eq!(ours.into_iter().filter(|granted| *granted).count(), 10);
}

/// Our statement over a connection without the store's limits of time.
async fn ask(
    fleet: &Fleet,
    client: &tokio_postgres::Client,
    call: &shared::store::NewCall,
) -> bool {
    let sql = include_str!("../../src/store/sql/call_admit.sql");
    let row = client
        .query_one(
            sql,
            &[
                &call.id,
                &fleet.attempt.task_id.0,
                &fleet.attempt.token.0,
                &"ask",
                &call.call_no.cast_signed(),
                &call.request_hash,
                &call.endpoint,
                &call.model,
                &call.traceparent,
                &call.est_tokens,
                &call.est_cost_micro,
                &UNTRIED_CALLS,
                &i64::try_from(UNTRIED_FOR.as_millis()).expect("a while"),
            ],
        )
        .await
        .expect("answered");
    row.get("granted")
}

fn none() -> Limits {
    Limits::default()
}
