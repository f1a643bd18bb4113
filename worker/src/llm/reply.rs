//! What asking brought: the answer, and what all tries of it cost, as the journal has it.

use serde::Serialize;
use serde_json::{Value, json};
use shared::llm::{AnswerFault, ChatAnswer, TokenUsage};
use shared::store::StepCall;

/// An answer and its price.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The answer.
    pub answer: ChatAnswer,
    /// What is wrong with it, where the question's policy takes it all the same.
    pub flaw: Option<AnswerFault>,
    /// Tokens of all calls of the step, over all attempts.
    pub usage: TokenUsage,
    /// Millionths of a US dollar of all of them; `None` where none has a price.
    pub cost_micro: Option<i64>,
    /// The calls, oldest first.
    pub tries: Vec<Try>,
}

/// One call. JSON: its fields.
#[derive(Clone, Debug, Serialize)]
pub struct Try {
    /// Number within the step.
    pub call_no: u32,
    /// Attempt of the task that made it.
    pub run: u32,
    /// Model asked.
    pub model: String,
    /// Model that answered.
    pub response_model: Option<String>,
    /// done, failed, unknown, as in the journal.
    pub state: String,
    /// Why it was not enough.
    pub class: Option<String>,
    /// Tokens in.
    pub input_tokens: Option<i64>,
    /// Tokens out.
    pub output_tokens: Option<i64>,
}

impl Reply {
    /// From an answer and the step's journal.
    pub(super) fn new(answer: ChatAnswer, flaw: Option<AnswerFault>, calls: Vec<StepCall>) -> Self {
        let mut usage = TokenUsage::default();
        let mut cost_micro = None;
        for call in &calls {
            usage += TokenUsage {
                input_tokens: call.input_tokens.unwrap_or(0),
                output_tokens: call.output_tokens.unwrap_or(0),
                cached_tokens: call.cached_tokens,
                reasoning_tokens: call.reasoning_tokens,
                estimated: call.usage_estimated,
            };
            if let Some(cost) = call.cost_micro {
                cost_micro = Some(cost_micro.unwrap_or(0_i64).saturating_add(cost));
            }
        }
        Self { answer, flaw, usage, cost_micro, tries: calls.into_iter().map(Try::from).collect() }
    }

    /// Tokens and cost of all tries. JSON: `{"input_tokens", "output_tokens", "cached_tokens",
    /// "reasoning_tokens", "estimated", "cost_usd"}`; what is not known is left out.
    pub fn usage_json(&self) -> Value {
        usage_json(self.usage, self.cost_micro)
    }
}

/// Tokens and cost, as results tell them: see [`Reply::usage_json`].
pub(crate) fn usage_json(usage: TokenUsage, cost_micro: Option<i64>) -> Value {
    let mut told =
        json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens});
    let counts =
        [("cached_tokens", usage.cached_tokens), ("reasoning_tokens", usage.reasoning_tokens)];
    for (name, count) in counts {
        if let Some(count) = count {
            told[name] = count.into();
        }
    }
    if usage.estimated {
        told["estimated"] = true.into();
    }
    if let Some(micro) = cost_micro {
        told["cost_usd"] = (micro as f64 / 1e6).into();
    }
    told
}

impl From<StepCall> for Try {
    fn from(call: StepCall) -> Self {
        Self {
            call_no: call.call_no,
            run: call.run,
            model: call.model,
            response_model: call.response_model,
            state: call.state,
            class: call.error_class,
            input_tokens: call.input_tokens,
            output_tokens: call.output_tokens,
        }
    }
}
