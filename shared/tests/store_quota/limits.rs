//! How long one who is not let in waits, and what can never be let in.

use std::time::Duration;

use shared::domain::quota::{Limits, OverBudget, Quota, Reason, Scope};
use shared::store::{Admission, Change, LimitChange, NewCall};

use crate::fleet::{Fleet, told};

/// The leader, with a file that speaks of models and of schedules.
const LEADER: &[Scope] = &[Scope::Model, Scope::Schedule];

fn rate(requests_per_minute: u32, burst: u32) -> Limits {
    Limits {
        requests_per_minute: Some(requests_per_minute),
        burst: Some(burst),
        ..Limits::default()
    }
}

/// Nobody is told to come early, and no two to come at the same moment.
#[tokio::test]
async fn those_who_wait_have_a_turn_each() {
    let fleet = Fleet::open().await;
    fleet.limit(Scope::Model, "m", rate(60, 2)).await;
    fleet.granted("m").await;
    fleet.granted("m").await;

    let turns = [fleet.denied("m").await, fleet.denied("m").await, fleet.denied("m").await];

    let turns: Vec<_> = turns.iter().map(told).collect();
    assert_eq!(turns, [1000, 2000, 3000].map(|ms| (Reason::Requests, ms)));
    fleet.pass(Duration::from_millis(999)).await;
    fleet.denied("m").await;
    fleet.pass(Duration::from_millis(1)).await;
    fleet.granted("m").await;
    fleet.denied("m").await;
}

#[tokio::test]
async fn a_pause_fills_the_burst_and_no_more() {
    let fleet = Fleet::open().await;
    fleet.limit(Scope::Model, "m", rate(60, 3)).await;
    for _ in 0..2 {
        for _ in 0..3 {
            fleet.granted("m").await;
        }
        fleet.denied("m").await;
        fleet.pass(Duration::from_hours(1)).await;
    }
}

/// A clock that went back, or a burst that was made smaller, must not close a model for hours.
#[tokio::test]
async fn a_debt_beyond_reason_is_forgiven() {
    let fleet = Fleet::open().await;
    fleet.limit(Scope::Model, "m", rate(60, 2)).await;
    let later = "UPDATE llm_quotas SET request_tat = belfry_now() + interval '1 day'";
    fleet.client.execute(later, &[]).await.expect("owed");

    let (reason, wait) = told(&fleet.denied("m").await);

    assert_eq!((reason, wait), (Reason::Requests, 59_000));
}

#[tokio::test]
async fn tokens_are_counted_by_estimate_and_a_large_call_waits_for_an_empty_bucket() {
    let fleet = Fleet::open().await;
    // A burst of 100 and 10 a second.
    let limits = Limits { tokens_per_minute: Some(600), ..Limits::default() };
    fleet.limit(Scope::Model, "m", limits).await;
    let sized = |est_tokens| NewCall { est_tokens, ..fleet.call("m") };
    let denied = async |tokens| match fleet.admit(&sized(tokens)).await {
        Admission::Denied(denial) => told(&denial),
        other => panic!("{other:?}"),
    };

    assert!(matches!(fleet.admit(&sized(60)).await, Admission::Granted));
    assert_eq!(denied(50).await, (Reason::Tokens, 1000));
    fleet.pass(Duration::from_secs(1)).await;
    assert!(matches!(fleet.admit(&sized(50)).await, Admission::Granted));
    // 300 are more than the burst: all 100 that are owed must be over.
    assert_eq!(denied(300).await.0, Reason::Tokens);
    fleet.pass(Duration::from_secs(10)).await;
    assert!(matches!(fleet.admit(&sized(300)).await, Admission::Granted));
    assert_eq!(denied(601).await.0, Reason::TooLarge, "more than a minute has");
}

#[tokio::test]
async fn what_can_never_fit_is_said_at_once_and_holds_nothing() {
    let fleet = Fleet::open().await;
    let budget =
        |tokens, cost| Limits { daily_tokens: tokens, daily_cost_micro: cost, ..Limits::default() };
    fleet.limit(Scope::Model, "tokens", budget(Some(9), None)).await;
    fleet.limit(Scope::Model, "cost", budget(None, Some(99))).await;
    assert_eq!(fleet.denied("tokens").await.reason, Reason::TooLarge);
    assert_eq!(fleet.denied("cost").await.reason, Reason::TooLarge);

    fleet.limit(Scope::Schedule, "s", budget(None, Some(1_000_000))).await;
    let unpriced = NewCall { est_cost_micro: None, ..fleet.call("m") };
    match fleet.admit(&unpriced).await {
        Admission::Denied(denial) => {
            assert_eq!((denial.reason, denial.scope), (Reason::Unpriced, Scope::Schedule));
        }
        other => panic!("{other:?}"),
    }
    let quotas = fleet.store.quotas().await.expect("read");
    assert!(quotas.iter().all(|quota| quota.in_flight == 0 && quota.waiting == 0), "{quotas:?}");
}

#[tokio::test]
async fn a_claim_that_is_lost_is_let_in_nowhere() {
    let fleet = Fleet::open().await;
    let sql = "UPDATE tasks SET claim_token = gen_random_uuid()";
    fleet.client.execute(sql, &[]).await.expect("taken over");

    assert!(matches!(fleet.admit(&fleet.call("m")).await, Admission::Fenced));
}

/// The file's entry counts until somebody sets another limit by hand, and that until the file changes.
#[tokio::test]
async fn a_hand_wins_over_the_file_until_the_file_says_something_new() {
    let fleet = Fleet::open().await;
    let file = |rpm| {
        let limits = Limits { over_budget: OverBudget::Dead, ..rate(rpm, 1) };
        [Quota { scope: Scope::Model, name: "m".to_owned(), limits }]
    };
    let rpm = async || fleet.quota("m").await.requests_per_minute;

    fleet.store.apply_quotas(&file(60), &[]).await.expect("a worker begins");
    assert_eq!(rpm().await, Some(60));
    fleet.store.apply_quotas(&file(50), &[]).await.expect("a worker with another file");
    assert_eq!(rpm().await, Some(60), "only the leader changes what is there");

    let by_hand = LimitChange { requests_per_minute: Change::Set(30), ..LimitChange::default() };
    fleet.store.set_quota(Scope::Model, "m", &by_hand, "ann").await.expect("set");
    let quota = fleet.quota("m").await;
    assert_eq!((quota.requests_per_minute, quota.burst), (Some(30), Some(5)));
    assert_eq!((quota.over_budget.as_str(), quota.set_by.as_deref()), ("dead", Some("ann")));
    fleet.store.apply_quotas(&file(60), LEADER).await.expect("the leader, unchanged");
    assert_eq!(rpm().await, Some(30), "the file says what it said");

    let changed = fleet.store.apply_quotas(&file(61), LEADER).await.expect("edited");
    assert_eq!(changed, [(Scope::Model, "m".to_owned())]);
    assert_eq!((rpm().await, fleet.quota("m").await.set_by), (Some(61), None));
    fleet.store.apply_quotas(&[], LEADER).await.expect("taken out");
    assert_eq!((rpm().await, fleet.quota("m").await.in_file), (None, false));

    let lifted = LimitChange { requests_per_minute: Change::Lift, ..LimitChange::default() };
    fleet.store.set_quota(Scope::Model, "new", &lifted, "ann").await.expect("set");
    fleet.store.apply_quotas(&[], LEADER).await.expect("a hand's row is no file's");
    assert_eq!(fleet.quota("new").await.set_by.as_deref(), Some("ann"));
}

/// A file without `tasks` says nothing of schedules, and so nothing of their budgets.
#[tokio::test]
async fn who_speaks_of_models_alone_leaves_budgets_of_schedules() {
    let fleet = Fleet::open().await;
    let of = |scope, name: &str| Quota { scope, name: name.to_owned(), limits: rate(60, 1) };
    let both = [of(Scope::Model, "m"), of(Scope::Schedule, "nightly")];
    fleet.store.apply_quotas(&both, LEADER).await.expect("applied");

    let lifted = fleet.store.apply_quotas(&[], &[Scope::Model]).await.expect("applied");

    assert_eq!(lifted, [(Scope::Model, "m".to_owned())]);
}
