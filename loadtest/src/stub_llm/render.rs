//! What goes out for a question and a fault: a body, or the events of a stream.

use serde_json::{Value, json};

use super::answer::Question;
use super::fault::Fault;

/// Characters of one piece of a streamed text.
const PIECE: usize = 8;

/// What goes out.
#[derive(Debug)]
pub(super) struct Rendered {
    pub status: u16,
    pub body: Sent,
    pub content_type: String,
    /// Tokens that were really written.
    pub output_tokens: u64,
}

/// In one piece, or event by event.
#[derive(Debug)]
pub(super) enum Sent {
    Whole(String),
    Events(Vec<String>),
}

/// Renders the answer.
pub(super) fn render(fault: &Fault, question: &Question) -> Rendered {
    let (text, output_tokens, finish) = question.answer();
    let status = fault.status.unwrap_or(200);
    let answered = fault.body.is_none() && status < 400;
    let streams = answered && question.stream && !fault.stream.ignored;
    let usual = if streams { "text/event-stream" } else { "application/json" };
    let body = match &fault.body {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None if status >= 400 => error(fault, status).to_string(),
        None => completion(fault, question, &text, output_tokens, finish).to_string(),
    };
    let body = if streams {
        let whole = completion(fault, question, &text, output_tokens, finish);
        Sent::Events(events(fault, question, &whole))
    } else {
        Sent::Whole(format!("{}{body}", fault.prefix))
    };
    Rendered {
        status,
        body,
        content_type: fault.content_type.clone().unwrap_or_else(|| usual.to_owned()),
        output_tokens: if answered { output_tokens } else { 0 },
    }
}

fn error(fault: &Fault, status: u16) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", "invalid_api_key"),
        404 => ("invalid_request_error", "model_not_found"),
        429 => ("rate_limit_error", "rate_limit_exceeded"),
        400..=499 => ("invalid_request_error", "bad_request"),
        503 | 529 => ("overloaded_error", "server_is_overloaded"),
        _ => ("server_error", "server_error"),
    };
    let code = fault.code.as_deref().unwrap_or(code);
    let message = format!("the stub was told to answer {status}");
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

fn completion(fault: &Fault, question: &Question, text: &str, output: u64, finish: &str) -> Value {
    let silent = fault.tool_calls.is_some() || fault.refusal.is_some();
    let usual = if silent { Value::Null } else { text.into() };
    let mut message =
        json!({"role": "assistant", "content": fault.content.clone().unwrap_or(usual)});
    let more = [
        ("tool_calls", fault.tool_calls.clone()),
        ("reasoning_content", fault.reasoning.clone().map(Value::from)),
        ("refusal", fault.refusal.clone().map(Value::from)),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            message[name] = value;
        }
    }
    let usual = if fault.tool_calls.is_some() { "tool_calls" } else { finish };
    let finish = fault.finish_reason.clone().unwrap_or_else(|| usual.into());
    let choices = json!([{"index": 0, "message": message, "finish_reason": finish}]);
    let mut body = json!({
        "id": format!("chatcmpl-{}", question.hash()),
        "object": "chat.completion",
        "created": 0,
        "model": fault.model.as_ref().unwrap_or(&question.model),
        "choices": fault.choices.clone().unwrap_or(choices),
    });
    let usage = fault.usage.clone().unwrap_or_else(|| {
        json!({
            "prompt_tokens": question.input_tokens,
            "completion_tokens": output,
            "total_tokens": question.input_tokens + output,
        })
    });
    if !usage.is_null() {
        body["usage"] = usage;
    }
    body
}

/// The same answer event by event: role, thought, text, tools, the reason of its end, tokens, and
/// `[DONE]`.
fn events(fault: &Fault, question: &Question, whole: &Value) -> Vec<String> {
    let message = &whole["choices"][0]["message"];
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    for name in ["reasoning_content", "content", "refusal"] {
        let text = message[name].as_str().unwrap_or_default();
        let characters: Vec<char> = text.chars().collect();
        let pieces = characters.chunks(PIECE).map(|piece| piece.iter().collect::<String>());
        deltas.extend(pieces.map(|piece| json!({ name: piece })));
    }
    for (at, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
        deltas.extend(tool_pieces(at, call));
    }
    let frame = |choices: Value| {
        json!({"id": whole["id"], "object": "chat.completion.chunk", "created": 0,
            "model": whole["model"], "choices": choices})
    };
    let piece = |delta: Value, finish: &Value| {
        frame(json!([{"index": 0, "delta": delta, "finish_reason": finish}]))
    };
    let mut events: Vec<Value> =
        deltas.into_iter().map(|delta| piece(delta, &Value::Null)).collect();
    events.push(piece(json!({}), &whole["choices"][0]["finish_reason"]));
    if question.include_usage && whole.get("usage").is_some() {
        let mut usage = frame(json!([]));
        usage["usage"] = whole["usage"].clone();
        events.push(usage);
    }
    let mut texts: Vec<String> = events.iter().map(Value::to_string).collect();
    if !fault.stream.no_done {
        texts.push("[DONE]".to_owned());
    }
    if let Some(end) = fault.stream.end_after {
        texts.truncate(end);
        texts.extend(fault.stream.error.as_ref().map(Value::to_string));
    }
    let end = if fault.stream.crlf { "\r\n" } else { "\n" };
    let before =
        if fault.stream.keep_alive { format!(": keep-alive{end}{end}") } else { String::new() };
    texts.iter().map(|text| format!("{before}data: {text}{end}{end}")).collect()
}

/// A tool's head, and its arguments in two parts.
fn tool_pieces(at: usize, call: &Value) -> Vec<Value> {
    let function = &call["function"];
    let head = json!({"index": at, "id": call["id"], "type": "function",
        "function": {"name": function["name"], "arguments": ""}});
    let characters: Vec<char> =
        function["arguments"].as_str().unwrap_or_default().chars().collect();
    let (one, two) = characters.split_at(characters.len() / 2);
    let parts = [one, two].map(|part| {
        let part: String = part.iter().collect();
        json!({"index": at, "function": {"arguments": part}})
    });
    let calls = [head].into_iter().chain(parts);
    calls.map(|call| json!({"tool_calls": [call]})).collect()
}
