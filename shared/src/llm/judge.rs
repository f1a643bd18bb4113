//! Is a paid answer what was asked for? It names the fault; what is done about it is the policy's.

use super::answer::ChatAnswer;
use super::request::ChatRequest;
use crate::domain::answer::{AnswerFault, OnInvalid, OnTruncated};
use crate::domain::json_schema::Schema;
use crate::domain::tools::ToolChoice;

impl ChatAnswer {
    /// What is wrong with it, unless the question's policy accepts just that.
    pub fn fault(&self, request: &ChatRequest) -> Option<AnswerFault> {
        self.flaw(request).filter(|fault| !self.is_accepted(fault, request))
    }

    /// What is wrong with it, accepted or not.
    pub fn flaw(&self, request: &ChatRequest) -> Option<AnswerFault> {
        if self.refusal.is_some() {
            let what = "the model would not answer; its words are kept with the call";
            return Some(AnswerFault::Refused(what.to_owned()));
        }
        if self.finish_reason.as_deref() == Some("content_filter") {
            let what = "finish_reason is content_filter; the part that came is kept";
            return Some(AnswerFault::Refused(what.to_owned()));
        }
        if self.is_empty() {
            return Some(self.nothing());
        }
        if !self.tool_calls.is_empty() {
            return self.tools(request);
        }
        if self.is_cut() {
            let what =
                if request.wants_json() { "half a JSON is none" } else { "the end is missing" };
            return Some(AnswerFault::Truncated(format!("{what}; raise max_tokens")));
        }
        if matches!(request.tool_choice, Some(ToolChoice::Required | ToolChoice::Named(_)))
            && !request.tools.is_empty()
        {
            let what = "it asks for no tool, and one was required".to_owned();
            return Some(AnswerFault::Invalid(what));
        }
        if request.wants_json() { self.format(request) } else { None }
    }

    /// Cut before the first word, or empty by itself.
    fn nothing(&self) -> AnswerFault {
        let used = self.usage.output_tokens;
        let thought = match self.usage.reasoning_tokens {
            Some(thought) => format!(", {thought} of them on reasoning"),
            None => String::new(),
        };
        if self.is_cut() {
            return AnswerFault::Truncated(format!(
                "before its first word ({used} tokens used{thought}); raise max_tokens"
            ));
        }
        AnswerFault::Empty(format!("{used} tokens used{thought}"))
    }

    fn tools(&self, request: &ChatRequest) -> Option<AnswerFault> {
        let fault = self.tool_calls.iter().find_map(|call| {
            let fault = call.input(&request.tools).err()?;
            Some(format!("{}: {fault}", call.name))
        })?;
        // The last arguments end where the tokens did.
        Some(if self.is_cut() {
            AnswerFault::Truncated(format!("in the middle of a tool's arguments ({fault})"))
        } else {
            AnswerFault::Invalid(fault)
        })
    }

    fn format(&self, request: &ChatRequest) -> Option<AnswerFault> {
        let value = match self.json() {
            Ok(value) => value,
            Err(error) => return Some(AnswerFault::Invalid(format!("it is not JSON: {error}"))),
        };
        let checked = match request.schema() {
            Some(schema) => Schema::compile(schema).and_then(|schema| schema.check(&value)),
            // `json_object` says what it wants.
            None if is_object_wanted(request) && !value.is_object() => {
                Err("it is JSON, but no object".to_owned())
            }
            None => Ok(()),
        };
        checked.err().map(AnswerFault::Invalid)
    }

    fn is_accepted(&self, fault: &AnswerFault, request: &ChatRequest) -> bool {
        let policy = &request.policy;
        match fault {
            // Of nothing, no part can be taken.
            AnswerFault::Truncated(_) => {
                !self.is_empty()
                    && policy.on_truncated(request.wants_json() || !self.tool_calls.is_empty())
                        == OnTruncated::Accept
            }
            AnswerFault::Invalid(_) => policy.on_invalid == OnInvalid::Accept,
            AnswerFault::Empty(_) | AnswerFault::Refused(_) => false,
        }
    }
}

fn is_object_wanted(request: &ChatRequest) -> bool {
    request.response_format.as_ref().is_some_and(|format| format["type"] == "json_object")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::message::Message;
    use super::*;
    use crate::domain::answer::AnswerPolicy;
    use crate::domain::tools::Tool;

    fn answer(message: &Value, finish: &str) -> ChatAnswer {
        let body = json!({"choices": [{"message": message, "finish_reason": finish}]});
        ChatAnswer::of(&body, "m", &ChatRequest::default()).expect("an answer")
    }

    #[track_caller]
    fn judged(message: &Value, finish: &str, request: &ChatRequest, expected: &str) {
        let fault = answer(message, finish).fault(request);
        let seen = fault.as_ref().map_or("ok", |fault| fault.class().as_str());
        assert_eq!(seen, expected, "{message} {finish}: {fault:?}");
    }

    fn text() -> ChatRequest {
        ChatRequest { messages: vec![Message::user("hi")], ..ChatRequest::default() }
    }

    fn json_of(kind: &str) -> ChatRequest {
        let schema =
            json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
        let format = match kind {
            "json_schema" => json!({"type": kind, "json_schema": {"name": "s", "schema": schema}}),
            kind => json!({ "type": kind }),
        };
        ChatRequest { response_format: Some(format), ..text() }
    }

    #[test]
    fn case_09_a_paid_answer_is_judged_by_what_was_asked() {
        judged(&json!({"content": "hi"}), "stop", &text(), "ok");
        judged(&json!({"content": "hi"}), "eos", &text(), "ok");
        judged(&json!({"content": "hi"}), "length", &text(), "ok");
        judged(&json!({"content": "hi"}), "content_filter", &text(), "answer_refused");
        judged(&json!({"content": null, "refusal": "no"}), "stop", &text(), "answer_refused");
        judged(&json!({"content": ""}), "length", &text(), "answer_truncated");
        judged(&json!({"content": " "}), "stop", &text(), "answer_empty");
        judged(&json!({"content": "{}"}), "stop", &json_of("json_object"), "ok");
        judged(&json!({"content": "[]"}), "stop", &json_of("json_object"), "answer_invalid");
        judged(&json!({"content": "{}"}), "length", &json_of("json_object"), "answer_truncated");
        judged(&json!({"content": "sorry"}), "stop", &json_of("json_object"), "answer_invalid");
        judged(&json!({"content": "{}"}), "stop", &json_of("json_schema"), "answer_invalid");
        judged(&json!({"content": "{\"n\":1}"}), "stop", &json_of("json_schema"), "ok");
        judged(&json!({"content": "sorry"}), "stop", &json_of("text"), "ok");
    }

    #[test]
    fn a_policy_says_what_is_accepted() {
        let with = |request: ChatRequest, policy| ChatRequest { policy, ..request };
        let whole = AnswerPolicy { on_truncated: Some(OnTruncated::Fail), ..Default::default() };
        judged(&json!({"content": "hi"}), "length", &with(text(), whole), "answer_truncated");
        let part = AnswerPolicy { on_truncated: Some(OnTruncated::Accept), ..Default::default() };
        judged(
            &json!({"content": "{"}),
            "length",
            &with(json_of("json_object"), part.clone()),
            "ok",
        );
        judged(&json!({"content": ""}), "length", &with(text(), part), "answer_truncated");
        let any = AnswerPolicy { on_invalid: OnInvalid::Accept, ..Default::default() };
        judged(&json!({"content": "sorry"}), "stop", &with(json_of("json_object"), any), "ok");
    }

    #[test]
    fn case_25_tools_that_cannot_be_run_are_no_answer() {
        let tool = Tool {
            name: "f".to_owned(),
            parameters: json!({"type": "object", "required": ["a"]}),
            ..Tool::default()
        };
        let offered = ChatRequest { tools: vec![tool], ..text() };
        let asking = |name: &str, arguments: &str| json!({"content": null, "tool_calls": [{"id": "1", "function": {"name": name, "arguments": arguments}}]});
        judged(&asking("f", "{\"a\":1}"), "tool_calls", &offered, "ok");
        judged(&asking("f", "{\"a\":"), "tool_calls", &offered, "answer_invalid");
        judged(&asking("f", "{\"a\":"), "length", &offered, "answer_truncated");
        judged(&asking("f", ""), "tool_calls", &offered, "answer_invalid");
        judged(&asking("g", "{}"), "tool_calls", &offered, "answer_invalid");
        judged(&asking("f", "{}"), "tool_calls", &text(), "answer_invalid");

        let must = ChatRequest { tool_choice: Some(ToolChoice::Required), ..offered.clone() };
        judged(&json!({"content": "no"}), "stop", &must, "answer_invalid");
        judged(&json!({"content": "no"}), "stop", &offered, "ok");
    }
}
