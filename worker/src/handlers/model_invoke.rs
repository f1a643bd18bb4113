//! `model_invoke`: one question to a model; its answer is the result.

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::domain::outcome::TaskError;
use shared::domain::payloads::{self, Payload};

use crate::context::Context;
use crate::handler::Handler;
use crate::llm::{ChatRequest, Message, ToolCall};

/// The only step.
const STEP: &str = "invoke";

/// See the module.
pub(super) struct ModelInvoke;

#[async_trait]
impl Handler for ModelInvoke {
    fn task_type(&self) -> &'static str {
        payloads::ModelInvoke::TYPE
    }

    fn summary(&self) -> &'static str {
        "one question to a model; its answer is the result"
    }

    fn schema(&self) -> Value {
        payloads::ModelInvoke::schema()
    }

    fn check(&self, payload: &Value) -> Result<(), String> {
        payloads::ModelInvoke::read(payload).map(drop)
    }

    async fn run(&self, context: &Context, payload: Value) -> Result<Value, TaskError> {
        let asked = payloads::ModelInvoke::read(&payload).map_err(TaskError::invalid)?;
        let request = request_of(asked);
        let wants_json = request.wants_json();
        let reply = context.chat(STEP, request).await?;
        let answer = &reply.answer;
        let mut result = json!({
            "text": answer.text,
            "model": answer.model,
            "usage": reply.usage_json(),
            "finish_reason": answer.finish_reason,
            "tries": reply.tries,
        });
        if wants_json && let Ok(value) = answer.json() {
            result["json"] = value;
        }
        if !answer.tool_calls.is_empty() {
            let calls = answer.tool_calls.iter();
            result["tool_calls"] = calls.map(asked_tool).collect();
        }
        if let Some(flaw) = &reply.flaw {
            result["flaw"] = json!({"class": flaw.class(), "message": flaw.to_string()});
        }
        // Stored answers may be older than a secret of the configuration.
        Ok(context.redacted(result))
    }
}

/// A tool that the model asks for: `{"id", "name", "arguments"}`, the arguments as JSON where they are.
fn asked_tool(call: &ToolCall) -> Value {
    let said = &call.arguments;
    let arguments = serde_json::from_str(said).unwrap_or_else(|_| Value::String(said.clone()));
    json!({"id": call.id, "name": call.name, "arguments": arguments})
}

fn request_of(mut asked: payloads::ModelInvoke) -> ChatRequest {
    let policy = asked.policy();
    let system = asked.system.take().into_iter().map(Message::system);
    let conversation = asked.messages.into_iter().flatten().map(|said| Message {
        tool_calls: said.tool_calls,
        tool_call_id: said.tool_call_id,
        ..Message::new(said.role, said.content)
    });
    let prompt = asked.prompt.take().into_iter().map(Message::user);
    ChatRequest {
        model: asked.model,
        messages: system.chain(conversation).chain(prompt).collect(),
        max_tokens: Some(asked.max_tokens),
        temperature: asked.temperature,
        seed: asked.seed,
        reasoning_effort: asked.reasoning_effort,
        response_format: asked.response_format,
        tools: asked.tools,
        tool_choice: asked.tool_choice,
        stream: asked.stream,
        policy,
        conversation: None,
    }
}
