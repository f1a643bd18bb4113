//! Where a session ends, and where an attempt at it does.
//!
//! Limits end the session, for good unless somebody replays it. A slice ends the attempt: a session may
//! go on for hours, while messages are to be settled in minutes and deploys are not to wait for it.

use std::time::Duration;

use shared::domain::outcome::TaskError;
use shared::domain::payloads::{self, SessionLimits};
use shared::store::SessionSpent;
use tokio::time::Instant;

use crate::context::{Context, answered};
use crate::llm::{ChatRequest, TokenUsage};

/// Most steps of one attempt; then the session goes on in its next message.
pub const SLICE_STEPS: u32 = 10;
/// Longest time of one attempt, at most half of the task's timeout: the step under way must end too.
/// Far below any consumer timeout of the broker.
pub const SLICE_TIME: Duration = Duration::from_mins(2);

/// What the payload limits.
pub(super) struct Bounds(SessionLimits);

impl Bounds {
    pub fn of(asked: &payloads::AgentSession, context: &Context) -> Result<Self, TaskError> {
        let models = &context.house.models;
        let question = ChatRequest { model: asked.model.clone(), ..ChatRequest::default() };
        let model = models.model_of(&question)?;
        if asked.limits.cost.is_some() && models.cost_micro(model, &TokenUsage::default()).is_none()
        {
            return Err(TaskError::permanent(format!(
                "limits.cost is set, and model {model} has no price; add it to model.prices, or limit \
                 tokens instead"
            )));
        }
        Ok(Self(asked.limits.clone()))
    }

    /// Before each step: is there leave for one more?
    pub async fn check(&self, context: &Context) -> Result<(), TaskError> {
        let spent = answered(|| context.house.store.session_spent(context.task_id)).await?;
        self.judge(&spent).map_err(TaskError::permanent)
    }

    fn judge(&self, spent: &SessionSpent) -> Result<(), String> {
        let limits = &self.0;
        let reached = |limit: &str, used: String, allowed: String| {
            Err(format!(
                "the session has reached its limit of {limit}: {used} used, {allowed} allowed. Its \
                 steps are kept: `producer dead replay` goes on after the last one and allows as \
                 much once more; a new session takes a larger limits.{limit}"
            ))
        };
        if spent.steps >= limits.steps {
            return reached("steps", spent.steps.to_string(), limits.steps.to_string());
        }
        if let Some(allowed) = limits.tokens.filter(|allowed| spent.tokens >= *allowed) {
            return reached("tokens", spent.tokens.to_string(), allowed.to_string());
        }
        let cost = spent.cost_micro as f64 / 1e6;
        if let Some(allowed) = limits.cost.filter(|allowed| cost >= *allowed) {
            return reached("cost", format!("{cost:.6} USD"), format!("{allowed} USD"));
        }
        if let Some(allowed) = limits.wall_time.filter(|allowed| spent.elapsed >= *allowed) {
            let used = Duration::from_secs(spent.elapsed.as_secs());
            return reached("wall_time", format!("{used:?}"), format!("{allowed:?}"));
        }
        Ok(())
    }
}

/// The share of one attempt.
pub(super) struct Slice {
    began: Instant,
    longest: Duration,
    steps: u32,
}

impl Slice {
    pub fn begin(context: &Context) -> Self {
        let longest = SLICE_TIME.min(context.timeout / 2);
        Self { began: Instant::now(), longest, steps: 0 }
    }

    pub fn step(&mut self) {
        self.steps += 1;
    }

    /// Before each step: does it still belong to this attempt?
    pub fn check(&self, context: &Context) -> Result<(), TaskError> {
        let why = if context.is_draining() {
            "the worker was told to stop"
        } else if self.steps >= SLICE_STEPS {
            "its share of an attempt"
        } else if self.began.elapsed() >= self.longest {
            "its time of an attempt is over"
        } else {
            return Ok(());
        };
        let steps = self.steps;
        Err(TaskError::hand_over(format!("handed over after {steps} steps ({why}); it goes on")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(limits: SessionLimits, spent: SessionSpent, expected: &str) {
        let seen = Bounds(limits).judge(&spent).map_or_else(|error| error, |()| "ok".to_owned());
        assert!(seen.contains(expected), "{seen}");
    }

    #[test]
    fn each_limit_ends_a_session_and_says_what_to_do() {
        let none = SessionLimits::default;
        let spent = SessionSpent {
            steps: 19,
            tokens: 1000,
            cost_micro: 250_000,
            elapsed: Duration::from_millis(90_400),
        };
        check(none(), spent, "ok");
        let steps = SessionLimits { steps: 19, ..none() };
        check(steps.clone(), spent, "limit of steps: 19 used, 19 allowed");
        check(steps.clone(), spent, "producer dead replay");
        check(steps, spent, "a larger limits.steps");
        check(SessionLimits { tokens: Some(1001), ..none() }, spent, "ok");
        check(SessionLimits { tokens: Some(1000), ..none() }, spent, "1000 used, 1000 allowed");
        check(SessionLimits { cost: Some(0.3), ..none() }, spent, "ok");
        check(SessionLimits { cost: Some(0.25), ..none() }, spent, "0.250000 USD used");
        let wall_time =
            |seconds| SessionLimits { wall_time: Some(Duration::from_secs(seconds)), ..none() };
        check(wall_time(91), spent, "ok");
        check(wall_time(90), spent, "limit of wall_time: 90s used, 90s allowed");
    }
}
