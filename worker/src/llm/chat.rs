//! Asking once: stored answer, else journal, span, request, journal.

use std::time::Duration;

use shared::domain::outcome::{ErrorClass, Failure, TaskError};
use shared::llm::{ChatAnswer, ChatRequest, LlmError, Prepared};
use shared::retry::Pauses;
use shared::store::{CallEnd, CallStart, NewCall};
use shared::telemetry::captures_content;
use shared::telemetry::metrics::{self, ChatMeasures};
use shared::telemetry::names::gen_ai;
use shared::telemetry::spans::{self, Chat, Server, Span};
use tokio::time::Instant;
use uuid::Uuid;

use crate::context::{Context, claim_lost, store_error};

/// How often a question may be asked again after a call whose outcome nobody knows.
pub const UNKNOWN_BUDGET: u32 = 1;
/// How often a question may be asked again after an answer that was paid and empty.
pub const EMPTY_BUDGET: u32 = 1;
/// Left of the attempt's time when a call is given up, so that its end can still be written; at most
/// a tenth of it.
const MARGIN: Duration = Duration::from_secs(2);

impl Context {
    /// Asks a model, once: a stored answer to the same question of the same step is returned
    /// instead, and what is asked is in the journal before it is sent.
    ///
    /// A call without an answer is repeated at most `UNKNOWN_BUDGET` times over all attempts;
    /// a replay by hand begins a new count.
    pub async fn chat(&self, step: &str, request: ChatRequest) -> Result<ChatAnswer, TaskError> {
        let models = self.house.models.clone();
        let call = models.prepare(&request)?;
        let store = &self.house.store;
        let known = store.call_answer(self.task_id, step, &call.hash).await.map_err(store_error)?;
        if let Some(stored) = known.response
            && let Ok(answer) = serde_json::from_value::<ChatAnswer>(stored)
        {
            metrics::chat_reused(&call.model);
            return Ok(answer.usable(&request)?);
        }
        if known.unknown > UNKNOWN_BUDGET {
            return Err(unknown_for_good("an earlier call was sent and its answer never stored"));
        }
        if known.wasted > EMPTY_BUDGET {
            return Err(empty_for_good());
        }

        let asked = self.ask(step, &call, known.calls + 1).await;
        let asked = match asked {
            // Once, since from now on the model is known to want the other name.
            Err(Failed::Llm(LlmError::LimitName { .. })) => {
                self.ask(step, &call, known.calls + 2).await
            }
            asked => asked,
        };
        match asked {
            Ok(answer) => Ok(answer.usable(&request)?),
            Err(Failed::Llm(error))
                if error.outcome_unknown() && known.unknown >= UNKNOWN_BUDGET =>
            {
                Err(unknown_for_good(&error.to_string()))
            }
            Err(Failed::Llm(LlmError::Empty(_))) if known.wasted >= EMPTY_BUDGET => {
                Err(empty_for_good())
            }
            Err(Failed::Llm(error)) => Err(error.into()),
            Err(Failed::House(error)) => Err(error),
        }
    }

    /// One physical call, in the journal before and after.
    async fn ask(
        &self,
        step: &str,
        call: &Prepared<'_>,
        number: u32,
    ) -> Result<ChatAnswer, Failed> {
        let left = self.time_left().saturating_sub(MARGIN.min(self.timeout / 10));
        if left.is_zero() {
            let failure = Failure::new(ErrorClass::Timeout, "no time was left to ask the model");
            return Err(Failed::House(TaskError::Retry { failure, after: None }));
        }
        let id = Uuid::new_v4();
        let call_id = id.to_string();
        let span = spans::chat(&Chat {
            model: &call.model,
            provider: call.endpoint.provider(),
            server: Some(server(call)),
            max_tokens: call.request.max_tokens,
            temperature: call.request.temperature,
            stream: false,
            conversation: call.request.conversation.as_deref(),
            call_id: Some(&call_id),
        });
        let traceparent = span.traceparent();
        let new = NewCall {
            id,
            call_no: number,
            request_hash: call.hash.clone(),
            endpoint: call.endpoint.target(),
            model: call.model.clone(),
            traceparent: traceparent.clone(),
        };
        let start = CallStart { task: self.task_id, token: self.token, step };
        if !self.house.store.call_sent(start, &new).await.map_err(store_error)? {
            return Err(Failed::House(claim_lost()));
        }

        let started = Instant::now();
        let deadline = started + self.house.models.timeout().min(left);
        let asked = self.house.models.ask(call, id, traceparent.as_deref(), deadline);
        let answer = span.in_scope(asked).await;
        self.tell(&span, call, &answer, started.elapsed());
        self.keep(id, call, &answer).await?;
        let answer = answer?;
        if answer.is_empty() && answer.finish_reason.as_deref() != Some("length") {
            return Err(LlmError::Empty("it may be asked once more".to_owned()).into());
        }
        Ok(answer)
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
        let error_type = answer.as_ref().err().map(LlmError::error_type);
        match answer {
            Ok(answer) => {
                if let Some(told) = &told {
                    span.chat_answer(told);
                }
                if captures_content() {
                    let (input, output) = contents(call.request, answer);
                    span.set(gen_ai::INPUT_MESSAGES, self.redact(&input));
                    span.set(gen_ai::OUTPUT_MESSAGES, self.redact(&output));
                }
            }
            Err(error) => span.fail(&error.error_type(), self.redact(&error.to_string())),
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
        let cost =
            self.house.models.cost_micro(&call.model, usage.input_tokens, usage.output_tokens);
        spans::ChatAnswer {
            id: answer.id.clone(),
            model: Some(answer.model.clone()),
            finish_reasons: answer.finish_reason.iter().cloned().collect(),
            input_tokens: count(Some(usage.input_tokens)),
            output_tokens: count(Some(usage.output_tokens)),
            cache_read_tokens: count(usage.cached_tokens),
            reasoning_tokens: count(usage.reasoning_tokens),
            cost_usd: cost.map(|micro| micro as f64 / 1e6),
            attempts: 1,
            ..spans::ChatAnswer::default()
        }
    }

    /// Writes the end of a call. It holds on while the store is away: the answer is paid, and a
    /// lost one would be paid again.
    async fn keep(
        &self,
        id: Uuid,
        call: &Prepared<'_>,
        answer: &Result<ChatAnswer, LlmError>,
    ) -> Result<(), Failed> {
        let end = self.end_of(call, answer);
        let mut pauses = Pauses::new();
        loop {
            match self.house.store.call_ended(id, &end).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_unreachable() => {
                    tracing::warn!(%error, "holding a model's answer until it can be stored");
                    tokio::time::sleep(pauses.next_pause()).await;
                }
                Err(error) => return Err(Failed::House(store_error(error))),
            }
        }
    }

    fn end_of(&self, call: &Prepared<'_>, answer: &Result<ChatAnswer, LlmError>) -> CallEnd {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let message = self.redact(&error.to_string());
                return CallEnd {
                    unknown: error.outcome_unknown(),
                    failure: Some(Failure::new(error.class(), message)),
                    ..CallEnd::default()
                };
            }
        };
        let usage = answer.usage;
        let empty = answer.is_empty() && answer.finish_reason.as_deref() != Some("length");
        CallEnd {
            response: (!empty).then(|| serde_json::json!(answer)),
            response_model: Some(answer.model.clone()),
            input_tokens: Some(usage.input_tokens),
            output_tokens: Some(usage.output_tokens),
            cached_tokens: usage.cached_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            usage_estimated: usage.estimated,
            cost_micro: self.house.models.cost_micro(
                &call.model,
                usage.input_tokens,
                usage.output_tokens,
            ),
            failure: empty.then(|| Failure::new(ErrorClass::Retryable, "the answer was empty")),
            unknown: false,
        }
    }
}

/// Why a call brought nothing: the model's side or ours.
enum Failed {
    Llm(LlmError),
    House(TaskError),
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

fn empty_for_good() -> TaskError {
    let times = EMPTY_BUDGET + 1;
    TaskError::permanent(format!(
        "the model was paid for {times} empty answers; replay to ask again"
    ))
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
fn contents(request: &ChatRequest, answer: &ChatAnswer) -> (String, String) {
    let part = |content: &str| serde_json::json!([{"type": "text", "content": content}]);
    let input: Vec<_> = request
        .messages
        .iter()
        .map(|message| serde_json::json!({"role": message.role, "parts": part(&message.content)}))
        .collect();
    let output = serde_json::json!([{
        "role": "assistant",
        "parts": part(&answer.text),
        "finish_reason": answer.finish_reason,
    }]);
    (serde_json::json!(input).to_string(), output.to_string())
}
