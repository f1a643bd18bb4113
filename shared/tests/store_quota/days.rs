//! Daily budgets: what counts, when the day ends, and who is called back.

use std::time::Duration;

use shared::domain::outcome::{ErrorClass, Failure, Outcome};
use shared::domain::quota::{Limits, OverBudget, Reason, Scope};
use shared::domain::task::TaskState;
use shared::store::{Change, LimitChange};

use crate::fleet::{Fleet, told};

fn budget(daily_tokens: u64) -> Limits {
    Limits { daily_tokens: Some(daily_tokens), ..Limits::default() }
}

/// What is under way may end cheaper than it holds: only what is used sends away for a day.
#[tokio::test]
async fn an_estimate_holds_back_for_a_moment_and_a_bill_for_the_day() {
    let fleet = Fleet::open().await;
    fleet.limit(Scope::Model, "m", budget(25)).await;
    let calls = [fleet.granted("m").await, fleet.granted("m").await];
    let (reason, wait) = told(&fleet.denied("m").await);
    assert_eq!((reason, wait), (Reason::Held, 1000));

    fleet.answered(calls[0], 4, 4).await;
    let third = fleet.granted("m").await;
    fleet.answered(calls[1], 9, 9).await;
    fleet.answered(third, 9, 9).await;

    assert_eq!(fleet.quota("m").await.used_tokens, 22);
    let denial = fleet.denied("m").await;
    assert_eq!((denial.reason, denial.over_budget), (Reason::DailyTokens, OverBudget::Park));
}

#[track_caller]
fn resets(fleet: &Fleet, at: &str, zone: &str, hours: u64) -> impl Future<Output = ()> {
    let (at, zone) = (at.to_owned(), zone.to_owned());
    let caller = std::panic::Location::caller();
    async move {
        fleet.client.execute("TRUNCATE llm_quotas", &[]).await.expect("none");
        fleet.at(&at).await;
        let timezone = zone.parse().expect("a zone");
        fleet.limit(Scope::Model, "m", Limits { timezone, ..budget(10) }).await;
        let call = fleet.granted("m").await;
        fleet.answered(call, 10, 10).await;

        let (reason, wait) = told(&fleet.denied("m").await);

        assert_eq!(reason, Reason::DailyTokens, "{caller}");
        assert_eq!(wait, hours * 3_600_000, "{caller}: {at} in {zone}");
        fleet.pass(Duration::from_millis(wait - 1)).await;
        fleet.denied("m").await;
        fleet.pass(Duration::from_millis(1)).await;
        fleet.granted("m").await;
    }
}

#[tokio::test]
async fn a_day_ends_at_midnight_of_its_zone_clock_changes_included() {
    let fleet = Fleet::open().await;
    resets(&fleet, "2026-12-01T18:00:00Z", "UTC", 6).await;
    resets(&fleet, "2026-12-01T18:00:00Z", "Asia/Shanghai", 22).await;
    // The nights of the clock changes: 23 and 25 hours from midnight to midnight.
    resets(&fleet, "2026-03-28T23:00:00Z", "Europe/Berlin", 23).await;
    resets(&fleet, "2026-10-24T22:00:00Z", "Europe/Berlin", 25).await;
    // Where midnight itself does not exist.
    resets(&fleet, "2026-09-05T04:00:00Z", "America/Santiago", 24).await;
}

/// A call that was let in before midnight is yesterday's, whenever its bill comes.
#[tokio::test]
async fn a_call_counts_on_the_day_that_it_began() {
    let fleet = Fleet::open().await;
    fleet.at("2026-12-01T23:59:59Z").await;
    fleet.limit(Scope::Model, "m", budget(100)).await;
    let late = fleet.granted("m").await;
    fleet.pass(Duration::from_secs(2)).await;
    let early = fleet.granted("m").await;

    fleet.answered(late, 50, 50).await;
    fleet.answered(early, 7, 7).await;

    let quota = fleet.quota("m").await;
    assert_eq!((quota.day.as_str(), quota.used_tokens), ("2026-12-02", 7));
    assert_eq!((quota.held_tokens, quota.in_flight), (0, 0));
}

#[tokio::test]
async fn a_spent_budget_is_told_once_a_day() {
    let fleet = Fleet::open().await;
    fleet.at("2026-12-01T18:00:00Z").await;
    fleet.limit(Scope::Schedule, "s", budget(10)).await;
    for _ in 0..2 {
        let call = fleet.granted("m").await;
        fleet.answered(call, 10, 10).await;
        for _ in 0..3 {
            fleet.denied("m").await;
        }
        fleet.pass(Duration::from_hours(24)).await;
    }

    let alerts = fleet.store.alerts(10).await.expect("read");
    assert_eq!(alerts.len(), 2, "{alerts:?}");
    let said = "The daily budget of the schedule s has no room for this call: 10 of 10 tokens are used \
                today and this call may need up to 10. Tasks that need more than is left wait until 2026-12-02 \
                00:00 (UTC)";
    assert_eq!(alerts[1].text, said);
}

/// Who is sent away and who is told learn how much is left: a budget that is hardly used is not spent.
#[tokio::test]
async fn a_call_that_does_not_fit_learns_what_is_left() {
    let fleet = Fleet::open().await;
    let limits = Limits { daily_cost_micro: Some(150), ..budget(100) };
    fleet.limit(Scope::Model, "m", Limits { over_budget: OverBudget::Dead, ..limits }).await;
    let call = fleet.granted("m").await;
    fleet.answered(call, 4, 51).await;

    let denial = fleet.denied("m").await;

    let room = denial.room;
    assert_eq!((room.used_tokens, room.held_tokens, room.daily_tokens), (4, 0, Some(100)));
    assert_eq!((room.used_cost_micro, room.daily_cost_micro), (51, Some(150)));
    let alerts = fleet.store.alerts(10).await.expect("read");
    let said = "The daily budget of the model m has no room for this call: 0.000051 of 0.00015 USD are \
                spent today and this call may cost up to 0.0001. Tasks that need more than is left are given up";
    assert_eq!(alerts[0].text, said);
}

/// Ten thousand parked tasks do not come back in one instant.
#[tokio::test]
async fn those_who_are_parked_come_back_one_after_another() {
    let fleet = Fleet::open().await;
    fleet.at("2026-12-01T18:00:00Z").await;
    let rate = Limits { requests_per_minute: Some(60), burst: Some(9), ..budget(10) };
    fleet.limit(Scope::Model, "m", rate).await;
    let call = fleet.granted("m").await;
    fleet.answered(call, 10, 10).await;

    let waits = [fleet.denied("m").await, fleet.denied("m").await].map(|denial| told(&denial).1);

    assert_eq!(waits, [6 * 3_600_000, 6 * 3_600_000 + 1000]);
}

/// An operator raises the budget: what was parked until tomorrow goes on now.
#[tokio::test]
async fn a_raised_budget_calls_back_who_was_sent_away() {
    let mut fleet = Fleet::open().await;
    fleet.at("2026-12-01T18:00:00Z").await;
    fleet.limit(Scope::Model, "m", budget(10)).await;
    let call = fleet.granted("m").await;
    fleet.answered(call, 10, 10).await;
    let denial = fleet.denied("m").await;
    let failure = Failure::new(ErrorClass::Throttled, "spent");
    let snooze = Outcome::Snooze { delay: denial.wait, failure };
    fleet.house.record(&fleet.attempt, snooze).await;
    let task = fleet.attempt.task_id;
    assert_eq!(fleet.house.state(task).await, TaskState::Scheduled);
    assert_eq!(fleet.quota("m").await.waiting, 1);

    let more = LimitChange { daily_tokens: Change::Set(100), ..LimitChange::default() };
    fleet.store.set_quota(Scope::Model, "m", &more, "ann").await.expect("set");
    let woken = fleet.store.wake_waiting(Scope::Model, "m").await.expect("woken");

    assert_eq!(woken, 1);
    let row = fleet.store.task(task).await.expect("read").expect("a task");
    assert_eq!((row.summary.state, row.summary.failures), (TaskState::Queued, 0));
    assert_eq!(row.attempts[0]["delay_ms"], 0, "the row says what was made of it");
    let again = fleet.house.claimed(task, fleet.house.worker().await).await;
    fleet.attempt = again;
    fleet.granted("m").await;
    assert_eq!(fleet.quota("m").await.waiting, 0);
}
