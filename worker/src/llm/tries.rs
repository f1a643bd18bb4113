//! Asking until there is an answer that can be used: a few tries, each of them in the journal.
//!
//! A successor of a dead worker walks the same way over what is stored, and pays only for the rest.

use shared::domain::outcome::{ErrorClass, Failure, TaskError};
use shared::llm::{
    AnswerFault, ChatAnswer, ChatRequest, LlmError, Models, OnEmpty, OnRefused, StandIn,
};

use super::asking::Asking;
use super::chat::Failed;
use super::reply::Reply;
use crate::context::{Context, answered};

/// Calls that a model may fail, by being overloaded or out of reach, before another one stands in;
/// the task's last attempt does not wait for the second.
pub const OVERLOADED_TRIES: usize = 2;

impl Context {
    /// Asks a model and, where the answer is not what was asked for, does what the question's policy
    /// says: once with more room, once with a repair, or another model. A stored answer to the same
    /// question of the same step is never paid again.
    ///
    /// Each try is a call of its own in the journal, and the reply sums them up. A question that may
    /// not be asked again is a permanent failure; a replay by hand allows it again.
    pub async fn chat(&self, step: &str, request: ChatRequest) -> Result<Reply, TaskError> {
        let models = self.house.models.clone();
        let step = &self.step_name(step);
        let mut asking = Asking::new(&models, request)?;
        self.resume(step, &models, &mut asking).await?;
        loop {
            let call = models.prepare(asking.question())?;
            let hash = call.hash.clone();
            match self.question(step, &call).await {
                Ok(answer) => {
                    let Some(fault) = answer.fault(call.request) else {
                        let flaw = answer.flaw(call.request);
                        return self.reply(step, answer, flaw).await;
                    };
                    tell(&call.model, &fault);
                    if !asking.after(&answer, &fault) {
                        return Err(LlmError::Answer(fault).into());
                    }
                }
                Err(Failed::House(error) | Failed::Instead { otherwise: error, .. }) => {
                    return Err(error);
                }
                Err(Failed::Spent(error)) => instead(&mut asking, error, true)?,
                Err(Failed::Llm(error)) => {
                    let spent = self.is_spent(step, &hash, &error).await?;
                    instead(&mut asking, error, spent)?;
                }
            }
        }
    }

    /// Goes to the last model whose answer is stored: those before it have failed, and asking them
    /// again could pay for a second answer.
    async fn resume(
        &self,
        step: &str,
        models: &Models,
        asking: &mut Asking,
    ) -> Result<(), TaskError> {
        let mut found = None;
        for (at, question) in asking.stand_ins().rev() {
            // A model without an endpoint has answered nothing.
            let Ok(call) = models.prepare(&question) else { continue };
            let store = &self.house.store;
            let known = answered(|| store.call_answer(self.task_id, step, &call.hash)).await?;
            if known.response.is_some() {
                found = Some(at);
                break;
            }
        }
        if let Some(at) = found {
            asking.go_to(at);
        }
        Ok(())
    }

    /// True when the same question to the same model has failed often enough: by the error's own
    /// rule, or, where another model could stand in, by ours.
    async fn is_spent(&self, step: &str, hash: &[u8], error: &LlmError) -> Result<bool, TaskError> {
        if error.stand_in() != StandIn::AfterRetries {
            return Ok(false);
        }
        let calls = answered(|| self.house.store.step_calls(self.task_id, step)).await?;
        let retryable = ErrorClass::Retryable.as_str();
        let failures = calls.iter().filter(|call| {
            call.recent
                && call.request_hash == hash
                && call.error_class.as_deref() == Some(retryable)
        });
        let failures = failures.count();
        Ok(match error.again_at_most() {
            Some(again) => failures > again as usize,
            None => failures >= OVERLOADED_TRIES || self.is_last_attempt(),
        })
    }

    async fn reply(
        &self,
        step: &str,
        answer: ChatAnswer,
        flaw: Option<AnswerFault>,
    ) -> Result<Reply, TaskError> {
        let calls = answered(|| self.house.store.step_calls(self.task_id, step)).await?;
        Ok(Reply::new(answer, flaw, calls))
    }
}

/// Lets another model stand in, or fails with the error. `spent`: the same must not, or need not,
/// be asked again first.
fn instead(asking: &mut Asking, error: LlmError, spent: bool) -> Result<(), TaskError> {
    let policy = &asking.question().policy;
    let wanted = match &error {
        LlmError::Filtered { .. } => policy.on_refused == OnRefused::Fallback,
        LlmError::Answer(AnswerFault::Empty(_)) => spent && policy.on_empty != OnEmpty::Fail,
        other => match other.stand_in() {
            StandIn::Never => false,
            StandIn::AtOnce => true,
            StandIn::AfterRetries => spent,
        },
    };
    let model = asking.question().model.clone().unwrap_or_default();
    if wanted && asking.stand_in() {
        let instead = asking.question().model.as_deref().unwrap_or_default();
        tracing::warn!(llm.model = %model, llm.instead = %instead,
            "error.type" = %error.error_type(), "another model stands in");
        return Ok(());
    }
    Err(match error {
        LlmError::Answer(fault @ AnswerFault::Empty(_)) if !spent => TaskError::Retry {
            failure: Failure::new(fault.class(), format!("{fault}; it is asked once more")),
            after: None,
        },
        error if spent && error.again_at_most().is_some() => for_good(&error),
        LlmError::Answer(AnswerFault::Empty(_)) => for_good(&error),
        error => error.into(),
    })
}

/// One line for an answer that was paid and cannot be used; its words stay in the row.
fn tell(model: &str, fault: &AnswerFault) {
    tracing::warn!(llm.model = %model, "error.type" = fault.class().as_str(),
        "a paid answer cannot be used");
}

fn for_good(error: &LlmError) -> TaskError {
    let message = format!("{error}; asking again costs again: replay the task to ask once more");
    TaskError::Permanent(Failure::new(error.class(), message))
}
