//! `agent_session`: a model works towards a goal with tools, one kept step after the other.
//!
//! Each turn of the model and each call of a tool is a step: whoever claims the task next goes on after
//! the last one. It keeps nothing in memory that the steps do not tell, and repeats nothing that they do.

mod bounds;
mod kit;

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::domain::outcome::{ErrorClass, Failure, TaskError};
use shared::domain::payloads::{self, Payload};
use shared::llm::session::{Flaw, Next, Transcript, Turn, tool_step, turn_step};

use crate::context::{Context, answered};
use crate::handler::Handler;
use crate::llm::{ChatAnswer, ChatRequest, Message, OnInvalid, Reply, usage_json};
use bounds::{Bounds, Slice};
use kit::Kit;

/// See the module.
pub(super) struct AgentSession;

#[async_trait]
impl Handler for AgentSession {
    fn task_type(&self) -> &'static str {
        payloads::AgentSession::TYPE
    }

    fn summary(&self) -> &'static str {
        "a model works towards a goal with tools; every step is kept"
    }

    fn schema(&self) -> Value {
        payloads::AgentSession::schema()
    }

    fn check(&self, payload: &Value) -> Result<(), String> {
        payloads::AgentSession::read(payload).map(drop)
    }

    async fn run(&self, context: &Context, payload: Value) -> Result<Value, TaskError> {
        let asked = payloads::AgentSession::read(&payload).map_err(TaskError::invalid)?;
        let kit = Kit::of(&asked, context)?;
        let bounds = Bounds::of(&asked, context)?;
        let steps = answered(|| context.house.store.steps(context.task_id)).await?;
        let told = Transcript::of(steps);
        Session { context, asked, kit, bounds, told }.run().await
    }
}

/// One attempt at a session.
struct Session<'a> {
    context: &'a Context,
    asked: payloads::AgentSession,
    kit: Kit,
    bounds: Bounds,
    told: Transcript,
}

impl Session<'_> {
    /// From the last kept step to the end, or to the end of this attempt's share.
    async fn run(mut self) -> Result<Value, TaskError> {
        let mut slice = Slice::begin(self.context);
        let repairs = self.asked.on_invalid == OnInvalid::Repair;
        loop {
            if let Next::Done(turn) = self.told.next(repairs) {
                return self.end(turn);
            }
            self.bounds.check(self.context).await?;
            slice.check(self.context)?;
            match self.told.next(repairs) {
                Next::Turn(number) => {
                    let turn = self.turn(number).await?;
                    self.told.said(turn);
                }
                Next::Tool { turn, call_no, call } => {
                    let step = tool_step(turn, call_no);
                    let answer = self.kit.answer(self.context, &step, call).await?;
                    self.told.answered(call_no, answer);
                }
                Next::Done(_) => {}
            }
            slice.step();
        }
    }

    /// The model speaks: one question, whose answer is in the journal before it is a step.
    async fn turn(&self, number: usize) -> Result<Turn, TaskError> {
        let (step, request) = (turn_step(number), self.question());
        let input = json!(request.messages);
        // On the heap: asking is a large state, and every level up to the attempt carries it otherwise.
        let ask = Box::pin(async { self.context.chat(&step, request).await.map(turn_of) });
        self.context.step(&step, &input, ask).await
    }

    fn question(&self) -> ChatRequest {
        let asked = &self.asked;
        let mut messages: Vec<Message> = asked.system.iter().map(Message::system).collect();
        messages.push(Message::user(&asked.goal));
        messages.extend(self.told.messages());
        ChatRequest {
            model: asked.model.clone(),
            messages,
            max_tokens: Some(asked.max_tokens),
            temperature: asked.temperature,
            seed: asked.seed,
            reasoning_effort: asked.reasoning_effort.clone(),
            response_format: asked.response_format.clone(),
            tools: self.kit.offered().to_vec(),
            tool_choice: None,
            stream: asked.stream,
            policy: asked.policy(),
            conversation: Some(self.context.task_id.to_string()),
        }
    }

    /// The result of a session whose last turn asks for nothing more.
    fn end(&self, turn: &Turn) -> Result<Value, TaskError> {
        if let Some(flaw) = &turn.flaw
            && flaw.class == ErrorClass::AnswerInvalid
            && self.asked.on_invalid != OnInvalid::Accept
        {
            return Err(TaskError::Permanent(Failure::new(
                flaw.class,
                self.context.redact(&flaw.message),
            )));
        }
        let (usage, cost_micro) = self.told.spent();
        let text = &turn.text;
        let mut result = json!({
            "answer": text,
            "model": turn.model,
            "turns": self.told.turns.len(),
            "tool_calls": self.told.tool_calls(),
            "usage": usage_json(usage, cost_micro),
            "finish_reason": turn.finish_reason,
        });
        let answer = ChatAnswer { text: text.clone(), ..ChatAnswer::default() };
        if self.question().wants_json()
            && let Ok(value) = answer.json()
        {
            result["json"] = value;
        }
        if let Some(flaw) = &turn.flaw {
            result["flaw"] = json!({"class": flaw.class, "message": flaw.message});
        }
        // Kept steps may be older than a secret of the configuration.
        Ok(self.context.redacted(result))
    }
}

/// A reply as its step keeps it.
fn turn_of(reply: Reply) -> Turn {
    let answer = reply.answer;
    let flaw = reply.flaw.map(|flaw| Flaw { class: flaw.class(), message: flaw.to_string() });
    Turn {
        text: answer.text,
        tool_calls: answer.tool_calls,
        finish_reason: answer.finish_reason,
        model: answer.model,
        flaw,
        usage: reply.usage,
        cost_micro: reply.cost_micro,
    }
}
