//! A model that works with tools: it asks for what its plan says, turn by turn, then answers.
//!
//! The plan is JSON at the end of the user's first message, `{"plan": [[{"tool": "t", "arguments": {…}}],
//! …]}`: the calls of each turn. A model named `stub-session-N` without a plan asks N times for the first
//! tool that is offered. What it says depends on the conversation alone, so that a session that was
//! killed can be compared with one that was not.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::fault::Fault;

/// Models that play.
const MODEL: &str = "stub-session";

/// Fills in what the plan says, unless the step says something of its own.
pub(super) fn play(fault: Fault, body: &Value) -> Fault {
    let model = body["model"].as_str().unwrap_or_default();
    let says_something = fault.tool_calls.is_some()
        || fault.content.is_some()
        || fault.body.is_some()
        || fault.refusal.is_some()
        || fault.choices.is_some();
    if !model.starts_with(MODEL) || says_something {
        return fault;
    }
    let none = Vec::new();
    let messages = body["messages"].as_array().unwrap_or(&none);
    let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
    match plan(model, body, messages).get(turn) {
        Some(calls) => Fault { tool_calls: Some(on_the_wire(turn, calls)), ..fault },
        None => Fault { content: Some(last_words(turn, messages).into()), ..fault },
    }
}

fn plan(model: &str, body: &Value, messages: &[Value]) -> Vec<Vec<Value>> {
    let goal = messages.iter().find(|message| message["role"] == "user");
    let goal = goal.and_then(|message| message["content"].as_str()).unwrap_or_default();
    let written = goal.find("{\"plan\"").and_then(|at| {
        serde_json::from_str::<Value>(&goal[at..]).ok()?["plan"].as_array().cloned()
    });
    if let Some(turns) = written {
        return turns
            .into_iter()
            .map(|turn| turn.as_array().cloned().unwrap_or_default())
            .collect();
    }
    let count = model.strip_prefix(MODEL).and_then(|rest| rest.strip_prefix('-')?.parse().ok());
    let first = json!({"tool": body["tools"][0]["function"]["name"], "arguments": {}});
    vec![vec![first]; count.unwrap_or(0)]
}

fn on_the_wire(turn: usize, calls: &[Value]) -> Value {
    let calls = calls.iter().enumerate().map(|(at, call)| {
        // A text is sent as it is, for arguments that are no JSON.
        let arguments = &call["arguments"];
        let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
        json!({
            "id": format!("call_{turn}_{at}"), "type": "function",
            "function": {"name": call["tool"], "arguments": arguments},
        })
    });
    calls.collect()
}

/// Eight digits that stand for everything the tools have answered; of an HTTP answer the body alone,
/// since its headers tell the time.
fn last_words(turn: usize, messages: &[Value]) -> String {
    let answers = messages.iter().filter(|message| message["role"] == "tool");
    let answers = answers.filter_map(|message| {
        let text = message["content"].as_str()?;
        let json = serde_json::from_str::<Value>(text).unwrap_or_default();
        Some(json.get("body").map_or_else(|| text.to_owned(), Value::to_string))
    });
    let answers: Vec<String> = answers.collect();
    let hash = Sha256::digest(answers.join("\n").as_bytes());
    let hash = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    format!("Done after {turn} turns and {} answers of tools ({hash:08x})", answers.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(model: &str, messages: &Value) -> Fault {
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        play(Fault::default(), &json!({"model": model, "messages": messages, "tools": tools}))
    }

    #[test]
    fn the_conversation_so_far_says_what_is_next() {
        let goal = json!({"role": "user", "content": "do it"});
        let assistant = json!({"role": "assistant", "content": null});
        let tool = json!({"role": "tool", "content": "42"});
        let first = asked("stub-session-1", &json!([goal])).tool_calls.expect("a tool");
        assert_eq!(first[0]["function"], json!({"name": "f", "arguments": "{}"}));
        let last = asked("stub-session-1", &json!([goal, assistant, tool]));
        assert_eq!(last.tool_calls, None);
        let text = last.content.expect("an answer").to_string();
        assert!(text.contains("after 1 turns and 1 answers"), "{text}");
        assert_eq!(asked("m", &json!([goal])), Fault::default());
    }

    #[test]
    fn a_plan_is_played_and_a_step_of_a_script_wins() {
        let plan = json!({"plan": [[{"tool": "g", "arguments": {"a": 1}}, {"tool": "h", "arguments": "{"}]]});
        let goal = json!({"role": "user", "content": format!("Work: {plan}")});
        let calls = asked("stub-session", &json!([goal])).tool_calls.expect("tools");
        assert_eq!(calls[0]["function"], json!({"name": "g", "arguments": "{\"a\":1}"}));
        assert_eq!(calls[1]["function"], json!({"name": "h", "arguments": "{"}));
        let own = Fault { content: Some("mine".into()), ..Fault::default() };
        assert_eq!(play(own.clone(), &json!({"model": "stub-session-3"})), own);
    }
}
