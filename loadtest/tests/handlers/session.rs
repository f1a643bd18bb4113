//! Agent sessions: turns and tools as steps, what the model is told, and what a successor repeats.

use loadtest::stub_llm::Fault;
use serde_json::{Value, json};
use shared::domain::outcome::ErrorClass;
use shared::domain::task::TaskId;
use shared::testing::eventually;

use crate::house::{House, SECRET, fate};

/// A goal with a plan that the stub's model follows.
pub fn goal(plan: &Value) -> String {
    format!("Do it. {}", json!({ "plan": plan }))
}

/// A session whose only tool leaves an effect outside.
pub fn effects(house: &House, plan: &Value) -> Value {
    json!({
        "goal": goal(plan),
        "model": "stub-session",
        "tools": [{
            "name": "leave_effect", "task_type": "http_call", "description": "leaves an effect",
            "payload": {"url": format!("{}/effects", house.stub.url), "method": "POST"},
        }],
    })
}

/// One call of a tool.
pub fn call(tool: &str, arguments: &Value) -> Value {
    json!({"tool": tool, "arguments": arguments})
}

/// The names of the kept steps, sorted.
pub async fn steps(house: &House, task: TaskId) -> Vec<String> {
    let steps = house.store.steps(task).await.expect("read");
    steps.into_iter().map(|(name, _)| name).collect()
}

/// What the model was told by a tool.
pub async fn told(house: &House, task: TaskId, step: &str) -> Value {
    let kept = house.store.step(task, step).await.expect("read").expect("kept");
    kept.result
}

#[tokio::test]
async fn a_session_asks_its_tools_and_answers() {
    let house = House::open("").await;
    let one = || call("leave_effect", &json!({}));
    let task =
        house.task("agent_session", effects(&house, &json!([[one()], [one(), one()]]))).await;

    let result = house.once(task).await.expect("completed");

    assert!(
        result["answer"].as_str().expect("text").starts_with("Done after 2 turns and 3 answers"),
        "{result}"
    );
    assert_eq!((&result["turns"], &result["tool_calls"]), (&json!(3), &json!(3)));
    assert_eq!(
        steps(&house, task).await,
        ["tool-001-1", "tool-002-1", "tool-002-2", "turn-001", "turn-002", "turn-003"]
    );
    let keys: Vec<String> = house.stub.effects().into_keys().collect();
    let key = |step: &str| format!("{task}:{step}");
    assert_eq!(keys, [key("tool-001-1"), key("tool-002-1"), key("tool-002-2")]);
    let billed = house.stub.usage().total;
    assert_eq!(result["usage"]["input_tokens"], billed.input_tokens);
    assert_eq!(result["usage"]["output_tokens"], billed.output_tokens);
}

/// What the model does wrong it is told, in words that it can use; the session goes on.
#[tokio::test]
async fn a_call_that_cannot_be_made_is_told_to_the_model() {
    let house = House::open("").await;
    let tool = "leave_effect";
    let wrong = json!([[
        call("leave_efect", &json!({})),
        call(tool, &json!("{\"query\": ")),
        call(tool, &json!({"query": 3})),
        call(tool, &json!({"url": "http://evil.example"})),
        call(tool, &json!({"body": {"text": "secret:token"}})),
        call(tool, &json!({"expect_status": 999})),
        call(tool, &json!({"query": {"a": 1}})),
    ]]);
    let task = house.task("agent_session", effects(&house, &wrong)).await;

    house.once(task).await.expect("completed");

    for (call_no, words) in [
        (1, "there is no tool \"leave_efect\"; there are: leave_effect"),
        (2, "not JSON"),
        (3, "at /query"),
        (4, "url"),
        (5, "secrets are not yours to use"),
        (6, "999"),
    ] {
        let answer = told(&house, task, &format!("tool-001-{call_no}")).await;
        assert_eq!(answer["error"], "invalid", "{answer}");
        assert!(answer["content"].as_str().expect("text").contains(words), "{answer}");
    }
    let right = told(&house, task, "tool-001-7").await;
    assert_eq!(right.get("error"), None, "{right}");
    assert_eq!(house.stub.effects().len(), 1, "nothing else went out");
    let messages: Vec<_> = house.stub.calls().iter().map(|call| call.messages).collect();
    assert_eq!(messages, [1, 9], "one goal; then the turn and its seven answers");
}

/// A failure for good is the model's to know; one that may pass is the task's to try again, from the
/// last step; and when no retry is left, the model is told that too.
#[tokio::test]
async fn a_tools_failure_is_told_or_tried_again() {
    let house = House::open("").await;
    let tool = |path: &str| {
        json!({"name": "fetch", "task_type": "http_call",
               "payload": {"url": format!("{}{path}", house.stub.url)}})
    };
    let session = |path: &str| {
        let plan = json!([[call("fetch", &json!({}))]]);
        json!({"goal": goal(&plan), "model": "stub-session", "tools": [tool(path)]})
    };
    let task = house.task("agent_session", session("/always/404")).await;
    house.once(task).await.expect("completed");
    let answer = told(&house, task, "tool-001-1").await;
    assert_eq!(answer["error"], "permanent");
    assert!(answer["content"].as_str().expect("text").contains("answered 404"), "{answer}");

    let before = house.stub.calls().len();
    let task = house.task("agent_session", session("/flaky?key=session&fail=1")).await;
    let (seen, _) = fate(house.once(task).await);
    assert_eq!((seen, steps(&house, task).await), ("retry", vec!["turn-001".to_owned()]));
    house.once(task).await.expect("completed");
    assert_eq!(house.stub.calls().len() - before, 2, "each turn was asked once");

    let task = house.task("agent_session", session("/always/503")).await;
    for _ in 0..3 {
        assert_eq!(fate(house.once(task).await).0, "retry");
    }
    house.once(task).await.expect("the model has another idea");
    assert_eq!(told(&house, task, "tool-001-1").await["error"], "retryable");
}

/// What a payload fixes may name secrets. The model, the steps and the result have none of them.
#[tokio::test]
async fn secrets_serve_tools_and_are_seen_by_nobody() {
    let house = House::open("").await;
    let plan = json!([[call("whoami", &json!({"query": {"q": 1}}))]]);
    let task = house
        .task(
            "agent_session",
            json!({
                "goal": goal(&plan), "model": "stub-session",
                "tools": [{"name": "whoami", "task_type": "http_call", "payload": {
                    "url": format!("{}/echo", house.stub.url), "method": "POST",
                    "headers": {"Authorization": "Bearer secret:token"}}}],
            }),
        )
        .await;

    let result = house.once(task).await.expect("completed");

    let answer = told(&house, task, "tool-001-1").await.to_string();
    assert!(answer.contains("authorization") && answer.contains("Bearer …"), "{answer}");
    let row = serde_json::to_string(&house.store.task(task).await.expect("read")).expect("JSON");
    for text in [answer, row, result.to_string()] {
        assert!(!text.contains(SECRET), "{text}");
    }
    let asked = house.stub.calls();
    assert!(asked.iter().all(|call| !call.ending.contains(SECRET)));
}

#[tokio::test]
async fn only_allowed_types_are_tools_and_others_name_the_setting() {
    let with = |tools: Value| json!({"goal": "a", "model": "stub-session", "tools": tools});
    let house = House::open("").await;
    let (seen, failure) = fate(house.first("agent_session", with(json!(["model_invoke"]))).await);
    assert_eq!((seen, failure.class), ("dead", ErrorClass::Permanent));
    assert!(failure.message.contains("handlers.agent_session.tools"), "{failure}");
    assert_eq!(house.stub.calls().len(), 0);

    let house = House::open("handlers: {agent_session: {tools: [model_invoke]}}").await;
    let plan = json!([[call("model_invoke", &json!({"prompt": "how many?", "model": "m"}))]]);
    let asked = json!({"goal": goal(&plan), "model": "stub-session", "tools": ["model_invoke"]});
    let task = house.task("agent_session", asked).await;
    house.once(task).await.expect("completed");
    let steps: Vec<_> = house.calls(task).await.iter().map(|it| it["step"].clone()).collect();
    assert_eq!(steps, ["turn-001", "tool-001-1/invoke", "turn-002"], "paid under the tool's name");
    let (seen, _) = fate(house.first("agent_session", with(json!(["http_call"]))).await);
    assert_eq!(seen, "dead", "the list is the whole list");
}

/// The answer of the second turn was stored and its step was not, then a tool's was on its way: the
/// successor pays for nothing again.
#[tokio::test]
async fn a_successor_goes_on_after_the_last_step_and_repeats_only_what_was_on_its_way() {
    let house = House::open("").await;
    let one = || call("leave_effect", &json!({}));
    let asked = effects(&house, &json!([[one()], [one()]]));
    let undisturbed = house.task("agent_session", asked.clone()).await;
    let expected = house.once(undisturbed).await.expect("completed");

    let before = house.stub.calls().len();
    let hang = Fault { hang_ms: 600_000, ..Fault::default() };
    house.stub.script("stub-session", vec![Fault::default(), hang]);
    let task = house.task("agent_session", asked).await;
    let attempt = house.attempt(task).await;
    let on_its_way = eventually("the second turn is asked for", || async {
        (house.stub.calls().len() - before == 2).then_some(())
    });
    tokio::select! {
        _ = house.run(&attempt) => {}
        () = on_its_way => {}
    }
    house.lose(&attempt).await;
    let result = house.once(task).await.expect("completed");

    let answer = |result: &Value| result["answer"].as_str().map(|it| it[..40].to_owned());
    assert_eq!(answer(&result), answer(&expected));
    assert_eq!(result["turns"], expected["turns"]);
    assert_eq!(house.stub.calls().len() - before, 4, "three turns and one that was on its way");
    let states: Vec<_> = house.calls(task).await.iter().map(|it| it["state"].clone()).collect();
    assert_eq!(states, ["done", "unknown", "done", "done"]);
}

#[tokio::test]
async fn a_final_answer_is_held_to_its_format_and_repaired_once() {
    let house = House::open("").await;
    let says = |text: &str| Fault { content: Some(text.into()), ..Fault::default() };
    let asked = json!({
        "goal": "How many?", "model": "m",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {
            "type": "object", "required": ["orders"], "properties": {"orders": {"type": "integer"}}}}},
    });
    house.stub.script("m", vec![says("many"), says("{\"orders\": 17}")]);
    let result = house.first("agent_session", asked.clone()).await.expect("completed");
    assert_eq!((&result["json"], &result["turns"]), (&json!({"orders": 17}), &json!(2)));
    let repair = house.stub.calls().pop().expect("a call");
    assert!(repair.ending.contains("not JSON") && repair.messages == 3, "{}", repair.ending);

    house.stub.script("m", vec![says("many"), says("very many")]);
    let mut again = asked.clone();
    again["seed"] = json!(2);
    let (seen, failure) = fate(house.first("agent_session", again).await);
    assert_eq!((seen, failure.class), ("dead", ErrorClass::AnswerInvalid));

    house.stub.script("m", vec![says("many")]);
    let mut any = asked;
    any["on_invalid"] = json!("accept");
    let result = house.first("agent_session", any).await.expect("taken");
    assert_eq!(result["flaw"]["class"], "answer_invalid");
}
