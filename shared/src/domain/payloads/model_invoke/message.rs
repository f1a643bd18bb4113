//! A message of a payload's conversation, as people copy it from a provider's manual.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::domain::tools::ToolCall;

/// One message of a conversation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptMessage {
    /// Who speaks.
    pub role: String,
    /// What is said: a text, or parts that are texts, joined.
    #[serde(default, deserialize_with = "content")]
    pub content: String,
    /// Tools that an assistant asked for, as on the wire.
    #[serde(default, deserialize_with = "wire_calls")]
    pub tool_calls: Vec<ToolCall>,
    /// Which of them a tool message answers.
    #[serde(default)]
    pub tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextPart {
    #[serde(rename = "type")]
    kind: String,
    text: String,
}

fn content<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let parts = match Value::deserialize(from)? {
        Value::Null => return Ok(String::new()),
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        _ => return Err(D::Error::custom("content is neither a text nor a list of text parts")),
    };
    let text = |part: Value| {
        let kind = part["type"].as_str().unwrap_or("without a type").to_owned();
        let part = serde_json::from_value::<TextPart>(part).ok().filter(|it| it.kind == "text");
        part.map(|part| part.text).ok_or_else(|| {
            let known = r#"{"type": "text", "text": "…"}"#;
            D::Error::custom(format!("content has a part {kind:?} that is not {known}"))
        })
    };
    parts.into_iter().map(text).collect()
}

#[derive(Deserialize)]
struct WireCall {
    id: String,
    function: WireFunction,
}

#[derive(Deserialize)]
struct WireFunction {
    name: String,
    arguments: String,
}

fn wire_calls<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ToolCall>, D::Error> {
    let calls = Vec::<WireCall>::deserialize(from)?.into_iter();
    let call = |call: WireCall| ToolCall {
        id: call.id,
        name: call.function.name,
        arguments: call.function.arguments,
    };
    Ok(calls.map(call).collect())
}
