//! The tools of a session: what the model is offered, and what becomes of a call.
//!
//! A call that cannot be made, and one that fails for good, is told to the model: it may know another
//! way. What may pass by itself is the task's to try again.

use std::sync::Arc;

use serde_json::{Value, json};
use shared::domain::outcome::{ErrorClass, Failure, TaskError};
use shared::domain::payloads::{self, SessionTool};
use shared::llm::session::ToolAnswer;
use shared::telemetry::spans::{self, ExecuteTool};

use crate::context::{Context, SECRET_PREFIX};
use crate::handler::Handler;
use crate::llm::{Tool, ToolCall};

/// Most bytes of a tool's result that the model is told: every later turn repeats and pays them.
pub const MAX_TOOL_RESULT_BYTES: usize = 16 * 1024;

/// See the module.
pub(super) struct Kit {
    tools: Vec<Held>,
    offered: Vec<Tool>,
}

struct Held {
    tool: SessionTool,
    handler: Arc<dyn Handler>,
}

/// Why a call brought nothing.
enum Failed {
    /// For the model.
    Told(Failure),
    /// For the task.
    Task(TaskError),
}

impl Kit {
    /// The tools that a payload names, if the configuration allows them and this worker has them.
    pub fn of(asked: &payloads::AgentSession, context: &Context) -> Result<Self, TaskError> {
        let allowed = &context.house.config.session_tools;
        let mut tools = Vec::new();
        let mut offered = Vec::new();
        for tool in &asked.tools {
            let task_type = tool.task_type.as_str();
            if !allowed.iter().any(|allowed| allowed == task_type) {
                return Err(TaskError::permanent(format!(
                    "the task type {task_type} may not be a tool of a session here; \
                     handlers.agent_session.tools in belfry.yaml allows: {}",
                    allowed.join(", ")
                )));
            }
            let Some(handler) = context.handlers().get(task_type) else {
                return Err(TaskError::permanent(format!(
                    "this worker has no handler for the tool {task_type}"
                )));
            };
            offered.push(tool.offered(&handler.schema()));
            tools.push(Held { tool: tool.clone(), handler });
        }
        Ok(Self { tools, offered })
    }

    /// As the model sees them.
    pub fn offered(&self) -> &[Tool] {
        &self.offered
    }

    /// Runs what the model asks for, once, as a step; what it is told comes back.
    pub async fn answer(
        &self,
        context: &Context,
        step: &str,
        call: &ToolCall,
    ) -> Result<ToolAnswer, TaskError> {
        let input = json!({"tool": call.name, "arguments": call.arguments});
        context.step(step, &input, self.traced(context, step, call)).await
    }

    async fn traced(
        &self,
        context: &Context,
        step: &str,
        call: &ToolCall,
    ) -> Result<ToolAnswer, TaskError> {
        let conversation = context.task_id.to_string();
        let span = spans::execute_tool(&ExecuteTool {
            // A name that the model made up would be one more span of its own.
            name: self
                .offered
                .iter()
                .find(|it| it.name == call.name)
                .map_or("unknown", |it| &it.name),
            call_id: &call.id,
            conversation: &conversation,
            step,
        });
        let failed = match span.in_scope(self.called(context, step, call)).await {
            Ok(result) => {
                let content = told(&context.redacted(result));
                span.tool_content(&context.redact(&call.arguments), &content);
                return Ok(ToolAnswer { tool: call.name.clone(), content, error: None });
            }
            Err(failed) => failed,
        };
        match failed {
            Failed::Told(Failure { class, message }) => {
                span.fail(class.as_str(), "");
                let content = without_nul(&context.redact(&format!("error: {message}")));
                span.tool_content(&context.redact(&call.arguments), &content);
                Ok(ToolAnswer { tool: call.name.clone(), content, error: Some(class) })
            }
            Failed::Task(error) => {
                span.fail(error.class().as_str(), "");
                Err(error)
            }
        }
    }

    async fn called(
        &self,
        context: &Context,
        step: &str,
        call: &ToolCall,
    ) -> Result<Value, Failed> {
        let unusable = |what: String| Failed::Told(Failure::new(ErrorClass::Invalid, what));
        let said = call.input(&self.offered).map_err(|fault| unusable(fault.to_string()))?;
        if names_secret(&said) {
            return Err(unusable(format!(
                "no text may hold {SECRET_PREFIX:?}: secrets are not yours to use"
            )));
        }
        let held = self.tools.iter().find(|held| held.tool.name == call.name);
        let Some(Held { tool, handler }) = held else {
            return Err(unusable(format!("there is no tool {:?}", call.name)));
        };
        let payload = tool.payload_of(&said);
        handler.check(&payload).map_err(unusable)?;
        let inside = context.inside(step);
        handler.run(&inside, payload).await.map_err(|error| judged(context, error))
    }
}

/// Whose matter a tool's failure is.
fn judged(context: &Context, error: TaskError) -> Failed {
    match error {
        TaskError::Permanent(failure) => Failed::Told(failure),
        // No retry is left: better that the model looks for another way than that all of it was in vain.
        TaskError::Retry { failure, .. }
            if context.is_last_attempt() && failure.class != ErrorClass::Interrupted =>
        {
            Failed::Told(failure)
        }
        error => Failed::Task(error),
    }
}

/// True when a text anywhere in it could be taken for the name of a secret.
fn names_secret(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(SECRET_PREFIX),
        Value::Array(items) => items.iter().any(names_secret),
        Value::Object(fields) => {
            fields.iter().any(|(name, item)| name.contains(SECRET_PREFIX) || names_secret(item))
        }
        _ => false,
    }
}

/// A result as the model reads it, cut where it is too long.
fn told(result: &Value) -> String {
    let text = match result {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let text = without_nul(&text);
    if text.len() <= MAX_TOOL_RESULT_BYTES {
        return text;
    }
    let cut = (0..=MAX_TOOL_RESULT_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!(
        "{}\n[cut here: the result has {} bytes, and {MAX_TOOL_RESULT_BYTES} are shown; ask for less]",
        &text[..cut],
        text.len()
    )
}

fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_result_is_cut_at_a_character_and_says_so() {
        assert_eq!(told(&json!({"a": 1})), r#"{"a":1}"#);
        assert_eq!(told(&json!("plain\0")), "plain\u{fffd}");
        let long = told(&json!("é".repeat(MAX_TOOL_RESULT_BYTES)));
        assert!(long.len() < MAX_TOOL_RESULT_BYTES + 200, "{}", long.len());
        assert!(long.ends_with("16384 are shown; ask for less]") && long.contains("32768 bytes"));
    }

    #[test]
    fn a_secret_is_named_in_no_argument() {
        for said in [
            json!({"url": "secret:token"}),
            json!({"headers": {"A": "Bearer secret:token"}}),
            json!({"body": [{"secret:token": 1}]}),
        ] {
            assert!(names_secret(&said), "{said}");
        }
        assert!(!names_secret(&json!({"text": "a secret, token", "n": 1})));
    }
}
