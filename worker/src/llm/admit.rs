//! The fleet's quotas before a call, and what a provider's answer means for the whole fleet.
//!
//! A short wait is spent in the slot; a longer one gives the task back until its turn, at no cost. The
//! database decides and counts; nothing is limited in this process alone.

use std::time::Duration;

use rand::Rng;
use serde_json::json;
use shared::domain::outcome::TaskError;
use shared::domain::quota::{OverBudget, Reason};
use shared::domain::room::Need;
use shared::llm::{ChatAnswer, ChatRequest, DEFAULT_WAIT, LlmError, Prepared, TokenUsage};
use shared::retry::Pauses;
use shared::store::{Admission, CallStart, Closing, Denial, NewCall};
use shared::telemetry::names::belfry;
use shared::telemetry::{metrics, spans};
use tokio::time::Instant;
use uuid::Uuid;

use super::chat::Failed;
use crate::context::{Context, claim_lost};

/// Longest time that a task waits for its turn in its slot.
pub const SLOT_WAIT: Duration = Duration::from_secs(5);
/// The same while the provider has closed the model: those who wait for it must not hold the slots
/// that other models' tasks could use.
pub const CLOSED_SLOT_WAIT: Duration = Duration::from_secs(1);
/// Most that is added to a wait, so that no two workers come back in the same instant.
const LATER: Duration = Duration::from_secs(1);
/// Longest pause between two probes of a model that limits the rate and names no time.
const LONGEST_PROBE_PAUSE: Duration = Duration::from_mins(5);
/// Output tokens of a question that names no limit.
const ASSUMED_OUTPUT: i64 = 4096;
/// Tokens around each message.
const FRAME_TOKENS: i64 = 8;

impl Context {
    /// Asks the model, or the one that a spent budget names instead, and so on.
    pub(super) async fn ask_any(
        &self,
        step: &str,
        call: &Prepared<'_>,
        number: u32,
    ) -> Result<ChatAnswer, Failed> {
        let mut asked = self.ask(step, call, number).await;
        let mut tried = vec![call.model.clone()];
        while let Err(Failed::Instead { model, .. }) = &asked {
            if tried.contains(model) {
                // In a circle: the last one's `otherwise` counts.
                return asked;
            }
            tried.push(model.clone());
            let request = ChatRequest { model: Some(model.clone()), ..call.request.clone() };
            // Under the hash of what the handler asked, so that a later attempt finds the answer.
            let other =
                Prepared { hash: call.hash.clone(), ..self.house.models.prepare(&request)? };
            asked = self.ask(step, &other, number).await;
        }
        asked
    }

    /// Lets a call in and writes it to the journal; answers its id and how long it waited. Nothing is
    /// sent without.
    pub(super) async fn admit(
        &self,
        step: &str,
        call: &Prepared<'_>,
        number: u32,
    ) -> Result<(Uuid, Duration), Failed> {
        let (input, output) = estimate(call.request);
        let span = spans::admit(&call.model, input + output);
        let most =
            TokenUsage { input_tokens: input, output_tokens: output, ..TokenUsage::default() };
        let new = NewCall {
            id: Uuid::new_v4(),
            call_no: number,
            request_hash: call.hash.clone(),
            endpoint: call.endpoint.target(),
            model: call.model.clone(),
            traceparent: span.traceparent(),
            est_tokens: input + output,
            est_cost_micro: self.house.models.cost_micro(&call.model, &most),
        };
        let started = Instant::now();
        let admitted = self.wait_for_turn(step, &new, started).await;
        let waited = started.elapsed();
        span.set(belfry::QUOTA_WAIT_MS, i64::try_from(waited.as_millis()).unwrap_or(i64::MAX));
        metrics::quota_wait(&call.model, waited);
        let denial = match admitted {
            Ok(None) => {
                span.set(belfry::QUOTA_OUTCOME, "granted");
                return Ok((new.id, waited));
            }
            Ok(Some(denial)) => denial,
            Err(error) => return Err(Failed::House(error)),
        };
        span.set(belfry::QUOTA_OUTCOME, if is_final(&denial) { "denied" } else { "wait" });
        span.set(belfry::QUOTA_REASON, denial.reason.as_str());
        Err(sent_away(&denial, &new))
    }

    /// `None` once the call is in; else why it is not, when the wait is too long for a slot.
    async fn wait_for_turn(
        &self,
        step: &str,
        new: &NewCall,
        started: Instant,
    ) -> Result<Option<Denial>, TaskError> {
        let at = CallStart { task: self.task_id, token: self.token, step };
        let patience = SLOT_WAIT.min(self.time_left() / 2);
        let mut pauses = Pauses::new();
        loop {
            let pause = match self.house.store.call_admit(at, new).await {
                Ok(Admission::Granted) => return Ok(None),
                Ok(Admission::Fenced) => return Err(claim_lost()),
                Ok(Admission::Denied(denial)) => {
                    metrics::quota_denied(&new.model, denial.reason.as_str());
                    let pause = later(denial.wait);
                    let left = slot_wait(denial.reason).min(patience);
                    if started.elapsed() + pause > left {
                        return Ok(Some(denial));
                    }
                    pause
                }
                // Away, or a row that was locked for too long: no failure of the work, and safe to
                // repeat. What bounds it is the attempt's own time.
                Err(error) if error.is_outage() => pauses.next_pause(),
                Err(error) => return Err(TaskError::retry(error)),
            };
            tokio::time::sleep(pause).await;
        }
    }
}

/// How long a slot may be held for it.
fn slot_wait(reason: Reason) -> Duration {
    match reason {
        Reason::Held | Reason::InFlight | Reason::Untried | Reason::Requests | Reason::Tokens => {
            SLOT_WAIT
        }
        Reason::Closed | Reason::Probing => CLOSED_SLOT_WAIT,
        Reason::Unpriced | Reason::TooLarge | Reason::DailyTokens | Reason::DailyCost => {
            Duration::ZERO
        }
    }
}

fn is_final(denial: &Denial) -> bool {
    slot_wait(denial.reason).is_zero()
}

/// A wait and a little more, never less.
fn later(wait: Duration) -> Duration {
    wait + LATER.min(wait / 5).mul_f64(rand::rng().random_range(0.0..=1.0))
}

/// What becomes of a task whose call is not let in.
fn sent_away(denial: &Denial, call: &NewCall) -> Failed {
    let (scope, name) = (denial.scope.as_str(), &denial.name);
    let need = Need { tokens: call.est_tokens, cost_micro: call.est_cost_micro };
    let never = |what: String| Failed::House(TaskError::permanent(what));
    let not_now = |what: String| TaskError::snooze(later(denial.wait), what);
    match denial.reason {
        Reason::Unpriced => never(format!(
            "the {scope} {name} has a budget of money, and model {} has no price; add it to model.prices",
            call.model
        )),
        Reason::TooLarge => never(format!(
            "the call can never fit into the limits of the {scope} {name}: {}; raise them, or ask \
             for less (max_tokens)",
            denial.room.ever(need)
        )),
        Reason::DailyTokens | Reason::DailyCost => {
            let what = format!("the {}", denial.room.spent(denial.scope, name, need));
            let until = denial.resets_at.to_rfc3339();
            let parked = not_now(format!("{what}; the task is parked until {until}"));
            match &denial.over_budget {
                OverBudget::Park => Failed::House(parked),
                OverBudget::Dead => {
                    never(format!("{what}; its policy is dead, and its day ends at {until}"))
                }
                OverBudget::Downgrade(model) => {
                    Failed::Instead { model: model.clone(), otherwise: parked }
                }
            }
        }
        Reason::Closed | Reason::Probing => {
            let said = denial.said.as_deref().unwrap_or_default();
            Failed::House(not_now(format!(
                "model {name} is closed for the whole fleet since its provider said: {said}"
            )))
        }
        Reason::Held => Failed::House(not_now(format!(
            "calls under way hold what is left of the daily budget of the {scope} {name}: {}",
            denial.room.today(need)
        ))),
        Reason::Untried => Failed::House(not_now(format!(
            "model {name} has not answered anybody yet, and the first calls to it are under way"
        ))),
        Reason::InFlight | Reason::Requests | Reason::Tokens => {
            let limit = match denial.reason {
                Reason::InFlight => "calls at a time",
                Reason::Requests => "requests a minute",
                _ => "tokens a minute",
            };
            Failed::House(not_now(format!("the {scope} {name} has no {limit} left")))
        }
    }
}

/// For how long an error closes its model for everybody.
pub(super) fn closing(error: &LlmError) -> Option<Closing> {
    match error {
        LlmError::RateLimited { after: Some(wait), .. } => Some(Closing::For(*wait)),
        LlmError::RateLimited { after: None, .. } => {
            Some(Closing::Growing { from: DEFAULT_WAIT, most: LONGEST_PROBE_PAUSE })
        }
        LlmError::OutOfQuota { .. } | LlmError::Unauthorized { .. } | LlmError::Expired { .. } => {
            Some(Closing::UntilOpened)
        }
        _ => None,
    }
}

/// Input and output tokens at most. Providers admit by the limit of the answer, not by its length.
fn estimate(request: &ChatRequest) -> (i64, i64) {
    let said = request.messages.iter().map(|message| {
        let tools =
            message.tool_calls.iter().map(|call| tokens(&json!(call).to_string())).sum::<i64>();
        tokens(&message.content) + tools + FRAME_TOKENS
    });
    let tools = request.tools.iter().map(|tool| tokens(&json!(tool).to_string()));
    let format = request.response_format.iter().map(|format| tokens(&format.to_string()));
    let input = said.chain(tools).chain(format).sum();
    (input, request.max_tokens.map_or(ASSUMED_OUTPUT, i64::from))
}

/// Four characters of ASCII, or one of any other script.
fn tokens(text: &str) -> i64 {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let others = text.chars().count() - ascii;
    (ascii.div_ceil(4) + others) as i64
}

#[cfg(test)]
mod tests {
    use shared::domain::outcome::ErrorClass;
    use shared::domain::quota::Scope;
    use shared::domain::room::Room;

    use super::*;
    use shared::llm::{Message, Tool};

    fn denial(reason: Reason, over_budget: OverBudget) -> Denial {
        Denial {
            scope: Scope::Model,
            name: "m".to_owned(),
            reason,
            wait: Duration::from_secs(100),
            over_budget,
            said: Some("slow down".to_owned()),
            resets_at: "2026-12-01T00:00:00Z".parse().expect("an instant"),
            room: Room::default(),
        }
    }

    /// What becomes of the task, in a word.
    fn fate(reason: Reason, over_budget: OverBudget) -> &'static str {
        let call = NewCall {
            id: Uuid::nil(),
            call_no: 1,
            request_hash: Vec::new(),
            endpoint: "h:1".to_owned(),
            model: "m".to_owned(),
            traceparent: None,
            est_tokens: 100,
            est_cost_micro: None,
        };
        match sent_away(&denial(reason, over_budget), &call) {
            Failed::House(TaskError::Permanent(_)) => "dead",
            Failed::House(TaskError::Snooze { delay, failure }) => {
                assert!(delay >= Duration::from_secs(100), "never early: {delay:?}");
                assert_eq!(failure.class, ErrorClass::Throttled);
                "waits"
            }
            Failed::Instead { otherwise: TaskError::Snooze { .. }, .. } => "asks another",
            Failed::Instead { .. } | Failed::House(_) | Failed::Llm(_) | Failed::Spent(_) => "?",
        }
    }

    #[test]
    fn who_is_not_let_in_waits_at_no_cost_unless_waiting_cannot_help() {
        for reason in Reason::ALL {
            let expected = match reason {
                Reason::Unpriced | Reason::TooLarge => "dead",
                _ => "waits",
            };
            assert_eq!(fate(reason, OverBudget::Park), expected, "{reason:?}");
        }
        assert_eq!(fate(Reason::DailyCost, OverBudget::Dead), "dead");
        assert_eq!(fate(Reason::DailyTokens, OverBudget::Downgrade("n".into())), "asks another");
        assert_eq!(fate(Reason::Requests, OverBudget::Dead), "waits", "a minute is no day");
    }

    #[test]
    fn a_turn_is_never_early_and_little_late() {
        let wait = Duration::from_secs(100);
        let turns: Vec<_> = (0..50).map(|_| later(wait)).collect();
        assert!(turns.iter().all(|turn| (wait..=wait + LATER).contains(turn)));
        assert!(turns.iter().any(|turn| *turn != turns[0]));
        assert!(later(Duration::from_millis(10)) <= Duration::from_millis(12));
    }

    #[test]
    fn an_estimate_counts_every_script_and_everything_that_is_sent() {
        let ask = |text: &str| ChatRequest {
            messages: vec![Message::user(text)],
            max_tokens: Some(10),
            ..ChatRequest::default()
        };
        assert_eq!(estimate(&ask("twelve chars")), (3 + FRAME_TOKENS, 10));
        assert_eq!(estimate(&ask("十二个字符的中文句子吧")), (11 + FRAME_TOKENS, 10));
        let tool = Tool { name: "a".to_owned(), ..Tool::default() };
        let offered = tokens(&json!(tool).to_string());
        let tools = ChatRequest { tools: vec![tool], ..ask("") };
        assert_eq!(estimate(&tools).0, offered + FRAME_TOKENS);
        let open = ChatRequest { max_tokens: None, ..ask("") };
        assert_eq!(estimate(&open).1, ASSUMED_OUTPUT);
    }

    #[test]
    fn only_answers_about_the_account_or_its_rate_close_a_model() {
        let target = || "h:1".to_owned();
        let message = || "no".to_owned();
        let limited = |after| LlmError::RateLimited { target: target(), message: message(), after };
        let hint = Duration::from_secs(3);
        assert_eq!(closing(&limited(Some(hint))), Some(Closing::For(hint)));
        let growing = Closing::Growing { from: DEFAULT_WAIT, most: LONGEST_PROBE_PAUSE };
        assert_eq!(closing(&limited(None)), Some(growing));
        let spent = LlmError::OutOfQuota { target: target(), message: message() };
        assert_eq!(closing(&spent), Some(Closing::UntilOpened));
        let upstream =
            LlmError::Upstream { target: target(), status: 500, message: message(), after: None };
        assert_eq!(closing(&upstream), None);
    }
}
