//! A provider's word closes a model for everybody; one call finds out whether it is open again.

use std::time::Duration;

use shared::domain::quota::Reason;
use shared::store::Closing;

use crate::fleet::{Fleet, told};
use crate::house::failure;
use shared::domain::outcome::Outcome;

const HINT: Duration = Duration::from_secs(5);

/// A model that was closed for five seconds just now.
async fn closed() -> Fleet {
    let fleet = Fleet::open().await;
    let call = fleet.granted("m").await;
    fleet.failed(call, "throttled", Some(Closing::For(HINT))).await;
    fleet
}

#[tokio::test]
async fn a_closed_model_is_asked_by_nobody_before_its_time_and_others_are_not_touched() {
    let fleet = closed().await;

    let denial = fleet.denied("m").await;
    assert_eq!(told(&denial), (Reason::Closed, 5000));
    assert_eq!(denial.said.as_deref(), Some("slow down"));
    assert_eq!(told(&fleet.denied("m").await).1, 5050, "one after another");
    fleet.granted("another").await;

    fleet.pass(HINT.saturating_sub(Duration::from_millis(1))).await;
    assert_eq!(fleet.denied("m").await.reason, Reason::Closed);
    fleet.pass(Duration::from_millis(1)).await;
    fleet.granted("m").await;
}

/// Late answers of calls that were under way: a shorter hint does not shorten, a success opens nothing.
#[tokio::test]
async fn a_closing_is_never_shortened() {
    let fleet = Fleet::open().await;
    let calls = [fleet.granted("m").await, fleet.granted("m").await, fleet.granted("m").await];
    fleet.failed(calls[0], "throttled", Some(Closing::For(HINT))).await;

    fleet.failed(calls[1], "throttled", Some(Closing::For(Duration::from_secs(1)))).await;
    fleet.answered(calls[2], 1, 1).await;

    assert_eq!(told(&fleet.denied("m").await), (Reason::Closed, 5000));
}

#[tokio::test]
async fn the_probe_opens_closes_again_or_leaves_the_question_to_the_next() {
    let fleet = closed().await;
    fleet.pass(HINT).await;
    let probe = fleet.granted("m").await;
    assert_eq!(fleet.denied("m").await.reason, Reason::Probing);

    fleet.failed(probe, "throttled", Some(Closing::For(HINT))).await;
    assert_eq!(fleet.denied("m").await.reason, Reason::Closed);
    fleet.pass(HINT).await;

    // A passing trouble says nothing about the rate.
    let probe = fleet.granted("m").await;
    fleet.failed(probe, "retryable", None).await;
    let probe = fleet.granted("m").await;
    assert_eq!(fleet.denied("m").await.reason, Reason::Probing);

    fleet.answered(probe, 1, 1).await;
    assert_eq!(fleet.quota("m").await.state, "open");
    fleet.granted("m").await;
    fleet.granted("m").await;
}

/// A provider that always says no and never for how long is asked ever more rarely, until it answers.
#[tokio::test]
async fn pauses_that_nobody_has_named_grow_from_probe_to_probe() {
    let fleet = Fleet::open().await;
    let growing = Closing::Growing { from: HINT, most: Duration::from_secs(18) };
    let (first, late) = (fleet.granted("m").await, fleet.granted("m").await);
    fleet.failed(first, "throttled", Some(growing)).await;
    // It was under way: no probe.
    fleet.failed(late, "throttled", Some(growing)).await;

    for seconds in [5, 10, 18, 18] {
        let pause = Duration::from_secs(seconds);
        fleet.pass(pause.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(fleet.denied("m").await.reason, Reason::Closed, "{seconds} s");
        fleet.pass(Duration::from_millis(1)).await;
        let probe = fleet.granted("m").await;
        fleet.failed(probe, "throttled", Some(growing)).await;
    }
    // A time that is named counts as it is, and an answer ends the matter.
    fleet.pass(Duration::from_secs(18)).await;
    let probe = fleet.granted("m").await;
    fleet.failed(probe, "throttled", Some(Closing::For(HINT))).await;
    fleet.pass(HINT).await;
    let probe = fleet.granted("m").await;
    fleet.answered(probe, 1, 1).await;
    let call = fleet.granted("m").await;
    fleet.failed(call, "throttled", Some(growing)).await;
    fleet.pass(HINT).await;
    fleet.granted("m").await;
}

/// Whoever probes may die: the next one does.
#[tokio::test]
async fn a_probe_that_dies_with_its_worker_is_followed_by_another() {
    let fleet = closed().await;
    fleet.pass(HINT).await;
    fleet.granted("m").await;
    assert_eq!(fleet.quota("m").await.state, "probing");

    let retry = Outcome::Retry { delay: Duration::ZERO, failure: failure() };
    fleet.house.record(&fleet.attempt, retry).await;

    let quota = fleet.quota("m").await;
    assert_eq!((quota.state.as_str(), quota.in_flight), ("probe next", 0));
}

/// No credit: nobody asks until a person says so, and one is told.
#[tokio::test]
async fn a_model_without_credit_stays_closed_until_somebody_opens_it() {
    let fleet = Fleet::open().await;
    let calls = [fleet.granted("m").await, fleet.granted("m").await];
    for call in calls {
        fleet.failed(call, "permanent", Some(Closing::UntilOpened)).await;
    }
    assert_eq!(fleet.quota("m").await.state, "closed until opened");
    assert_eq!(told(&fleet.denied("m").await), (Reason::Closed, 60_000));

    // Looked after ever more rarely.
    fleet.pass(Duration::from_hours(10)).await;
    let (reason, wait) = told(&fleet.denied("m").await);
    assert_eq!((reason, wait), (Reason::Closed, 3_600_000));
    let alerts = fleet.store.alerts(10).await.expect("read");
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    let said = ["Model m at h:1 is closed", "slow down", "producer quota open m"];
    assert!(said.iter().all(|part| alerts[0].text.contains(part)), "{}", alerts[0].text);
    assert_eq!(alerts[0].kind, "quota");

    assert!(fleet.store.open_quota("m").await.expect("asked"));
    assert!(!fleet.store.open_quota("m").await.expect("asked"), "it is open");
    fleet.granted("m").await;
}

/// The same model at another address is another account.
#[tokio::test]
async fn a_closing_holds_where_it_was_said() {
    let fleet = closed().await;
    let mut elsewhere = fleet.call("m");
    elsewhere.endpoint = "h:2".to_owned();

    let answer = fleet.admit(&elsewhere).await;

    assert!(matches!(answer, shared::store::Admission::Granted), "{answer:?}");
    assert_eq!(fleet.denied("m").await.reason, Reason::Closed);
}
