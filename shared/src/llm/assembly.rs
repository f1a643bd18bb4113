//! The pieces of a streamed answer, put together to the completion that it would have been in one.

use serde_json::{Map, Value, json};

use super::body;

/// What has come so far.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    head: Map<String, Value>,
    content: String,
    refusal: String,
    reasoning: String,
    tools: Vec<Tool>,
    finish: Option<Value>,
    usage: Value,
    ended: bool,
}

/// A tool that is asked for piece by piece.
#[derive(Debug, Default)]
struct Tool {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// What a piece was.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    /// It says something: text, thought, a tool.
    Said,
    /// It is about the answer.
    Frame,
    /// The end.
    End,
    /// The provider's error, in place of a piece.
    Error(Value),
    /// Nothing that can be read.
    Garbage,
}

impl Assembly {
    /// Takes the data of one event.
    pub fn take(&mut self, event: &[u8]) -> Piece {
        if event.trim_ascii() == b"[DONE]" {
            self.ended = true;
            return Piece::End;
        }
        let Some(piece) = body::json(event) else { return Piece::Garbage };
        if !piece.is_object() {
            return Piece::Garbage;
        }
        if let Some(error) = error_of(&piece) {
            return Piece::Error(error);
        }
        for name in ["id", "model", "system_fingerprint"] {
            if let Some(value) = piece[name].as_str().filter(|text| !text.is_empty()) {
                self.head.insert(name.to_owned(), value.into());
            }
        }
        // Some send it with every piece, growing; the last one counts.
        if piece["usage"].is_object() {
            self.usage = piece["usage"].clone();
        }
        let choices = piece["choices"].as_array().into_iter().flatten();
        let first = choices.filter(|choice| choice["index"].as_u64().unwrap_or(0) == 0);
        let mut piece = Piece::Frame;
        for choice in first {
            if self.choice(choice) {
                piece = Piece::Said;
            }
        }
        piece
    }

    fn choice(&mut self, choice: &Value) -> bool {
        if choice["finish_reason"].as_str().is_some_and(|reason| !reason.is_empty()) {
            self.finish = Some(choice["finish_reason"].clone());
        }
        let delta = [&choice["delta"], &choice["message"]].into_iter().find(|it| it.is_object());
        let Some(delta) = delta else { return false };
        let thought = [&delta["reasoning_content"], &delta["reasoning"]];
        let mut said = add(&mut self.content, &delta["content"]);
        said |= add(&mut self.refusal, &delta["refusal"]);
        said |= thought
            .into_iter()
            .find(|it| it.is_string())
            .is_some_and(|it| add(&mut self.reasoning, it));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.tool(call);
            said = true;
        }
        said
    }

    /// A piece of a tool: its place says which one; where no place is given, or one place is used
    /// twice, another id begins another tool.
    fn tool(&mut self, call: &Value) {
        let index = call["index"].as_u64();
        let id = call["id"].as_str().unwrap_or_default();
        let function = &call["function"];
        let known = self.tools.iter().rposition(|tool| tool.index == index);
        let same = known.filter(|&at| {
            let tool = &self.tools[at];
            id.is_empty() || tool.id == id || tool.id.is_empty()
        });
        let at = same.unwrap_or_else(|| {
            self.tools.push(Tool { index, ..Tool::default() });
            self.tools.len() - 1
        });
        let tool = &mut self.tools[at];
        if tool.id.is_empty() {
            id.clone_into(&mut tool.id);
        }
        // The name comes once, or once more with each piece; never in parts.
        if tool.name.is_empty() {
            function["name"].as_str().unwrap_or_default().clone_into(&mut tool.name);
        }
        match &function["arguments"] {
            Value::String(text) => tool.arguments.push_str(text),
            Value::Null => {}
            other => tool.arguments.push_str(&other.to_string()),
        }
    }

    /// True once it is known why the answer ended, or that it did.
    pub fn is_complete(&self) -> bool {
        self.ended || self.finish.is_some()
    }

    /// True when a part of the answer has come: it may be billed.
    pub fn has_part(&self) -> bool {
        self.characters() > 0 || !self.tools.is_empty()
    }

    /// Characters of text, thought and refusal so far.
    pub fn characters(&self) -> usize {
        [&self.content, &self.reasoning, &self.refusal].iter().map(|it| it.chars().count()).sum()
    }

    /// The completion.
    pub fn completion(self) -> Value {
        let text = |text: String| if text.is_empty() { Value::Null } else { text.into() };
        let tool = |tool: Tool| {
            let function = json!({"name": tool.name, "arguments": tool.arguments});
            json!({"id": tool.id, "type": "function", "function": function})
        };
        let tools: Vec<Value> = self.tools.into_iter().map(tool).collect();
        let mut body = self.head;
        let message = json!({
            "role": "assistant",
            "content": text(self.content),
            "refusal": text(self.refusal),
            "reasoning_content": text(self.reasoning),
            "tool_calls": tools,
        });
        let choice = json!({"index": 0, "message": message, "finish_reason": self.finish});
        body.insert("choices".to_owned(), json!([choice]));
        body.insert("usage".to_owned(), self.usage);
        Value::Object(body)
    }
}

fn add(text: &mut String, piece: &Value) -> bool {
    let piece = piece.as_str().unwrap_or_default();
    text.push_str(piece);
    !piece.is_empty()
}

/// The error that a piece is, wherever it is put.
fn error_of(piece: &Value) -> Option<Value> {
    let is_error = |value: &Value| value.is_object() || value.is_string();
    if is_error(&piece["error"]) || piece["object"] == "error" || piece["type"] == "error" {
        return Some(piece.clone());
    }
    Some(&piece["choices"][0]).filter(|choice| is_error(&choice["error"])).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(pieces: &[Value]) -> Assembly {
        let mut assembly = Assembly::default();
        for piece in pieces {
            assembly.take(piece.to_string().as_bytes());
        }
        assembly
    }

    fn delta(delta: &Value) -> Value {
        json!({"id": "c1", "model": "m2", "choices": [{"index": 0, "delta": delta}]})
    }

    #[test]
    fn pieces_become_the_completion_that_they_are() {
        let finish = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
        let whole = assembled(&[
            delta(&json!({"role": "assistant", "content": ""})),
            delta(&json!({"reasoning_content": "hm"})),
            delta(&json!({"content": "Hel"})),
            json!({"choices": [{"index": 1, "delta": {"content": "other"}}]}),
            delta(&json!({"content": "lo"})),
            finish,
            usage,
        ]);
        assert!(whole.is_complete() && whole.has_part());
        let body = whole.completion();
        let message = &body["choices"][0]["message"];
        assert_eq!(
            (&message["content"], &message["reasoning_content"]),
            (&json!("Hello"), &json!("hm"))
        );
        assert_eq!(
            (&body["model"], &body["usage"]["completion_tokens"]),
            (&json!("m2"), &json!(2))
        );
        assert_eq!(body["choices"][0]["finish_reason"], "stop");
    }

    #[test]
    fn tools_are_put_together_by_place_or_id() {
        let call = |index: Option<u64>, id: &str, name: &str, arguments: &str| {
            let mut call = json!({"id": id, "function": {"name": name, "arguments": arguments}});
            if let Some(index) = index {
                call["index"] = index.into();
            }
            delta(&json!({"tool_calls": [call]}))
        };
        let names = |assembly: Assembly| -> Vec<(Value, Value, Value)> {
            let body = assembly.completion();
            let calls =
                body["choices"][0]["message"]["tool_calls"].as_array().expect("calls").clone();
            let part = |call: &Value| {
                let function = &call["function"];
                (call["id"].clone(), function["name"].clone(), function["arguments"].clone())
            };
            calls.iter().map(part).collect()
        };
        let two =
            [(json!("a"), json!("f"), json!("{\"x\":1}")), (json!("b"), json!("g"), json!("{}"))];
        let by_place = assembled(&[
            call(Some(0), "a", "f", ""),
            call(Some(0), "", "", "{\"x\""),
            call(Some(1), "b", "g", "{}"),
            call(Some(0), "", "", ":1}"),
        ]);
        assert_eq!(names(by_place), two);
        let one_place =
            assembled(&[call(Some(0), "a", "f", "{\"x\":1}"), call(Some(0), "b", "g", "{}")]);
        assert_eq!(names(one_place), two);
        let no_place = assembled(&[
            call(None, "a", "f", "{\"x\""),
            call(None, "", "", ":1}"),
            call(None, "b", "g", "{}"),
        ]);
        assert_eq!(names(no_place), two);
    }

    #[test]
    fn every_piece_has_its_kind() {
        let mut assembly = Assembly::default();
        let mut take = |text: &str| assembly.take(text.as_bytes());
        assert_eq!(take("nonsense"), Piece::Garbage);
        assert_eq!(take("[1]"), Piece::Garbage);
        assert_eq!(take(r#"{"choices":[{"delta":{"role":"assistant"}}]}"#), Piece::Frame);
        assert_eq!(take(r#"{"choices":[{"delta":{"content":"x"}}]}"#), Piece::Said);
        assert!(matches!(take(r#"{"error":{"message":"m"}}"#), Piece::Error(_)));
        assert!(matches!(take(r#"{"choices":[{"error":{"code":502}}]}"#), Piece::Error(_)));
        assert_eq!(take(" [DONE] "), Piece::End);
    }

    #[test]
    fn nothing_is_complete_before_it_ends() {
        assert!(!assembled(&[delta(&json!({"content": "Hel"}))]).is_complete());
        assert!(!assembled(&[delta(&json!({"role": "assistant"}))]).has_part());
        let null = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": null}]});
        assert!(!assembled(&[null]).is_complete());
    }
}
