//! Messages of a conversation, and how they are written on the wire.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::answer::ChatAnswer;
use crate::domain::tools::ToolCall;

/// One message of a conversation. JSON: its fields, for whoever keeps a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// system, developer, user, assistant or tool.
    pub role: String,
    /// What is said.
    #[serde(default)]
    pub content: String,
    /// Tools that an assistant asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Which of them a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message of a role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }

    /// An instruction.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A question.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// What the model said and which tools it asked for, as the next question repeats it. Its
    /// reasoning stays out: some providers refuse to be told.
    pub fn assistant(answer: &ChatAnswer) -> Self {
        Self {
            tool_calls: answer.tool_calls.clone(),
            ..Self::new("assistant", answer.text.clone())
        }
    }

    /// What a tool answered, or why it did not run.
    pub fn tool(call: &ToolCall, content: impl Into<String>) -> Self {
        Self { tool_call_id: Some(call.id.clone()), ..Self::new("tool", content) }
    }

    /// As a provider reads it.
    pub(super) fn wire(&self) -> Value {
        let mut message = Map::new();
        // An assistant that only asks for tools says nothing, and an empty text is refused by some.
        let content = match (self.content.as_str(), self.tool_calls.is_empty()) {
            ("", false) => Value::Null,
            (text, _) => json!(text),
        };
        message.insert("role".to_owned(), json!(self.role));
        message.insert("content".to_owned(), content);
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(ToolCall::wire).collect();
            message.insert("tool_calls".to_owned(), calls);
        }
        if let Some(id) = &self.tool_call_id {
            message.insert("tool_call_id".to_owned(), json!(id));
        }
        Value::Object(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_with_a_tool_is_written_as_providers_want_it() {
        let call = ToolCall {
            id: "c1".to_owned(),
            name: "f".to_owned(),
            arguments: r#"{"a":1}"#.to_owned(),
        };
        let answer = ChatAnswer { tool_calls: vec![call.clone()], ..ChatAnswer::default() };
        assert_eq!(
            Message::assistant(&answer).wire(),
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]})
        );
        assert_eq!(
            Message::tool(&call, "42").wire(),
            json!({"role": "tool", "content": "42", "tool_call_id": "c1"})
        );
        assert_eq!(Message::user("hi").wire(), json!({"role": "user", "content": "hi"}));
        let kept = json!(Message::assistant(&answer));
        assert_eq!(
            serde_json::from_value::<Message>(kept).expect("kept"),
            Message::assistant(&answer)
        );
    }
}
