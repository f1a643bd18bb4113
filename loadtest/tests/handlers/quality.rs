//! Answers that were paid and are not what was asked for: each has its class, and the payload says
//! what is done about it. Few tries, all of them in the journal and in the sums.

use loadtest::stub_llm::Fault;
use serde_json::{Value, json};
use shared::domain::outcome::ErrorClass;
use shared::domain::task::TaskId;
use shared::testing::eventually;

use crate::house::{House, fate};

fn counts() -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "counts", "schema": {
        "type": "object", "required": ["orders"], "additionalProperties": false,
        "properties": {"orders": {"type": "integer"}}}}})
}

fn payload(more: &Value) -> Value {
    let mut payload = json!({"prompt": "How many? 17 orders.", "model": "m", "max_tokens": 100});
    payload
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    payload
}

fn says(text: &str) -> Fault {
    Fault { content: Some(text.into()), ..Fault::default() }
}

fn cut(text: &str) -> Fault {
    Fault { finish_reason: Some("length".into()), ..says(text) }
}

/// State and class of each call.
async fn journal(house: &House, task: TaskId) -> Vec<(String, Option<String>)> {
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let calls = house.calls(task).await;
    calls
        .iter()
        .map(|it| (word(&it["state"]).expect("a state"), word(&it["error_class"])))
        .collect()
}

/// The sums of the result, of the journal and of the endpoint are one.
async fn sums_agree(house: &House, task: TaskId, result: &Value) {
    let sum = |calls: &[Value], name: &str| -> i64 {
        calls.iter().filter_map(|call| call[name].as_i64()).sum()
    };
    let calls = house.calls(task).await;
    let billed = house.stub.usage().total;
    for (name, billed) in
        [("input_tokens", billed.input_tokens), ("output_tokens", billed.output_tokens)]
    {
        assert_eq!(result["usage"][name], sum(&calls, name), "{name}");
        assert_eq!(sum(&calls, name), billed as i64, "{name}");
    }
    assert_eq!(result["tries"].as_array().map(Vec::len), Some(calls.len()));
}

fn done(class: Option<&str>) -> (String, Option<String>) {
    ("done".to_owned(), class.map(str::to_owned))
}

#[tokio::test]
async fn a_cut_answer_gets_more_room_once() {
    let house = House::open("").await;
    house.stub.script("m", vec![cut("{\"ord"), says("{\"orders\": 17}")]);
    let asked = payload(&json!({"response_format": counts(), "on_truncated": "larger"}));
    let task = house.task("model_invoke", asked).await;

    let result = house.once(task).await.expect("completed");

    assert_eq!(result["json"], json!({"orders": 17}));
    let limits: Vec<_> = house.stub.calls().iter().map(|call| call.max_tokens).collect();
    assert_eq!(limits, [Some(100), Some(400)]);
    assert_eq!(journal(&house, task).await, [done(Some("answer_truncated")), done(None)]);
    sums_agree(&house, task, &result).await;

    // Twice cut is cut.
    house.stub.script("m", vec![cut("{\"ord"), cut("{\"orders\":")]);
    let asked = payload(&json!({"response_format": counts(), "on_truncated": "larger", "seed": 2}));
    let (seen, failure) = fate(house.first("model_invoke", asked).await);
    assert_eq!((seen, failure.class), ("dead", ErrorClass::AnswerTruncated));
    assert_eq!(house.stub.calls().len(), 4);
}

#[tokio::test]
async fn a_cut_text_is_taken_and_cut_json_is_not_unless_the_payload_says_otherwise() {
    let house = House::open("").await;
    let said = |format: Option<Value>, policy: Option<&str>| {
        let mut more = json!({});
        if let Some(format) = format {
            more["response_format"] = format;
        }
        if let Some(policy) = policy {
            more["on_truncated"] = policy.into();
        }
        payload(&more)
    };
    let json_object = || Some(json!({"type": "json_object"}));
    for (asked, taken) in [
        (said(None, None), true),
        (said(None, Some("fail")), false),
        (said(json_object(), None), false),
        (said(json_object(), Some("accept")), true),
    ] {
        house.stub.script("m", vec![cut("{\"half")]);
        match (house.first("model_invoke", asked.clone()).await, taken) {
            (Ok(result), true) => {
                assert_eq!(
                    (&result["text"], &result["finish_reason"]),
                    (&json!("{\"half"), &json!("length"))
                );
                assert_eq!(result["flaw"]["class"], "answer_truncated");
            }
            (Err(error), false) => assert_eq!(error.class(), ErrorClass::AnswerTruncated),
            (seen, _) => panic!("{asked}: {seen:?}"),
        }
    }
    // Of nothing, no part can be taken.
    house.stub.script("m", vec![cut("")]);
    let (_, failure) = fate(house.first("model_invoke", said(None, Some("accept"))).await);
    assert_eq!(failure.class, ErrorClass::AnswerTruncated);
}

#[tokio::test]
async fn a_wrong_answer_is_repaired_once_and_the_model_sees_what_is_wrong() {
    let house = House::open("").await;
    house
        .stub
        .script("m", vec![says("{\"orders\": \"many\"}"), says("```json\n{\"orders\": 17}\n```")]);
    let asked = payload(&json!({"response_format": counts(), "on_invalid": "repair"}));
    let task = house.task("model_invoke", asked).await;

    let result = house.once(task).await.expect("completed");

    assert_eq!(result["json"], json!({"orders": 17}));
    let repair = house.stub.calls().pop().expect("a call");
    assert_eq!(repair.messages, 3);
    assert!(
        repair.ending.contains("at /orders") && repair.ending.contains("integer"),
        "{}",
        repair.ending
    );
    assert_eq!(journal(&house, task).await, [done(Some("answer_invalid")), done(None)]);
    sums_agree(&house, task, &result).await;
}

#[tokio::test]
async fn a_wrong_answer_is_dead_after_its_repair_or_at_once_and_never_repeats_what_it_said() {
    let house = House::open("").await;
    for (policy, requests) in [("repair", 2), ("fail", 1)] {
        let before = house.stub.calls().len();
        house.stub.script("m", vec![says("{\"orders\": \"hunter2\"}"); requests]);
        let asked = payload(&json!({"response_format": counts(), "on_invalid": policy}));
        let (seen, failure) = fate(house.first("model_invoke", asked).await);
        assert_eq!((seen, failure.class), ("dead", ErrorClass::AnswerInvalid));
        assert!(
            failure.message.contains("at /orders") && !failure.message.contains("hunter2"),
            "{failure}"
        );
        assert_eq!(house.stub.calls().len() - before, requests, "{policy}");
    }
    house.stub.script("m", vec![says("so sorry")]);
    let asked = payload(&json!({"response_format": counts(), "on_invalid": "accept"}));
    let result = house.first("model_invoke", asked).await.expect("taken");
    assert_eq!(
        (&result["text"], &result["flaw"]["class"]),
        (&json!("so sorry"), &json!("answer_invalid"))
    );
    assert_eq!(result.get("json"), None);
}

#[tokio::test]
async fn a_tool_that_cannot_be_run_is_repaired_in_the_words_of_tools() {
    let house = House::open("").await;
    let asks = |name: &str, arguments: &str| {
        let call = json!({"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}});
        Fault { tool_calls: Some(json!([call])), ..Fault::default() }
    };
    house.stub.script("m", vec![asks("wether", "{}"), asks("weather", "{\"city\":\"Bern\"}")]);
    let tool = json!({"type": "function", "function": {"name": "weather"}});
    let asked = payload(&json!({"tools": [tool], "on_invalid": "repair"}));

    let result = house.first("model_invoke", asked).await.expect("completed");

    assert_eq!(result["tool_calls"][0]["arguments"], json!({"city": "Bern"}));
    let repair = house.stub.calls().pop().expect("a call");
    assert!(repair.ending.contains("there are: weather"), "{}", repair.ending);
}

#[tokio::test]
async fn an_empty_answer_follows_its_policy() {
    let house = House::open("").await;
    for (policy, first, requests) in [("fail", "dead", 1), ("again", "retry", 1)] {
        let before = house.stub.calls().len();
        house.stub.script("m", vec![says("")]);
        let (seen, failure) =
            fate(house.first("model_invoke", payload(&json!({"on_empty": policy}))).await);
        assert_eq!((seen, failure.class), (first, ErrorClass::AnswerEmpty), "{policy}");
        assert_eq!(house.stub.calls().len() - before, requests);
    }
    house.stub.script("m", vec![says(" ")]);
    let asked = payload(&json!({"on_empty": "fallback", "fallback": ["n"]}));
    let task = house.task("model_invoke", asked).await;
    let result = house.once(task).await.expect("the other one answers");
    assert_eq!(result["model"], "n");
    let seen = journal(&house, task).await;
    assert_eq!(seen, [("failed".to_owned(), Some("answer_empty".to_owned())), done(None)]);
}

/// A worker dies after the first answer is stored, while the repair is on its way: the successor
/// repeats what was in flight, and nothing else.
#[tokio::test]
async fn a_crash_between_two_tries_pays_nothing_again() {
    let house = House::open("").await;
    let hang = Fault { hang_ms: 600_000, ..Fault::default() };
    house.stub.script("m", vec![says("so sorry"), hang, says("{\"orders\": 17}")]);
    let asked = payload(&json!({"response_format": counts(), "on_invalid": "repair"}));
    let task = house.task("model_invoke", asked).await;

    let attempt = house.attempt(task).await;
    let on_its_way = eventually("the repair is asked for", || async {
        (house.stub.calls().len() == 2).then_some(())
    });
    tokio::select! {
        _ = house.run(&attempt) => {}
        () = on_its_way => {}
    }
    house.lose(&attempt).await;
    let result = house.once(task).await.expect("completed");

    assert_eq!(result["json"], json!({"orders": 17}));
    let messages: Vec<_> = house.stub.calls().iter().map(|call| call.messages).collect();
    assert_eq!(messages, [1, 3, 3], "the first question is asked once");
    let states: Vec<_> = journal(&house, task).await.into_iter().map(|(state, _)| state).collect();
    assert_eq!(states, ["done", "unknown", "done"]);
}

/// Without a person the stored answer stays the answer; a person's word buys another one.
#[tokio::test]
async fn a_replay_asks_again_for_what_was_of_no_use() {
    let house = House::open("").await;
    house.stub.script("m", vec![says("so sorry")]);
    let task = house.task("model_invoke", payload(&json!({"response_format": counts()}))).await;
    let attempt = house.attempt(task).await;
    let (_, failure) = fate(house.run(&attempt).await);
    assert_eq!(failure.class, ErrorClass::AnswerInvalid);
    house.lose(&attempt).await;
    let (seen, _) = fate(house.once(task).await);
    assert_eq!((seen, house.stub.calls().len()), ("dead", 1), "asked once");

    house.stub.script("m", vec![says("{\"orders\": 17}")]);
    house.replay(task).await;
    let result = house.once(task).await.expect("completed");

    assert_eq!((&result["json"], house.stub.calls().len()), (&json!({"orders": 17}), 2));
    sums_agree(&house, task, &result).await;
}
