//! Answers in every dress, and what is no answer.

use loadtest::stub_llm::Fault;
use serde_json::{Value, json};
use shared::llm::{ChatRequest, Tool, ToolFault};

use crate::{failed, question, told};

fn with_choices(choices: Value) -> Fault {
    Fault { choices: Some(choices), ..Fault::default() }
}

fn message(message: &Value) -> Fault {
    with_choices(json!([{"index": 0, "message": message, "finish_reason": "stop"}]))
}

#[tokio::test]
async fn case_08_choices_that_are_none_are_no_answer_and_parts_are_one() {
    for choices in [json!([]), Value::Null, json!([{"index": 0, "message": null}])] {
        let (kind, said) = failed(told(with_choices(choices.clone()), &question()).await);
        assert_eq!(kind, "malformed_response", "{choices}");
        assert!(said.contains("no choices"), "{said}");
    }
    let missing = Fault::default().body(json!({"id": "x", "object": "chat.completion"}));
    assert_eq!(failed(told(missing, &question()).await).0, "malformed_response");

    let parts = json!([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]);
    let answer = told(message(&json!({"content": parts})), &question()).await.expect("parts");
    assert_eq!(answer.text, "one two");
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let asking = message(&json!({"content": null, "tool_calls": [call]}));
    let answer = told(asking, &question()).await.expect("a tool");
    assert_eq!((answer.text.as_str(), answer.tool_calls[0].name.as_str()), ("", "f"));
}

#[tokio::test]
async fn case_09_every_reason_of_an_end_is_taken_as_it_comes() {
    for reason in
        [json!("stop"), json!("length"), json!("eos"), json!("content_filter"), Value::Null]
    {
        let fault = Fault { finish_reason: Some(reason.clone()), ..Fault::default() };
        let answer = told(fault, &question()).await.expect("an answer");
        assert_eq!(json!(answer.finish_reason), reason);
    }
}

#[tokio::test]
async fn case_12_pages_are_told_by_size_and_place() {
    let page = |status: u16| Fault {
        content_type: Some("text/html".to_owned()),
        ..Fault::status(status).body("<html><body>Bad Gateway</body></html>")
    };
    let (kind, said) = failed(told(page(502), &question()).await);
    assert_eq!(kind, "502");
    assert!(said.contains("an HTML page of 37 bytes") && !said.contains("<html>"), "{said}");

    let (kind, said) = failed(told(page(200), &question()).await);
    assert_eq!(kind, "malformed_response");
    assert!(said.contains("login page") && said.contains("/v1/chat/completions"), "{said}");

    let nowhere = Fault { content_type: Some("text/plain".to_owned()), ..Fault::status(404) };
    let (kind, said) = failed(told(nowhere.body("404 page not found\n"), &question()).await);
    assert_eq!(kind, "404");
    assert!(said.contains("is /v1 missing or doubled in model.base_url"), "{said}");

    for (body, kind) in [("", "malformed_response"), ("so sorry", "malformed_response")] {
        assert_eq!(failed(told(Fault::default().body(body), &question()).await).0, kind, "{body}");
    }
}

/// Some repeat the whole question in what they say against it.
#[tokio::test]
async fn an_error_longer_than_is_read_is_told_by_its_beginning() {
    let long = format!("the field x is wrong: {}", "y".repeat(600 * 1024));
    let error = json!({"error": {"message": long, "type": "invalid_request_error"}});
    for body in [error, json!(long)] {
        let plain = body.as_str().map(str::to_owned);
        let fault = Fault::status(400).body(plain.map_or(body, Value::from));
        let (kind, said) = failed(told(fault, &question()).await);
        assert_eq!(kind, "400");
        assert!(said.contains("the field x is wrong: yyy") && said.ends_with("y…"), "{said:.300}");
        assert!(said.len() < 1200, "{}", said.len());
    }
}

#[tokio::test]
async fn case_14_marks_and_blank_lines_around_the_json_are_nothing() {
    for prefix in ["\u{feff}", "\n\n\n", "\r\n  \r\n", "\u{feff}\r\n\n  "] {
        let fault = Fault { prefix: prefix.to_owned(), ..Fault::default() };
        let answer = told(fault, &question()).await.expect("an answer");
        assert!(answer.text.contains("17 orders"), "{prefix:?}");
    }
}

#[tokio::test]
async fn case_31_a_megabyte_on_one_line_and_a_nul_are_read() {
    let long = "x".repeat(1024 * 1024);
    let fault = Fault { content: Some(long.clone().into()), ..Fault::default() };
    assert_eq!(told(fault, &question()).await.expect("long").text.len(), long.len());

    let fault = Fault { content: Some("a\u{0}b".into()), ..Fault::default() };
    assert_eq!(told(fault, &question()).await.expect("a NUL").text, "a\u{fffd}b");

    let endless = Fault { content: Some("x".repeat(9 * 1024 * 1024).into()), ..Fault::default() };
    let (kind, said) = failed(told(endless, &question()).await);
    assert_eq!(kind, "response_too_large", "{said}");
}

#[tokio::test]
async fn case_32_a_lone_surrogate_is_replaced() {
    let body =
        r#"{"choices":[{"message":{"content":"a\ud800b \ud83d\ude00"},"finish_reason":"stop"}]}"#;
    let answer = told(Fault::default().body(body), &question()).await.expect("an answer");
    assert_eq!(answer.text, "a\u{fffd}b 😀");
}

#[tokio::test]
async fn case_25_tools_come_as_they_are_each_with_an_id_of_its_own() {
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let calls = json!([
        call("1", "f", "{\"a\": 1}"),
        call("1", "f", "{\"a\":"),
        call("", "f", ""),
        call("2", "g", "{}"),
    ]);
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}}});
    let tools: Vec<Tool> = vec![serde_json::from_value(tool).expect("a tool")];
    let request = ChatRequest { tools: tools.clone(), ..question() };
    for stream in [false, true] {
        let fault = Fault { tool_calls: Some(calls.clone()), ..Fault::default() };
        let request = ChatRequest { stream, ..request.clone() };
        let answer = told(fault, &request).await.expect("an answer");
        let ids: std::collections::BTreeSet<_> = answer.tool_calls.iter().map(|c| &c.id).collect();
        assert_eq!((answer.tool_calls.len(), ids.len()), (4, 4), "stream: {stream}");
        let inputs: Vec<_> = answer.tool_calls.iter().map(|call| call.input(&tools)).collect();
        assert_eq!(inputs[0], Ok(json!({"a": 1})));
        assert!(matches!(&inputs[1], Err(ToolFault::Arguments(what)) if what.contains("not JSON")));
        assert!(matches!(&inputs[2], Err(ToolFault::Arguments(what)) if what.contains("required")));
        assert!(matches!(&inputs[3], Err(ToolFault::Unknown { name, .. }) if name == "g"));
    }
}
