//! The journal of model calls: a row before each call, the answer before the step goes on.
//!
//! It never calls a model; `worker::llm` does, between `call_admit` and `call_ended`.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;
use crate::domain::attempt::ClaimToken;
use crate::domain::outcome::Failure;
use crate::domain::quota::{OverBudget, Reason, Scope};
use crate::domain::room::{Need, Room};
use crate::domain::task::TaskId;

/// Calls under way at most to a model that has not answered yet.
pub const UNTRIED_CALLS: i32 = 4;
/// Time in which a provider says no: a model that has said nothing for so long is not refusing.
pub const UNTRIED_FOR: Duration = Duration::from_secs(5);

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
    /// Span of its admission, until its end names its own.
    pub traceparent: Option<String>,
    /// Input and output tokens at most, by estimate.
    pub est_tokens: i64,
    /// Their cost in millionths of a US dollar; `None` without a price.
    pub est_cost_micro: Option<i64>,
}

/// What became of the wish to call.
#[derive(Clone, Debug)]
pub enum Admission {
    /// It is in the journal and counted: send it now.
    Granted,
    /// Not now; nothing is written but who waits.
    Denied(Denial),
    /// Another attempt has the task.
    Fenced,
}

/// Why a call is not admitted.
#[derive(Clone, Debug)]
pub struct Denial {
    /// Whose quota.
    pub scope: Scope,
    /// Its name.
    pub name: String,
    /// Which limit.
    pub reason: Reason,
    /// When it is this call's turn to ask again: never before the limit allows it, and for each
    /// that waits another moment.
    pub wait: Duration,
    /// What a spent budget makes of the task.
    pub over_budget: OverBudget,
    /// The words of the provider that closed the model.
    pub said: Option<String>,
    /// When the day of its budget ends.
    pub resets_at: DateTime<Utc>,
    /// What there is room for.
    pub room: Room,
}

/// For how long an answer closes its model for the whole fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// For so long; then one call probes.
    For(Duration),
    /// The same, where the provider names no time: after each probe that hears it again, twice as
    /// long as before and at most so long.
    Growing {
        /// The first time.
        from: Duration,
        /// The last.
        most: Duration,
    },
    /// Until an operator opens it.
    UntilOpened,
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
    /// The answer; `None` for a failure. With a failure beside it, it is kept and was not what was
    /// asked for.
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
    /// The answer closes the model.
    pub closes: Option<Closing>,
    /// Its chat span.
    pub traceparent: Option<String>,
}

/// A call of a step, as the journal has it.
#[derive(Clone, Debug)]
pub struct StepCall {
    /// Number within the step.
    pub call_no: u32,
    /// Attempt that asked.
    pub run: u32,
    /// SHA-256 of endpoint and request.
    pub request_hash: Vec<u8>,
    /// sent, done, failed or unknown.
    pub state: String,
    /// Model asked for.
    pub model: String,
    /// Model that answered.
    pub response_model: Option<String>,
    /// Tokens in; `None` where none are known.
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
    /// Class of a failure, or of an answer that was not what was asked for.
    pub error_class: Option<String>,
    /// It began after the task's last replay.
    pub recent: bool,
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

    /// Every call of a step in all attempts, oldest first.
    pub async fn step_calls(&self, task: TaskId, step: &str) -> Result<Vec<StepCall>, Error> {
        let rows = self.query(include_str!("sql/step_calls.sql"), &[&task.0, &step]).await?;
        let call = |row: &Row| StepCall {
            call_no: row.get::<_, i32>("call_no") as u32,
            run: row.get::<_, i32>("run") as u32,
            request_hash: row.get("request_hash"),
            state: row.get("state"),
            model: row.get("model"),
            response_model: row.get("response_model"),
            input_tokens: row.get("input_tokens"),
            output_tokens: row.get("output_tokens"),
            cached_tokens: row.get("cached_tokens"),
            reasoning_tokens: row.get("reasoning_tokens"),
            usage_estimated: row.get("usage_estimated"),
            cost_micro: row.get("cost_micro"),
            error_class: row.get("error_class"),
            recent: row.get("recent"),
        };
        Ok(rows.iter().map(call).collect())
    }

    /// Admits a call by all of its limits and writes it, in one statement; or says what stands in
    /// the way. A model that nobody has asked before gets its row on the way. Safe to repeat with
    /// the same call until it answers.
    pub async fn call_admit(&self, at: CallStart<'_>, call: &NewCall) -> Result<Admission, Error> {
        let mut collided = false;
        loop {
            let asked = self
                .query_opt(
                    include_str!("sql/call_admit.sql"),
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
                        &call.est_tokens,
                        &call.est_cost_micro,
                        &UNTRIED_CALLS,
                        &millis(UNTRIED_FOR),
                    ],
                )
                .await;
            let row = match asked {
                // A repeat that met its own first asking, which was not yet over: now it is.
                Err(error) if error.code() == Some("23505") && !collided => {
                    collided = true;
                    continue;
                }
                answer => answer?,
            };
            let Some(row) = row else { return Ok(Admission::Fenced) };
            if row.get("known") {
                let admission = admission_of(&row)?;
                if let Admission::Denied(denial) = &admission
                    && row.get("untold")
                {
                    self.tell_spent(denial, call, &row).await?;
                }
                return Ok(admission);
            }
            self.query(include_str!("sql/quota_known.sql"), &[&call.model]).await?;
        }
    }

    /// Tells that a budget has no room for a call, unless somebody has told it on this day. Should the
    /// process die before, the next who is not let in tells it.
    async fn tell_spent(&self, denial: &Denial, call: &NewCall, row: &Row) -> Result<(), Error> {
        let day: Option<NaiveDate> = row.get("today");
        let Denial { scope, name, .. } = denial;
        let need = Need { tokens: call.est_tokens, cost_micro: call.est_cost_micro };
        let until: &str = row.get("tomorrow_there");
        let text = denial.room.alert((*scope, name), need, &denial.over_budget, until);
        let told = include_str!("sql/budget_told.sql");
        self.query(told, &[&scope.as_str(), name, &day, &text]).await.map(drop)
    }

    /// Writes how a call ended.
    pub async fn call_ended(&self, id: Uuid, end: &CallEnd) -> Result<(), Error> {
        let state = match (&end.response, end.unknown) {
            (Some(_), _) => "done",
            (None, true) => "unknown",
            (None, false) => "failed",
        };
        let closes_ms = match end.closes {
            Some(Closing::For(wait) | Closing::Growing { from: wait, .. }) => Some(millis(wait)),
            Some(Closing::UntilOpened) | None => None,
        };
        let grows_to_ms = match end.closes {
            Some(Closing::Growing { most, .. }) => Some(millis(most)),
            _ => None,
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
                &closes_ms,
                &(end.closes == Some(Closing::UntilOpened)),
                &end.traceparent,
                &grows_to_ms,
            ],
        )
        .await
        .map(drop)
    }
}

fn admission_of(row: &Row) -> Result<Admission, Error> {
    if row.get("granted") {
        return Ok(Admission::Granted);
    }
    let text = |column: &str| -> Result<String, Error> {
        let text: Option<String> = row.get(column);
        text.ok_or_else(|| Error::row(format!("a denial without {column}")))
    };
    let number = |column: &str| row.get::<_, Option<i64>>(column).unwrap_or(0);
    let resets_at: Option<DateTime<Utc>> = row.get("tomorrow");
    Ok(Admission::Denied(Denial {
        scope: text("scope")?.parse().map_err(Error::row)?,
        name: text("name")?,
        reason: text("reason")?.parse().map_err(Error::row)?,
        wait: Duration::from_millis(row.get::<_, Option<i64>>("wait_ms").unwrap_or(0).max(0) as u64),
        over_budget: text("over_budget")?.parse().map_err(Error::row)?,
        said: row.get("closed_reason"),
        resets_at: resets_at.ok_or_else(|| Error::row("a denial without a day"))?,
        room: Room {
            tokens_per_minute: row.get("tokens_per_minute"),
            daily_tokens: row.get("daily_tokens"),
            used_tokens: number("used_tokens"),
            held_tokens: number("held_tokens"),
            daily_cost_micro: row.get("daily_cost_micro"),
            used_cost_micro: number("used_cost_micro"),
            held_cost_micro: number("held_cost_micro"),
        },
    }))
}
