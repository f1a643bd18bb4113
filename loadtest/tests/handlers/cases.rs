//! Cases of a provider's behaviour that show in a row: errors inside a 200, filters, odd usage,
//! another model's answer, texts that Postgres would refuse. (Their numbers: see `model_client`.)

use loadtest::stub_llm::Fault;
use serde_json::{Value, json};
use shared::domain::outcome::ErrorClass;
use shared::domain::quota::{Limits, Quota, Scope};
use shared::store::UsageBy;

use crate::house::{House, fate};

fn prompt() -> Value {
    json!({"prompt": "summarise: 17 orders", "model": "m", "max_tokens": 100})
}

#[tokio::test]
async fn case_07_an_error_inside_a_200_is_the_error_that_it_names() {
    let house = House::open("").await;
    for (model, (error, expected, class)) in [
        (json!({"code": 429, "message": "slow"}), "snooze", ErrorClass::Throttled),
        (json!({"code": 502, "message": "down"}), "retry", ErrorClass::Retryable),
        (json!({"code": "insufficient_quota", "message": "pay"}), "dead", ErrorClass::Permanent),
        (json!("sorry"), "retry", ErrorClass::Retryable),
    ]
    .into_iter()
    .enumerate()
    {
        // Each of another model: the first one closes its own.
        let payload = json!({"prompt": "hi", "model": format!("m{model}")});
        let body = json!({"error": error, "choices": null});
        house.stub.script(&format!("m{model}"), vec![Fault::default().body(body)]);
        let (seen, failure) = fate(house.first("model_invoke", payload).await);
        assert_eq!((seen, failure.class), (expected, class), "{error}");
    }
}

#[tokio::test]
async fn case_10_a_filtered_prompt_is_dead_and_its_category_is_named() {
    let house = House::open("").await;
    let body = json!({"error": {"message": "The response was filtered", "type": null, "param": "prompt",
        "code": "content_filter", "status": 400, "innererror": {"code": "ResponsibleAIPolicyViolation",
        "content_filter_result": {"hate": {"filtered": true, "severity": "high"}, "violence": {"filtered": false}}}}});
    house.stub.script("m", vec![Fault::status(400).body(body)]);
    let task = house.task("model_invoke", prompt()).await;

    let (seen, failure) = fate(house.once(task).await);

    assert_eq!((seen, failure.class), ("dead", ErrorClass::AnswerRefused));
    assert!(failure.message.contains("hate") && !failure.message.contains("violence"), "{failure}");
    let client = house.database.client().await;
    let sql = "SELECT error_class, error_message FROM dead_letters WHERE task_id = $1";
    let letter = client.query_one(sql, &[&task.0]).await.expect("a letter");
    assert_eq!(letter.get::<_, &str>(0), "answer_refused");
    assert!(letter.get::<_, &str>(1).contains("hate"));
}

#[tokio::test]
async fn case_23_odd_usage_is_estimated_and_never_a_panic() {
    let house = House::open("").await;
    for (usage, estimated) in [
        (Value::Null, true),
        (json!({"prompt_tokens": "12", "completion_tokens": "3"}), false),
        (json!({"prompt_tokens": -1, "completion_tokens": 3}), true),
        (json!({"prompt_tokens": null, "completion_tokens": null}), true),
        (json!({"prompt_tokens": 12.0, "completion_tokens": 3.7}), false),
        (json!({"prompt_tokens": 900_000_000, "completion_tokens": 1}), false),
        (json!("many"), true),
    ] {
        house.stub.script("m", vec![Fault { usage: Some(usage.clone()), ..Fault::default() }]);
        let task = house.task("model_invoke", prompt()).await;
        let result = house.once(task).await.expect("completed");
        let call = house.calls(task).await.remove(0);
        assert_eq!(call["usage_estimated"], estimated, "{usage}");
        assert_eq!(result["usage"]["estimated"] == true, estimated, "{usage}");
        assert!(call["input_tokens"].as_i64().is_some_and(|tokens| tokens > 0), "{usage}");
        assert_eq!(call["input_tokens"], result["usage"]["input_tokens"], "{usage}");
    }
}

/// One number that nobody can believe must not fill the sums that every later call meets.
#[tokio::test]
async fn case_23_a_usage_that_cannot_be_is_estimated_and_spoils_nothing() {
    let house = House::open("").await;
    let most = i64::MAX;
    let limits = Limits { daily_tokens: Some(1_000_000), ..Limits::default() };
    let quota = Quota { scope: Scope::Model, name: "m".to_owned(), limits };
    house.store.apply_quotas(&[quota], &[]).await.expect("applied");
    let usages = [
        json!({"prompt_tokens": most, "completion_tokens": 0}),
        json!({"prompt_tokens": 5e18, "completion_tokens": 0}),
        json!({"prompt_tokens": most, "completion_tokens": most}),
        json!({"prompt_tokens": 1e30, "completion_tokens": 1e30}),
        json!({"prompt_tokens": 5, "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": most}}),
    ];
    let body = |usage: &str| {
        format!(
            r#"{{"choices":[{{"message":{{"content":"ok"}},"finish_reason":"stop"}}],"usage":{usage}}}"#
        )
    };
    let mut bodies: Vec<String> = usages.iter().map(|usage| body(&usage.to_string())).collect();
    // What no parser holds.
    bodies.push(body(r#"{"prompt_tokens":1e400,"completion_tokens":3}"#));
    bodies.push(body(&format!("{}{}", "[".repeat(5000), "]".repeat(5000))));
    for (n, body) in bodies.iter().enumerate() {
        house.stub.script("m", vec![Fault::default().body(body.as_str())]);
        let task = house.task("model_invoke", json!({"prompt": format!("{n}")})).await;

        let result = house.once(task).await.expect(body);

        assert_eq!((&result["text"], house.stub.calls().len()), (&json!("ok"), n + 1), "{body}");
        let call = house.calls(task).await.remove(0);
        assert_eq!(call["state"], "done", "{body}");
        assert!(call["input_tokens"].as_i64().is_some_and(|n| n < 1000), "{body}: {call}");
        assert!(call["output_tokens"].as_i64().is_some_and(|n| n < 1000), "{body}: {call}");
    }

    let client = house.database.client().await;
    let sql = "SELECT count(*) FILTER (WHERE usage_estimated), count(response->>'usage_doubted')
        FROM llm_calls";
    let row = client.query_one(sql, &[]).await.expect("the journal");
    // Cached tokens are no estimate; what no parser holds is lost, and the last is no object.
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (6, 6));
    let usage = house.store.usage(UsageBy::Model, None, None).await.expect("sums");
    assert!(usage[0].input_tokens < 1000 && usage[0].cost < 0.1, "{usage:?}");
    let quotas = house.store.quotas().await.expect("counters");
    assert!(quotas[0].used_tokens < 1000, "{quotas:?}");
}

#[tokio::test]
async fn each_kind_of_token_is_kept_and_priced() {
    let house = House::open("").await;
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 20}});
    house.stub.script("fine", vec![Fault { usage: Some(usage), ..Fault::default() }]);
    let task = house.task("model_invoke", json!({"prompt": "hi", "model": "fine"})).await;

    let result = house.once(task).await.expect("completed");

    let call = house.calls(task).await.remove(0);
    assert_eq!((&call["cached_tokens"], &call["reasoning_tokens"]), (&json!(40), &json!(20)));
    // 60 fresh at 2, 40 cached at 0.5, 30 said at 10, 20 thought at 20.
    assert_eq!(call["cost_micro"], 120 + 20 + 300 + 400);
    assert_eq!(result["usage"]["cost_usd"], json!(0.00084));
    assert_eq!(result["usage"]["reasoning_tokens"], 20);
}

#[tokio::test]
async fn case_28_the_model_that_answers_is_kept_beside_the_one_that_was_asked() {
    let house = House::open("").await;
    let fault = Fault { model: Some("m-2026-01-01".to_owned()), ..Fault::default() };
    house.stub.script("m", vec![fault]);
    let task = house.task("model_invoke", prompt()).await;

    let result = house.once(task).await.expect("completed");

    let call = house.calls(task).await.remove(0);
    assert_eq!((&call["model"], &call["response_model"]), (&json!("m"), &json!("m-2026-01-01")));
    assert_eq!(result["model"], "m-2026-01-01");
    assert!(call["cost_micro"].is_i64(), "priced by the model that was asked");
}

/// Postgres keeps no NUL in text or jsonb: such an answer must not be asked for again and again.
#[tokio::test]
async fn case_31_a_nul_and_a_lone_surrogate_are_stored() {
    let house = House::open("").await;
    for stream in [false, true] {
        let content = Fault { content: Some("a\u{0}b".into()), ..Fault::default() };
        house.stub.script("m", vec![content]);
        let payload = json!({"prompt": format!("stream {stream}"), "model": "m", "stream": stream});
        let result = house.first("model_invoke", payload).await.expect("completed");
        assert_eq!(result["text"], "a\u{fffd}b");
    }
    let body = r#"{"choices":[{"message":{"content":"x\udc00y"},"finish_reason":"stop"}]}"#;
    house.stub.script("m", vec![Fault::default().body(body)]);
    let result = house.first("model_invoke", prompt()).await.expect("completed");
    assert_eq!(result["text"], "x\u{fffd}y");
}

/// Streamed or not, it is the same question, and its answer is paid once.
#[tokio::test]
async fn a_streamed_answer_is_stored_and_reused() {
    let house = House::open("").await;
    let mut payload = prompt();
    payload["stream"] = true.into();
    let task = house.task("model_invoke", payload).await;
    let attempt = house.attempt(task).await;
    let first = house.run(&attempt).await.expect("answered");
    house.lose(&attempt).await;

    let second = house.once(task).await.expect("completed");

    assert_eq!(first["text"], second["text"]);
    let calls = house.stub.calls();
    assert_eq!((calls.len(), calls[0].stream), (1, true));
    assert_eq!(second["usage"]["estimated"], Value::Null);
}

#[tokio::test]
async fn a_cut_stream_is_an_unknown_outcome_in_the_journal() {
    let house = House::open("").await;
    let task = house
        .task("model_invoke", json!({"prompt": "hi", "model": "stub-cutstream", "stream": true}))
        .await;
    let (seen, failure) = fate(house.once(task).await);
    assert_eq!((seen, failure.class), ("retry", ErrorClass::UnknownOutcome));
    assert_eq!(house.calls(task).await[0]["state"], "unknown");
    let (seen, _) = fate(house.once(task).await);
    assert_eq!((seen, house.stub.calls().len()), ("dead", 2));
}

/// What the model asks for is the result of a question with tools.
#[tokio::test]
async fn tools_that_are_asked_for_are_the_result() {
    let house = House::open("").await;
    let call = json!({"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Bern\"}"}});
    house.stub.script("m", vec![Fault { tool_calls: Some(json!([call])), ..Fault::default() }]);
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}});
    let payload = json!({"prompt": "How warm is it?", "model": "m", "tools": [tool], "tool_choice": "required"});

    let result = house.first("model_invoke", payload).await.expect("completed");

    let expected = json!([{"id": "c1", "name": "weather", "arguments": {"city": "Bern"}}]);
    assert_eq!(
        (&result["tool_calls"], &result["finish_reason"]),
        (&expected, &json!("tool_calls"))
    );

    // The next turn carries the tool's answer.
    let messages = json!([
        {"role": "user", "content": "How warm is it?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "17 degrees"},
    ]);
    let payload = json!({"messages": messages, "model": "m", "tools": [tool]});
    house.first("model_invoke", payload).await.expect("completed");
    let last = house.stub.calls().pop().expect("a call");
    assert_eq!((last.messages, last.ending.as_str()), (3, "17 degrees"));
}
