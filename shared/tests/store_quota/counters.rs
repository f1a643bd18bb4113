//! The counters are the journal: whatever ends a call, and however often that is said.

use std::time::Duration;

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use shared::domain::outcome::Outcome;
use shared::domain::quota::{Limits, Scope};
use shared::store::{Admission, CallEnd, CallStart, Closing, Completion};

use crate::fleet::{Fleet, RACERS, patiently};
use crate::house::{TTL, completed, failure};

/// What the journal says of each quota, put together apart from the house's own way.
const AUDIT: &str = "
    SELECT q.scope || ' ' || q.name AS quota, q.in_flight, q.held_tokens, q.used_tokens,
           count(*) FILTER (WHERE c.state = 'sent')::int AS sent,
           coalesce(sum(c.est_tokens) FILTER (WHERE c.state = 'sent'), 0)::bigint AS held,
           coalesce(sum(CASE WHEN c.state = 'unknown' THEN c.est_tokens
                             WHEN c.state <> 'sent' THEN coalesce(c.input_tokens, 0) + coalesce(c.output_tokens, 0)
                        END), 0)::bigint AS used
    FROM llm_quotas q
    LEFT JOIN llm_calls c ON q.scope = 'model' AND c.model = q.name OR q.scope = 'schedule' AND c.schedule = q.name
    GROUP BY q.scope, q.name";

async fn audit(fleet: &Fleet) {
    for row in fleet.client.query(AUDIT, &[]).await.expect("the journal") {
        let counted: (i32, i64, i64) = (row.get(1), row.get(2), row.get(3));
        let written: (i32, i64, i64) = (row.get(4), row.get(5), row.get(6));
        assert_eq!(counted, written, "{}", row.get::<_, &str>(0));
    }
}

#[tokio::test]
async fn an_end_that_is_told_twice_counts_once() {
    let fleet = Fleet::open().await;
    fleet
        .limit(Scope::Schedule, "s", Limits { daily_tokens: Some(1000), ..Limits::default() })
        .await;
    let call = fleet.granted("m").await;

    for _ in 0..3 {
        fleet.answered(call, 7, 70).await;
        fleet.failed(call, "retryable", None).await;
    }

    for name in ["m", "s"] {
        let quota = fleet.quota(name).await;
        assert_eq!((quota.in_flight, quota.held_tokens, quota.used_tokens), (0, 0, 7), "{name}");
        assert!((quota.used_cost - 70e-6).abs() < 1e-12);
    }
}

/// Whoever lost the answer asks again, and is in already: also when nobody else would be.
#[tokio::test]
async fn an_admission_that_is_asked_for_twice_counts_once() {
    let fleet = Fleet::open().await;
    let limits = Limits { requests_per_minute: Some(60), burst: Some(1), ..Limits::default() };
    fleet.limit(Scope::Model, "m", limits).await;
    let call = fleet.call("m");

    for _ in 0..3 {
        let answer = fleet.admit(&call).await;
        assert!(matches!(answer, Admission::Granted), "{answer:?}");
    }

    let quota = fleet.quota("m").await;
    assert_eq!((quota.in_flight, quota.held_tokens, quota.waiting), (1, 10, 0));
    audit(&fleet).await;
}

/// Its attempt dies, so the estimate is used; its answer comes late all the same, and counts instead.
#[tokio::test]
async fn an_unknown_outcome_uses_its_estimate_until_the_bill_comes() {
    let fleet = Fleet::open().await;
    let call = fleet.granted("m").await;
    let retry = Outcome::Retry { delay: Duration::ZERO, failure: failure() };
    fleet.house.record(&fleet.attempt, retry).await;

    let quota = fleet.quota("m").await;
    assert_eq!((quota.in_flight, quota.held_tokens, quota.used_tokens), (0, 0, 10));
    fleet.answered(call, 3, 30).await;

    let quota = fleet.quota("m").await;
    assert_eq!((quota.in_flight, quota.held_tokens, quota.used_tokens), (0, 0, 3));
    assert!((quota.used_cost - 30e-6).abs() < 1e-12);
}

/// Each way in which an attempt ends while its call is under way.
#[tokio::test]
async fn no_way_to_end_an_attempt_leaks_a_call() {
    let retry = || Outcome::Retry { delay: Duration::ZERO, failure: failure() };
    for way in ["retry", "dead", "cancelled", "completed", "rescue", "deadline", "audit"] {
        let fleet = Fleet::open().await;
        fleet.granted("m").await;
        let store = &fleet.store;
        match way {
            "retry" => drop(fleet.house.record(&fleet.attempt, retry()).await),
            "dead" => {
                let dead = Outcome::Dead { failure: failure() };
                fleet.house.record(&fleet.attempt, dead).await;
            }
            "cancelled" => {
                store.cancel(fleet.attempt.task_id).await.expect("asked");
                fleet.house.record(&fleet.attempt, retry()).await;
            }
            // A handler that asked and did not wait for the answer.
            "completed" => {
                fleet.house.record(&fleet.attempt, completed()).await;
                assert_eq!(store.end_lost_calls().await.expect("swept"), 1);
            }
            "rescue" => {
                fleet.pass(TTL * 2).await;
                assert_eq!(store.rescue().await.expect("swept").len(), 1);
            }
            "deadline" => {
                fleet.pass(Duration::from_hours(24 * 400)).await;
                assert_eq!(store.release_overdue().await.expect("swept").len(), 1);
            }
            _ => {
                fleet.pass(Duration::from_secs(11)).await;
                let sql = "SELECT incarnation FROM tasks";
                let by = fleet.client.query_one(sql, &[]).await.expect("a worker").get(0);
                let by = shared::domain::attempt::Incarnation(by);
                assert_eq!(store.audit(by, &[]).await.expect("swept").len(), 1);
            }
        }
        let quota = fleet.quota("m").await;
        assert_eq!((quota.in_flight, quota.held_tokens), (0, 0), "{way}");
        assert_eq!(store.end_lost_calls().await.expect("swept"), 0, "{way}");
        if way != "deadline" {
            assert_eq!(quota.used_tokens, 10, "{way}: it may have been billed");
        }
        audit_states(&fleet, way).await;
    }
}

async fn audit_states(fleet: &Fleet, way: &str) {
    let sql = "SELECT state FROM llm_calls";
    let state: String = fleet.client.query_one(sql, &[]).await.expect("the call").get(0);
    assert_eq!(state, "unknown", "{way}");
}

/// Calls of one attempt that are under way beside each other stay so: one that asks again ends none.
#[tokio::test]
async fn calls_beside_each_other_do_not_end_each_other() {
    let fleet = Fleet::open().await;
    fleet.granted("m").await;
    fleet.granted("n").await;
    assert_eq!(fleet.store.end_lost_calls().await.expect("swept"), 0);
    assert_eq!((fleet.quota("m").await.in_flight, fleet.quota("n").await.in_flight), (1, 1));
}

/// Forty at once, over models and schedules, ending in every way: nothing waits for itself in a
/// circle, and at the end, as in between, the counters are the journal.
#[tokio::test]
async fn after_a_storm_the_counters_are_the_journal() {
    const SEED: u64 = 7;
    let fleet = Fleet::with_connections(RACERS).await;
    for schedule in ["s0", "s1"] {
        let budget = Limits { daily_tokens: Some(1_000_000), ..Limits::default() };
        fleet.limit(Scope::Schedule, schedule, budget).await;
    }
    for model in ["m0", "m1", "m2"] {
        fleet.limit(Scope::Model, model, Limits::default()).await;
    }
    let worker = fleet.house.worker().await;
    let mut attempts = Vec::new();
    for n in 0..RACERS {
        let task = fleet.house.given(|_| {}).await;
        let sql = "UPDATE tasks SET schedule = $2 WHERE id = $1";
        let schedule = format!("s{}", n % 2);
        fleet.client.execute(sql, &[&task.0, &schedule]).await.expect("a schedule's task");
        attempts.push(fleet.house.claimed(task, worker).await);
    }
    let fleet = &fleet;
    let work = attempts.iter().enumerate().map(|(n, attempt)| async move {
        let mut dice = StdRng::seed_from_u64(SEED + n as u64);
        for _ in 0..6 {
            let mut call = fleet.call(["m0", "m1", "m2"][dice.random_range(0..3)]);
            call.est_tokens = dice.random_range(1..50);
            let at = CallStart { task: attempt.task_id, token: attempt.token, step: "ask" };
            patiently(|| fleet.store.call_admit(at, &call)).await;
            match dice.random_range(0..5) {
                0 => fleet.answered(call.id, dice.random_range(0..80), 1).await,
                1 => fleet.failed(call.id, "retryable", None).await,
                2 => {
                    let closes = Some(Closing::For(Duration::from_millis(1)));
                    fleet.failed(call.id, "throttled", closes).await;
                    patiently(|| fleet.store.open_quota(&call.model)).await;
                }
                3 => {
                    let end = CallEnd { unknown: true, ..CallEnd::default() };
                    patiently(|| fleet.store.call_ended(call.id, &end)).await;
                }
                _ => {}
            }
        }
        let outcome = match n % 3 {
            0 => Outcome::Completed { result: json!({}) },
            1 => Outcome::Retry { delay: Duration::ZERO, failure: failure() },
            _ => return,
        };
        let (task, token) = (attempt.task_id, attempt.token);
        let completion = Completion { task, token, traceparent: None, outcome };
        patiently(|| fleet.store.record(&completion)).await;
    });

    join_all(work).await;

    audit(fleet).await;
    fleet.pass(TTL * 2).await;
    fleet.store.rescue().await.expect("swept");
    fleet.store.end_lost_calls().await.expect("swept");
    audit(fleet).await;
    let quotas = fleet.store.quotas().await.expect("read");
    assert!(quotas.iter().all(|quota| quota.in_flight == 0), "{quotas:?}");
}
