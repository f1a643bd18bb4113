//! Model calls: asked once, journalled always, failed plainly.

use std::time::Duration;

use loadtest::stub_llm::Fault;
use serde_json::{Value, json};
use shared::domain::outcome::{ErrorClass, TaskError};
use shared::testing::eventually;

use crate::house::{API_KEY, House, SECRET, fate};

fn prompt(model: &str) -> Value {
    json!({"prompt": "summarise: 17 orders", "model": model, "max_tokens": 100})
}

#[tokio::test]
async fn an_answer_is_stored_with_its_tokens_and_price() {
    let house = House::open("").await;
    let task = house.task("model_invoke", prompt("m")).await;

    let result = house.once(task).await.expect("completed");

    let text = result["text"].as_str().expect("a text");
    assert!(text.contains("17 orders"), "{text}");
    assert_eq!(result["finish_reason"], "stop");
    let calls = house.calls(task).await;
    assert_eq!((calls.len(), &calls[0]["state"]), (1, &json!("done")));
    let (input, output) = (&result["usage"]["input_tokens"], &result["usage"]["output_tokens"]);
    assert_eq!((&calls[0]["input_tokens"], &calls[0]["output_tokens"]), (input, output));
    let cost = 2 * input.as_i64().expect("a count") + 10 * output.as_i64().expect("a count");
    let micro = house.database.client().await;
    let row =
        micro.query_one("SELECT cost_micro, id::text FROM llm_calls", &[]).await.expect("a row");
    assert_eq!(row.get::<_, i64>(0), cost);
    let sent = house.stub.calls();
    assert_eq!(sent[0].idempotency_key.as_deref(), Some(row.get::<_, &str>(1)));
    assert!(sent[0].traceparent.is_some());
}

/// A worker dies after the answer was stored and before the task was recorded.
#[tokio::test]
async fn a_stored_answer_is_never_paid_again() {
    let house = House::open("").await;
    let task = house.task("model_invoke", prompt("m")).await;
    let attempt = house.attempt(task).await;
    let first = house.run(&attempt).await.expect("answered");
    house.lose(&attempt).await;

    let second = house.once(task).await.expect("completed");

    assert_eq!(first, second);
    assert_eq!(house.stub.calls().len(), 1);
}

/// What was stored before a secret was configured may hold it; nothing that is made of it does.
#[tokio::test]
async fn a_stored_answer_that_is_older_than_a_secret_does_not_bring_it_back() {
    let house =
        House::open("reports: {r: {summary_prompt: hello, template: 'It says: {{ summary }}'}}")
            .await;
    let json = json!({"type": "json_object"});
    let asks = json!({"prompt": "hi", "model": "m", "response_format": &json});
    let works = json!({"goal": "hi", "model": "m", "response_format": json});
    let report = json!({"report": "r", "date": "2026-11-30"});
    for (task_type, payload) in
        [("model_invoke", asks), ("agent_session", works), ("report_generation", report)]
    {
        let (before, content) = (house.stub.calls().len(), r#"{"said": "OLDER", "OLDER": 1}"#);
        let slow = Fault { content: Some(content.into()), hang_ms: 1000, ..Fault::default() };
        house.stub.script("m", vec![slow]);
        let task = house.task(task_type, payload).await;
        let attempt = house.attempt(task).await;
        let lose = async {
            let asked = || async { (house.stub.calls().len() > before).then_some(()) };
            eventually("the model is asked", asked).await;
            house.lose(&attempt).await;
        };
        // The answer is stored, and the claim lost before anything is made of it.
        let (lost, ()) = tokio::join!(house.run(&attempt), lose);
        let sql = format!(
            "UPDATE llm_calls SET response = replace(response::text, 'OLDER', '{SECRET}')::jsonb"
        );
        house.database.client().await.batch_execute(&sql).await.expect("an older answer");

        let result = house.once(task).await.expect("completed");

        let artifact = house.store.artifact(None, Some("r"), None).await.expect("read");
        let made = artifact.map(|(_, content)| String::from_utf8_lossy(&content).into_owned());
        let seen = format!("{result} {made:?}");
        assert!(!seen.contains(SECRET) && seen.contains('…'), "{task_type}: {lost:?}, {seen}");
        assert_eq!(house.stub.calls().len() - before, 1, "{task_type}: it is paid once");
    }
}

/// A worker dies while the provider thinks: the successor may ask once more, and no further.
#[tokio::test]
async fn a_call_without_an_answer_is_repeated_once_until_somebody_replays() {
    let house = House::open("").await;
    house.stub.script("m", vec![Fault { hang_ms: 600_000, times: Some(2), ..Fault::default() }]);
    let task = house.task("model_invoke", prompt("m")).await;

    // Stopped in the middle: the row stays "sent".
    let attempt = house.attempt(task).await;
    let stopped = tokio::time::timeout(Duration::from_millis(500), house.run(&attempt)).await;
    assert!(stopped.is_err());
    house.lose(&attempt).await;
    let (fate, failure) = fate(house.once(task).await);

    assert_eq!((fate, failure.class), ("dead", ErrorClass::UnknownOutcome));
    assert!(failure.message.contains("replay"), "{failure}");
    let states: Vec<Value> = house.calls(task).await.iter().map(|c| c["state"].clone()).collect();
    assert_eq!(states, ["unknown", "unknown"]);
    assert_eq!(house.stub.calls().len(), 2);

    house.replay(task).await;
    house.once(task).await.expect("a person said yes");
    assert_eq!(house.stub.calls().len(), 3);
}

#[tokio::test]
async fn a_cut_answer_is_an_unknown_outcome_and_a_refused_connection_is_not() {
    let house = House::open("").await;
    let task = house.task("model_invoke", prompt("stub-cut")).await;
    let (cut, failure) = fate(house.once(task).await);
    assert_eq!((cut, failure.class), ("retry", ErrorClass::UnknownOutcome));
    assert_eq!(house.calls(task).await[0]["state"], "unknown");

    let nobody = House::open("").await;
    let task = nobody.task("model_invoke", prompt("m")).await;
    let attempt = nobody.attempt(task).await;
    let context = nobody.context(&attempt);
    let House { stub, .. } = nobody;
    drop(stub);
    // The listener is closed once its task has seen the abort.
    let request = worker::llm::ChatRequest {
        messages: vec![worker::llm::Message::user("hi")],
        ..worker::llm::ChatRequest::default()
    };
    let refused = shared::testing::eventually("a refused connection", || async {
        match context.chat("s", request.clone()).await {
            Err(TaskError::Retry { failure, .. }) if failure.class == ErrorClass::Retryable => {
                Some(failure)
            }
            _ => None,
        }
    })
    .await;
    assert!(refused.message.contains("MODEL_BASE_URL"), "{refused}");
}

#[track_caller]
fn check(seen: &(&str, shared::domain::outcome::Failure), fate: &str, words: &str) {
    assert_eq!(seen.0, fate, "{}", seen.1);
    assert!(seen.1.message.contains(words), "{}", seen.1);
    assert!(!seen.1.message.contains(API_KEY), "{}", seen.1);
}

#[tokio::test]
async fn case_11_each_trouble_has_its_fate_and_one_request() {
    let house = House::open("").await;
    let mut requests = 0;
    for (model, expected, words) in [
        ("stub-429-after3", "snooze", "limits the rate"),
        ("stub-quota", "dead", "waiting will not help"),
        ("stub-500", "retry", "answered 500"),
        ("stub-503-after2", "retry", "answered 503"),
        ("stub-404", "dead", "has no model \"stub-404\""),
        ("stub-400", "dead", "refused the request (400)"),
        ("stub-html", "dead", "HTML page"),
        ("stub-error200", "snooze", "slow down"),
        ("stub-null", "retry", "no provider"),
        ("stub-nochoices", "retry", "no choices"),
        ("stub-filter", "dead", "withheld"),
        ("stub-refusal", "dead", "withheld"),
    ] {
        let seen = fate(house.first("model_invoke", prompt(model)).await);
        requests += 1;
        check(&seen, expected, words);
        assert_eq!(house.stub.calls().len(), requests, "{model}: a hidden retry");
    }
    for model in ["stub-bom", "stub-nul", "stub-length", "stub-nousage", "stub-reasoning"] {
        house.first("model_invoke", prompt(model)).await.expect(model);
    }
    let estimated = house.database.client().await;
    let row =
        estimated.query_one("SELECT count(*) FROM llm_calls WHERE usage_estimated", &[]).await;
    assert_eq!(row.expect("a count").get::<_, i64>(0), 1);
}

#[tokio::test]
async fn case_04_a_rate_limit_waits_at_least_as_long_as_asked() {
    let house = House::open("").await;
    match house.first("model_invoke", prompt("stub-429-after3600")).await {
        Err(TaskError::Snooze { delay, .. }) => {
            assert!((3600..=4320).contains(&delay.as_secs()), "{delay:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_empty_answer_is_asked_for_once_more() {
    let house = House::open("").await;
    let task = house.task("model_invoke", prompt("stub-empty")).await;

    let first = fate(house.once(task).await);
    let second = fate(house.once(task).await);

    check(&first, "retry", "empty");
    check(&second, "dead", "replay the task to ask once more");
    assert_eq!(second.1.class, ErrorClass::AnswerEmpty);
    assert_eq!(house.stub.calls().len(), 2);
}

#[tokio::test]
async fn case_17_a_model_that_wants_the_other_limit_gets_it_from_then_on() {
    let house = House::open("").await;
    let refusal = json!({"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.",
        "param": "max_tokens", "code": "unsupported_parameter"}});
    house.stub.script("m", vec![Fault::status(400).body(refusal)]);
    let task = house.task("model_invoke", prompt("m")).await;

    house.once(task).await.expect("completed");

    let states: Vec<Value> = house.calls(task).await.iter().map(|c| c["state"].clone()).collect();
    assert_eq!(states, ["failed", "done"]);
    house.first("model_invoke", json!({"prompt": "another"})).await.expect("completed");
    assert_eq!(house.stub.calls().len(), 3);
}

/// Both names are refused: two requests, and no third.
#[tokio::test]
async fn case_17_a_model_that_wants_neither_name_is_not_asked_for_ever() {
    let house = House::open("").await;
    let refusal = json!({"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.",
        "param": "max_tokens", "code": "unsupported_parameter"}});
    house.stub.script("m", vec![Fault { times: Some(9), ..Fault::status(400).body(refusal) }]);
    let seen = fate(house.first("model_invoke", prompt("m")).await);
    check(&seen, "dead", "it takes neither max_tokens nor max_completion_tokens");
    check(&seen, "dead", "127.0.0.1:");
    assert_eq!(house.stub.calls().len(), 2);
}

/// What may have been billed for nothing is asked once more and no further.
#[tokio::test]
async fn an_answer_that_cannot_be_read_is_asked_for_once_more() {
    let house = House::open("").await;
    for model in ["stub-nochoices", "stub-425"] {
        let before = house.stub.calls().len();
        let task = house.task("model_invoke", prompt(model)).await;
        let (first, _) = fate(house.once(task).await);
        let second = fate(house.once(task).await);
        assert_eq!(first, "retry", "{model}");
        check(&second, "dead", "replay the task to ask once more");
        assert_eq!(house.stub.calls().len() - before, 2, "{model}");
    }
}

#[tokio::test]
async fn a_wrong_key_says_so_and_shows_nothing_of_it() {
    let house = House::open("").await;
    let echo = json!({"error": {"message": format!("Incorrect API key provided: {API_KEY}"), "code": "invalid_api_key"}});
    house.stub.script("m", vec![Fault::status(401).body(echo)]);
    let seen = fate(house.first("model_invoke", prompt("m")).await);
    check(&seen, "dead", "MODEL_API_KEY");
}

/// Its tasks would meet the same door one after another.
#[tokio::test]
async fn a_403_about_a_token_that_is_over_closes_the_model() {
    let house = House::open("").await;
    let over = json!({"error": {"message": "token expired", "code": "invalid_token"}});
    house.stub.script("m", vec![Fault::status(403).body(over)]);
    let seen = fate(house.first("model_invoke", prompt("m")).await);
    check(&seen, "dead", "the token for 127.0.0.1:");
    check(&seen, "dead", "get a new one and set model.api_key (MODEL_API_KEY)");

    let next = fate(house.first("model_invoke", prompt("m")).await);
    check(&next, "snooze", "token expired");
    assert_eq!(house.stub.calls().len(), 1);
}

#[tokio::test]
async fn a_lost_claim_asks_nothing() {
    let house = House::open("").await;
    let task = house.task("model_invoke", prompt("m")).await;
    let attempt = house.attempt(task).await;
    house.lose(&attempt).await;

    let (fate, failure) = fate(house.run(&attempt).await);

    assert_eq!((fate, failure.class), ("retry", ErrorClass::Interrupted));
    assert!(house.stub.calls().is_empty());
}
