//! Models that stand in for one that is not there, is overloaded, or will not answer: each asked in
//! turn, each in the journal, and visible in the result.

use loadtest::stub_llm::Fault;
use serde_json::{Value, json};
use shared::domain::outcome::ErrorClass;
use shared::domain::retry::RetryPolicy;
use shared::domain::task::NewTask;

use crate::house::{House, fate};

fn asking(model: &str) -> Value {
    json!({"prompt": "summarise: 17 orders", "model": model, "fallback": ["n", "o"]})
}

fn models(house: &House) -> Vec<String> {
    house.stub.calls().into_iter().map(|call| call.model).collect()
}

#[tokio::test]
async fn a_model_that_is_not_there_or_refuses_is_stood_in_for_at_once() {
    let house = House::open("").await;
    for model in ["stub-404", "stub-refusal", "stub-filter"] {
        let before = models(&house).len();
        let task = house.task("model_invoke", asking(model)).await;

        let result = house.once(task).await.expect("completed");

        assert_eq!(models(&house)[before..], [model, "n"], "{model}");
        assert_eq!(result["model"], "n");
        let tries = result["tries"].as_array().expect("tries");
        assert_eq!((&tries[0]["model"], &tries[1]["model"]), (&json!(model), &json!("n")));
        assert!(tries[0]["class"].is_string() && tries[1]["class"].is_null(), "{tries:?}");
        assert_eq!(house.calls(task).await.len(), 2);
    }
    let filtered = json!({"error": {"message": "filtered", "code": "content_filter"}});
    house.stub.script("m", vec![Fault::status(400).body(filtered.clone())]);
    assert_eq!(house.first("model_invoke", asking("m")).await.expect("completed")["model"], "n");

    house.stub.script("m", vec![Fault::status(400).body(filtered)]);
    let mut stubborn = asking("m");
    stubborn["on_refused"] = "fail".into();
    let (seen, failure) = fate(house.first("model_invoke", stubborn).await);
    assert_eq!((seen, failure.class), ("dead", ErrorClass::AnswerRefused));
}

#[tokio::test]
async fn an_overloaded_model_gets_its_retry_before_another_stands_in() {
    let house = House::open("").await;
    let task = house.task("model_invoke", asking("stub-503")).await;

    let (first, failure) = fate(house.once(task).await);
    assert_eq!((first, failure.class), ("retry", ErrorClass::Retryable));
    let result = house.once(task).await.expect("completed");

    assert_eq!(models(&house), ["stub-503", "stub-503", "n"]);
    assert_eq!(result["model"], "n");
    assert_eq!(result["tries"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn the_last_attempt_does_not_wait_for_a_retry_that_never_comes() {
    let house = House::open("").await;
    let retry = RetryPolicy { max_retry: 0, ..RetryPolicy::default() };
    let task = NewTask { retry, ..NewTask::ad_hoc("model_invoke", "p", asking("stub-529")) };
    let task = house.store.enqueue(task).await.expect("enqueued").task_id;

    let result = house.once(task).await.expect("completed");

    assert_eq!(
        (models(&house).as_slice(), &result["model"]),
        (["stub-529".to_owned(), "n".to_owned()].as_slice(), &json!("n"))
    );
}

/// A rate limit, a wrong key and an empty account are not the model's fault.
#[tokio::test]
async fn nobody_stands_in_for_what_another_model_does_not_mend() {
    let house = House::open("").await;
    for (model, expected) in [
        ("stub-429-after3", "snooze"),
        ("stub-quota", "dead"),
        ("stub-401", "dead"),
        ("stub-400", "dead"),
        ("stub-504", "retry"),
    ] {
        let before = models(&house).len();
        let (seen, _) = fate(house.first("model_invoke", asking(model)).await);
        assert_eq!((seen, &models(&house)[before..]), (expected, [model.to_owned()].as_slice()));
    }
}

#[tokio::test]
async fn when_all_refuse_the_last_refusal_counts_and_the_list_has_an_end() {
    let house = House::open("").await;
    let mut payload = asking("stub-refusal");
    payload["fallback"] = json!(["stub-404", "stub-filter"]);
    let (seen, failure) = fate(house.first("model_invoke", payload).await);
    assert_eq!((seen, failure.class), ("dead", ErrorClass::AnswerRefused));
    assert_eq!(models(&house), ["stub-refusal", "stub-404", "stub-filter"]);
}

/// The worker dies after the stand-in's answer is stored: neither model is asked again, though the
/// first would answer by now.
#[tokio::test]
async fn a_stand_ins_stored_answer_is_the_answer() {
    let house = House::open("").await;
    house.stub.script("m", vec![Fault { refusal: Some("no".to_owned()), ..Fault::default() }]);
    house.stub.script("lost", vec![Fault::status(404)]);
    for model in ["m", "lost"] {
        let before = models(&house).len();
        let task = house.task("model_invoke", asking(model)).await;
        let attempt = house.attempt(task).await;
        let first = house.run(&attempt).await.expect("answered");
        house.lose(&attempt).await;

        let second = house.once(task).await.expect("completed");

        assert_eq!(first, second, "{model}");
        assert_eq!(models(&house)[before..], [model, "n"]);
    }
}

/// `model.fallback` serves those whose payload says nothing; the list of a payload wins.
#[tokio::test]
async fn the_configuration_names_stand_ins_too() {
    let house = House::open("").await;
    let bare = |model: &str| json!({"prompt": "hi", "model": model});
    let result = house.first("model_invoke", bare("stub-404x9")).await.expect("completed");
    assert_eq!(result["model"], "big");

    let mut alone = bare("stub-404x9");
    alone["fallback"] = json!([]);
    let (seen, _) = fate(house.first("model_invoke", alone).await);
    assert_eq!(seen, "dead");
}
