//! `model_invoke`: one question to a model; its answer is the result.

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::domain::outcome::TaskError;
use shared::domain::payloads::{self, Payload};

use crate::context::Context;
use crate::handler::Handler;
use crate::llm::{ChatRequest, Message};

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
        let answer = context.chat(STEP, request_of(asked)).await?;
        Ok(json!({
            "text": context.redact(&answer.text),
            "model": answer.model,
            "usage": {
                "input_tokens": answer.usage.input_tokens,
                "output_tokens": answer.usage.output_tokens,
            },
            "finish_reason": answer.finish_reason,
        }))
    }
}

fn request_of(asked: payloads::ModelInvoke) -> ChatRequest {
    let system = asked.system.into_iter().map(Message::system);
    let conversation = asked.messages.into_iter().map(|it| Message::new(it.role, it.content));
    let prompt = asked.prompt.into_iter().map(Message::user);
    ChatRequest {
        model: asked.model,
        messages: system.chain(conversation).chain(prompt).collect(),
        max_tokens: Some(asked.max_tokens),
        temperature: asked.temperature,
        response_format: asked.response_format,
        ..ChatRequest::default()
    }
}
