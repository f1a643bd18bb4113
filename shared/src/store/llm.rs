//! The journal of model calls: a row before each call, the answer before the step goes on.
//!
//! It never calls a model; `worker::llm` does, between `call_sent` and `call_ended`.

use serde_json::Value;
use uuid::Uuid;

use super::connect::Store;
use super::error::Error;
use crate::domain::attempt::ClaimToken;
use crate::domain::outcome::Failure;
use crate::domain::task::TaskId;

/// What is known of a question before it is asked.
#[derive(Clone, Debug)]
pub struct StoredCall {
    /// A stored answer to exactly this question: use it.
    pub response: Option<Value>,
    /// Calls of this step so far; the next one has this number plus one.
    pub calls: u32,
    /// Of those with this question since the last replay, how many may have been billed without an
    /// answer.
    pub unknown: u32,
    /// Of those with this question since the last replay, how many were billed for nothing.
    pub wasted: u32,
}

/// A call about to go out.
#[derive(Clone, Debug)]
pub struct NewCall {
    /// Also the `Idempotency-Key`.
    pub id: Uuid,
    /// Number within the step.
    pub call_no: u32,
    /// SHA-256 of endpoint and request.
    pub request_hash: Vec<u8>,
    /// Host and port.
    pub endpoint: String,
    /// Model asked for.
    pub model: String,
    /// Its chat span.
    pub traceparent: Option<String>,
}

/// Where a call belongs.
#[derive(Clone, Copy, Debug)]
pub struct CallStart<'a> {
    /// Task.
    pub task: TaskId,
    /// Claim.
    pub token: ClaimToken,
    /// Step.
    pub step: &'a str,
}

/// How a call ended.
#[derive(Clone, Debug, Default)]
pub struct CallEnd {
    /// The answer; `None` for a failure.
    pub response: Option<Value>,
    /// True when nobody knows whether it was billed.
    pub unknown: bool,
    /// Model that answered.
    pub response_model: Option<String>,
    /// Tokens in.
    pub input_tokens: Option<i64>,
    /// Tokens out.
    pub output_tokens: Option<i64>,
    /// Of the input, cached.
    pub cached_tokens: Option<i64>,
    /// Of the output, reasoning.
    pub reasoning_tokens: Option<i64>,
    /// The tokens are our estimate.
    pub usage_estimated: bool,
    /// Millionths of a US dollar.
    pub cost_micro: Option<i64>,
    /// Why it failed.
    pub failure: Option<Failure>,
}

impl Store {
    /// What is known of a question: a stored answer, and the calls so far.
    pub async fn call_answer(
        &self,
        task: TaskId,
        step: &str,
        request_hash: &[u8],
    ) -> Result<StoredCall, Error> {
        let row = self
            .query_opt(include_str!("sql/call_answer.sql"), &[&task.0, &step, &request_hash])
            .await?
            .ok_or_else(|| Error::row("call_answer answered no row"))?;
        Ok(StoredCall {
            response: row.get("response"),
            calls: row.get::<_, i32>("calls") as u32,
            unknown: row.get::<_, i32>("unknown") as u32,
            wasted: row.get::<_, i32>("wasted") as u32,
        })
    }

    /// Writes that a call goes out; false when the claim is no longer ours.
    pub async fn call_sent(&self, at: CallStart<'_>, call: &NewCall) -> Result<bool, Error> {
        let row = self
            .query_opt(
                include_str!("sql/call_sent.sql"),
                &[
                    &call.id,
                    &at.task.0,
                    &at.token.0,
                    &at.step,
                    &(call.call_no as i32),
                    &call.request_hash,
                    &call.endpoint,
                    &call.model,
                    &call.traceparent,
                ],
            )
            .await?;
        Ok(row.is_some())
    }

    /// Writes how a call ended.
    pub async fn call_ended(&self, id: Uuid, end: &CallEnd) -> Result<(), Error> {
        let state = match (&end.response, end.unknown) {
            (Some(_), _) => "done",
            (None, true) => "unknown",
            (None, false) => "failed",
        };
        self.query(
            include_str!("sql/call_ended.sql"),
            &[
                &id,
                &state,
                &end.response,
                &end.response_model,
                &end.input_tokens,
                &end.output_tokens,
                &end.cached_tokens,
                &end.reasoning_tokens,
                &end.usage_estimated,
                &end.cost_micro,
                &end.failure.as_ref().map(|f| f.class.as_str()),
                &end.failure.as_ref().map(|f| f.message.as_str()),
            ],
        )
        .await
        .map(drop)
    }
}
