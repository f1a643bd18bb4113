//! Asking one model once: stored answer, else journal, span, request, journal.

use std::time::Duration;

use serde_json::{Value, json};
use shared::domain::outcome::{ErrorClass, Failure, TaskError};
use shared::llm::{AnswerFault, ChatAnswer, ChatRequest, LlmError, OnEmpty, Prepared, ToolCall};
use shared::store::CallEnd;
use shared::telemetry::captures_content;
use shared::telemetry::metrics::{self, ChatMeasures};
use shared::telemetry::spans::{self, Chat, Server, Span};
use tokio::time::Instant;
use tracing::warn;
use uuid::Uuid;

use super::admit::closing;
use crate::context::{Context, answered};

/// How often a question may be asked again after a call whose outcome nobody knows.
pub const UNKNOWN_BUDGET: u32 = 1;
/// How often a question may be asked again after an answer that was paid and empty.
pub const EMPTY_BUDGET: u32 = 1;
/// Left of the attempt's time when a call is given up, so that its end can still be written; at most
/// a tenth of it.
const MARGIN: Duration = Duration::from_secs(2);

impl Context {
    /// One question to one model: a stored answer to the same question of the same step, else one
    /// call, which is in the journal before it is sent. The answer is not judged.
    ///
    /// A call without an answer is repeated at most `UNKNOWN_BUDGET` times over all attempts, one that
    /// was paid and empty `EMPTY_BUDGET` times; a replay by hand begins a new count.
    pub(super) async fn question(
        &self,
        step: &str,
        call: &Prepared<'_>,
    ) -> Result<ChatAnswer, Failed> {
        let store = &self.house.store;
        let known = answered(|| store.call_answer(self.task_id, step, &call.hash)).await?;
        if let Some(stored) = known.response
            && let Ok(answer) = serde_json::from_value::<ChatAnswer>(stored)
        {
            metrics::chat_reused(&call.model);
            return Ok(answer);
        }
        if known.unknown > UNKNOWN_BUDGET {
            let cause = "an earlier call was sent and its answer never stored";
            return Err(unknown_for_good(cause).into());
        }
        let empty_budget = match call.request.policy.on_empty {
            OnEmpty::Again => EMPTY_BUDGET,
            OnEmpty::Fallback | OnEmpty::Fail => 0,
        };
        if known.wasted > empty_budget {
            let times = format!("{} times", known.wasted);
            return Err(Failed::Spent(LlmError::Answer(AnswerFault::Empty(times))));
        }

        let mut asked = self.ask_any(step, call, known.calls + 1).await;
        if matches!(asked, Err(Failed::Llm(LlmError::LimitName { .. }))) {
            // Once, since from now on the model is known to want the other name.
            asked = self.ask_any(step, call, known.calls + 2).await;
        }
        match asked {
            Err(Failed::Llm(error))
                if error.outcome_unknown() && known.unknown >= UNKNOWN_BUDGET =>
            {
                Err(unknown_for_good(&error.to_string()).into())
            }
            Err(Failed::Llm(error @ LlmError::Answer(_))) if known.wasted >= empty_budget => {
                Err(Failed::Spent(error))
            }
            asked => asked,
        }
    }

    /// One physical call, admitted before and settled after.
    pub(super) async fn ask(
        &self,
        step: &str,
        call: &Prepared<'_>,
        number: u32,
    ) -> Result<ChatAnswer, Failed> {
        let left = || self.time_left().saturating_sub(MARGIN.min(self.timeout / 10));
        if left().is_zero() {
            let failure = Failure::new(ErrorClass::Timeout, "no time was left to ask the model");
            return Err(Failed::House(TaskError::Retry { failure, after: None }));
        }
        let (id, waited) = self.admit(step, call, number).await?;
        let call_id = id.to_string();
        let span = spans::chat(&Chat {
            model: &call.model,
            provider: call.endpoint.provider(),
            server: Some(server(call)),
            max_tokens: call.request.max_tokens,
            temperature: call.request.temperature,
            stream: call.request.stream,
            seed: call.request.seed,
            reasoning_effort: call.request.reasoning_effort.as_deref(),
            json: call.request.wants_json(),
            conversation: call.request.conversation.as_deref(),
            step: call.request.conversation.is_some().then_some(step),
            call_id: Some(&call_id),
            waited,
        });
        let traceparent = span.traceparent();
        let started = Instant::now();
        let deadline = started + self.house.models.timeout().min(left());
        let asked = self.house.models.ask(call, id, traceparent.as_deref(), deadline);
        // Answer or error, no secret is left in it.
        let answer = span.in_scope(asked).await;
        self.tell(&span, call, &answer, started.elapsed());
        let end = CallEnd { traceparent, ..self.end_of(call, &answer) };
        self.keep(id, &end).await?;
        let answer = answer?;
        match answer.fault(call.request) {
            // Nothing to store, so that it may be asked once more.
            Some(fault @ AnswerFault::Empty(_)) => Err(LlmError::Answer(fault).into()),
            _ => Ok(answer),
        }
    }

    /// Span and metrics of an ended call.
    fn tell(
        &self,
        span: &Span,
        call: &Prepared<'_>,
        answer: &Result<ChatAnswer, LlmError>,
        took: Duration,
    ) {
        let told = answer.as_ref().ok().map(|answer| self.told(call, answer));
        let mut error_type = answer.as_ref().err().map(LlmError::error_type);
        match answer {
            Ok(answer) => {
                if let Some(told) = &told {
                    span.chat_answer(told);
                }
                if captures_content() {
                    let (input, output) = contents(call.request, answer);
                    span.chat_content(&self.redacted(input), &output);
                }
                if let Some(said) = &answer.usage_doubted {
                    let (task, model) = (self.task_id, &call.model);
                    warn!(task.id = %task, llm.model = %model, said,
                        "the endpoint names a usage that cannot be; our estimate counts instead");
                }
                // Paid and of no use; the words may be the model's own, so they stay in the row.
                if let Some(fault) = answer.fault(call.request) {
                    let class = fault.class().as_str();
                    span.fail(class, "");
                    error_type = Some(class.to_owned());
                }
            }
            Err(error) => span.fail(&error.error_type(), error.to_string()),
        }
        metrics::chat_ended(&ChatMeasures {
            model: &call.model,
            provider: call.endpoint.provider(),
            server: Some(server(call)),
            took,
            answer: told.as_ref(),
            error_type: error_type.as_deref(),
        });
    }

    fn told(&self, call: &Prepared<'_>, answer: &ChatAnswer) -> spans::ChatAnswer {
        let usage = answer.usage;
        let count = |tokens: Option<i64>| tokens.and_then(|tokens| u64::try_from(tokens).ok());
        let cost = self.house.models.cost_micro(&call.model, &usage);
        spans::ChatAnswer {
            id: answer.id.clone(),
            model: Some(answer.model.clone()),
            finish_reasons: answer.finish_reason.iter().cloned().collect(),
            input_tokens: count(Some(usage.input_tokens)),
            output_tokens: count(Some(usage.output_tokens)),
            cache_read_tokens: count(usage.cached_tokens),
            reasoning_tokens: count(usage.reasoning_tokens),
            fingerprint: answer.fingerprint.clone(),
            first_chunk: answer.pace.first,
            chunk_gaps: answer.pace.gaps.clone(),
            cost_usd: cost.map(|micro| micro as f64 / 1e6),
            attempts: 1,
            ..spans::ChatAnswer::default()
        }
    }

    /// Writes the end of a call. It holds on while the store is away: the answer is paid, and a
    /// lost one would be paid again.
    async fn keep(&self, id: Uuid, end: &CallEnd) -> Result<(), Failed> {
        Ok(answered(|| self.house.store.call_ended(id, end)).await?)
    }

    fn end_of(&self, call: &Prepared<'_>, answer: &Result<ChatAnswer, LlmError>) -> CallEnd {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                return CallEnd {
                    unknown: error.outcome_unknown(),
                    failure: Some(Failure::new(error.class(), error.to_string())),
                    closes: closing(error),
                    ..CallEnd::default()
                };
            }
        };
        let usage = answer.usage;
        let fault = answer.fault(call.request);
        let empty = matches!(fault, Some(AnswerFault::Empty(_)));
        let failure = fault.map(|fault| {
            // The model's own words are in the row and nowhere else: traces and alerts get the class.
            let words = answer.refusal.as_deref().map(|words| format!(": {words}"));
            let message = format!("{fault}{}", words.unwrap_or_default());
            Failure::new(fault.class(), message)
        });
        CallEnd {
            response: (!empty).then(|| json!(answer)),
            response_model: Some(answer.model.clone()),
            input_tokens: Some(usage.input_tokens),
            output_tokens: Some(usage.output_tokens),
            cached_tokens: usage.cached_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            usage_estimated: usage.estimated,
            cost_micro: self.house.models.cost_micro(&call.model, &usage),
            failure,
            ..CallEnd::default()
        }
    }
}

/// Why a question brought nothing.
pub(super) enum Failed {
    /// The model's side.
    Llm(LlmError),
    /// The same, and its budget is used up: not to be asked again by itself.
    Spent(LlmError),
    /// Ours.
    House(TaskError),
    /// A spent budget sends to another model; `otherwise` where that way is a circle.
    Instead { model: String, otherwise: TaskError },
}

impl From<LlmError> for Failed {
    fn from(error: LlmError) -> Self {
        Self::Llm(error)
    }
}

impl From<TaskError> for Failed {
    fn from(error: TaskError) -> Self {
        Self::House(error)
    }
}

fn server<'a>(call: &Prepared<'a>) -> Server<'a> {
    Server { host: call.endpoint.host(), port: call.endpoint.port() }
}

fn unknown_for_good(cause: &str) -> TaskError {
    TaskError::Permanent(Failure::new(
        ErrorClass::UnknownOutcome,
        format!(
            "{cause}; it was asked {} times, and asking again could be a second bill: replay the \
             task to ask once more",
            UNKNOWN_BUDGET + 1
        ),
    ))
}

/// Conversation and answer by the conventions' schema.
fn contents(request: &ChatRequest, answer: &ChatAnswer) -> (Value, Value) {
    let parts = |content: &str, calls: &[ToolCall]| {
        let text = (!content.is_empty()).then(|| json!({"type": "text", "content": content}));
        let calls = calls.iter().map(|call| {
            json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
        });
        text.into_iter().chain(calls).collect::<Vec<_>>()
    };
    let input = request.messages.iter().map(|message| match &message.tool_call_id {
        Some(id) => json!({"role": message.role, "parts": [
            {"type": "tool_call_response", "id": id, "response": message.content}]}),
        None => {
            json!({"role": message.role, "parts": parts(&message.content, &message.tool_calls)})
        }
    });
    let output = json!([{
        "role": "assistant",
        "parts": parts(&answer.text, &answer.tool_calls),
        "finish_reason": answer.finish_reason,
    }]);
    (input.collect(), output)
}
