//! Model calls under limits: who waits in the slot, who is sent away, who asks another model.

use loadtest::stub_llm::Fault;
use serde_json::{Value, json};
use shared::domain::outcome::{ErrorClass, TaskError};
use shared::domain::quota::{Limits, OverBudget, Quota, Scope};
use shared::store::{UsageBy, UsageRow};

use crate::house::{House, fate};

fn prompt(model: &str, text: &str) -> Value {
    json!({"prompt": text, "model": model, "max_tokens": 100})
}

async fn limited(house: &House, model: &str, limits: Limits) {
    let quota = Quota { scope: Scope::Model, name: model.to_owned(), limits };
    house.store.apply_quotas(&[quota], &[]).await.expect("applied");
}

fn rate(requests_per_minute: u32) -> Limits {
    Limits { requests_per_minute: Some(requests_per_minute), burst: Some(1), ..Limits::default() }
}

/// A day's budget that one call uses up.
async fn spent(house: &House, model: &str, over_budget: OverBudget) {
    let limits = Limits { daily_tokens: Some(150), over_budget, ..Limits::default() };
    limited(house, model, limits).await;
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 50});
    house.stub.script(model, vec![Fault { usage: Some(usage), ..Fault::default() }]);
    house.first("model_invoke", prompt(model, "first")).await.expect("it fits");
}

#[tokio::test]
async fn a_short_wait_is_spent_in_the_slot() {
    let house = House::open("").await;
    limited(&house, "m", rate(60)).await;
    house.first("model_invoke", prompt("m", "one")).await.expect("let in at once");

    house.first("model_invoke", prompt("m", "two")).await.expect("let in after a while");

    let client = house.database.client().await;
    let sql = "SELECT (max(started_at) - min(started_at) >= interval '1 second'), count(*) FROM llm_calls";
    let journal = client.query_one(sql, &[]).await.expect("the journal");
    assert_eq!((journal.get::<_, bool>(0), journal.get::<_, i64>(1)), (true, 2));
}

#[tokio::test]
async fn a_long_wait_gives_the_slot_back_and_costs_nothing() {
    let house = House::open("").await;
    limited(&house, "m", rate(1)).await;
    house.first("model_invoke", prompt("m", "one")).await.expect("let in at once");

    let result = house.first("model_invoke", prompt("m", "two")).await;

    match result {
        Err(TaskError::Snooze { delay, failure }) => {
            assert!((30..=61).contains(&delay.as_secs()), "{delay:?}");
            assert_eq!(failure.class, ErrorClass::Throttled);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(house.stub.calls().len(), 1);
}

/// Ten tasks, no credit: one request, one dead letter, nine that wait for somebody.
#[tokio::test]
async fn without_credit_one_request_is_made_and_the_others_wait() {
    let house = House::open("").await;
    let mut fates = Vec::new();
    for n in 0..10 {
        let result = house.first("model_invoke", prompt("stub-quota", &format!("task {n}"))).await;
        fates.push(fate(result));
    }

    assert_eq!(fates[0].0, "dead");
    for (fate, failure) in &fates[1..] {
        assert_eq!(*fate, "snooze", "{failure}");
        assert!(failure.message.contains("closed for the whole fleet"), "{failure}");
    }
    assert_eq!(house.stub.calls().len(), 1);
    let alerts = house.store.alerts(10).await.expect("read");
    assert_eq!(alerts.iter().filter(|alert| alert.kind == "quota").count(), 1, "{alerts:?}");
}

#[tokio::test]
async fn a_rate_limit_of_the_provider_closes_its_model_alone() {
    let house = House::open("").await;
    let limited = fate(house.first("model_invoke", prompt("stub-429-after3600", "a")).await);
    assert_eq!(limited.0, "snooze");

    match house.first("model_invoke", prompt("stub-429-after3600", "b")).await {
        Err(TaskError::Snooze { delay, .. }) => {
            assert!((3590..=3602).contains(&delay.as_secs()), "{delay:?}");
        }
        other => panic!("{other:?}"),
    }
    house.first("model_invoke", prompt("m", "c")).await.expect("another model");
    assert_eq!(house.stub.calls().len(), 2);
}

#[tokio::test]
async fn a_spent_budget_parks_kills_or_asks_another_model_as_it_is_told() {
    let house = House::open("").await;
    for (model, over_budget, expected, words) in [
        ("parks", OverBudget::Park, "snooze", "parked until"),
        ("kills", OverBudget::Dead, "dead", "its policy is dead"),
        ("circles", OverBudget::Downgrade("circles".to_owned()), "snooze", "parked until"),
    ] {
        spent(&house, model, over_budget).await;
        let (fate, failure) = fate(house.first("model_invoke", prompt(model, "second")).await);
        assert_eq!(fate, expected, "{model}: {failure}");
        assert!(failure.message.contains(words), "{model}: {failure}");
    }
    spent(&house, "large", OverBudget::Downgrade("small".to_owned())).await;
    let result = house.first("model_invoke", prompt("large", "second")).await;
    assert_eq!(result.expect("asked the other")["model"], "small");
}

/// The answer of the smaller model is the answer of the step: tomorrow, with money in the larger
/// one's budget, it is not asked again.
#[tokio::test]
async fn an_answer_of_the_other_model_is_not_paid_again() {
    let house = House::open("").await;
    spent(&house, "large", OverBudget::Downgrade("small".to_owned())).await;
    let task = house.task("model_invoke", prompt("large", "second")).await;
    let attempt = house.attempt(task).await;
    let first = house.run(&attempt).await.expect("the other model answers");
    house.lose(&attempt).await;
    let calls = house.stub.calls().len();
    limited_no_more(&house).await;

    let second = house.once(task).await.expect("completed");

    assert_eq!((first, house.stub.calls().len()), (second, calls));
}

async fn limited_no_more(house: &House) {
    house.store.apply_quotas(&[], &[Scope::Model]).await.expect("lifted");
}

/// Most of the budget is left, and the call may need more: nobody is told that it is spent.
#[tokio::test]
async fn a_budget_that_is_hardly_used_is_not_called_spent() {
    let house = House::open("").await;
    let limits = Limits { daily_tokens: Some(5000), ..Limits::default() };
    limited(&house, "m", limits).await;
    let usage = json!({"prompt_tokens": 300, "completion_tokens": 30});
    house.stub.script("m", vec![Fault { usage: Some(usage), ..Fault::default() }]);
    house.first("model_invoke", prompt("m", "first")).await.expect("it fits");

    let large = json!({"prompt": "hi", "model": "m", "max_tokens": 4791});
    let (fate, failure) = fate(house.first("model_invoke", large).await);

    assert_eq!(fate, "snooze");
    let said = "the daily budget of the model m has no room for this call: 330 of 5000 tokens are used \
                today and this call may need up to 4800; the task is parked until";
    assert!(failure.message.starts_with(said), "{failure}");
    let alerts = house.store.alerts(10).await.expect("read");
    assert!(alerts[0].text.contains("330 of 5000 tokens are used today"), "{alerts:?}");
}

#[tokio::test]
async fn a_call_that_can_never_fit_fails_now_and_names_the_limit() {
    let house = House::open("").await;
    for (limits, limit, others) in [
        (
            Limits { tokens_per_minute: Some(50), ..Limits::default() },
            "tokens_per_minute is 50",
            "daily",
        ),
        (
            Limits { daily_tokens: Some(60), ..Limits::default() },
            "daily_tokens is 60",
            "per_minute",
        ),
        (
            Limits { daily_cost_micro: Some(100), daily_tokens: Some(9000), ..Limits::default() },
            "up to 0.001018 USD, and daily_cost is 0.0001",
            "tokens is",
        ),
    ] {
        house.store.apply_quotas(&[], &[Scope::Model]).await.expect("lifted");
        limited(&house, "m", limits).await;

        let (fate, failure) = fate(house.first("model_invoke", prompt("m", "hi")).await);

        assert_eq!(fate, "dead");
        let said = &failure.message;
        assert!(said.contains("can never fit into the limits of the model m"), "{said}");
        assert!(said.contains(limit) && !said.contains(others), "{said}");
    }
    assert!(house.stub.calls().is_empty());
}

/// What the journal sums is what the endpoint billed.
#[tokio::test]
async fn usage_is_what_the_endpoint_says() {
    let house = House::open("").await;
    for (model, text) in
        [("m", "one"), ("m", "two words"), ("stub-mini", "three"), ("stub-500", "x")]
    {
        let _ = house.first("model_invoke", prompt(model, text)).await;
    }

    let rows = house.store.usage(UsageBy::Model, None, None).await.expect("read");

    let stub = house.stub.usage();
    for row in &rows {
        let theirs = stub.by_model[&row.key];
        let ours = [row.calls, row.answered, row.input_tokens, row.output_tokens];
        let theirs = [theirs.calls, theirs.answered, theirs.input_tokens, theirs.output_tokens];
        assert_eq!(ours.map(|n| u64::try_from(n).expect("a count")), theirs, "{}", row.key);
    }
    let total = UsageRow::total(&rows);
    assert_eq!((total.calls, total.answered, total.failed), (4, 3, 1));
    let priced = rows.iter().find(|row| row.key == "m").expect("a row");
    let cost = priced.input_tokens as f64 * 2e-6 + priced.output_tokens as f64 * 10e-6;
    assert!((priced.cost - cost).abs() < 1e-9, "{priced:?}");
    for by in [UsageBy::Schedule, UsageBy::Type, UsageBy::Day] {
        let rows = house.store.usage(by, None, None).await.expect("read");
        assert_eq!(UsageRow::total(&rows).calls, total.calls, "{by:?}");
    }
    let types = house.store.usage(UsageBy::Type, None, None).await.expect("read");
    assert_eq!(types[0].key, "model_invoke");
    let long_ago = "2001-01-01".parse().ok();
    assert!(house.store.usage(UsageBy::Day, None, long_ago).await.expect("read").is_empty());
}
