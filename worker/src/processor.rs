//! The life of one message: claim, run, decide, record.
//!
//! It never meets AMQP: it gets a task's id and answers how to settle. An attempt runs inside its
//! walls: the identity's life, a cancel, a timeout, a panic net.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use serde_json::Value;
use shared::domain::attempt::{Attempt, ClaimToken};
use shared::domain::outcome::{self, ErrorClass, Failure, TaskError};
use shared::domain::task::TaskId;
use shared::failpoint;
use shared::relay::Relay;
use shared::shutdown::Shutdown;
use shared::store::{Claim, Completion, MOVED_BY_HAND, Recorded, Settlement, Store};
use shared::telemetry::spans::{self, Span};
use shared::telemetry::{metrics, names};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::context::{Context, House, claim_lost};
use crate::gate::{self, Gate, SOLO_AGAIN, Turn};
use crate::handler::Handlers;
use crate::heartbeat::{Heartbeat, Identity};
use crate::outage::Outage;
use crate::places::{STOP_PATIENCE, Slot};
use crate::slots::{Held, Listed, Slots};

/// A rolling deploy: a newer worker may know the type. Costs no failure.
pub const NO_HANDLER_DELAY: Duration = Duration::from_secs(30);
/// It doubles with each attempt that cost nothing, up to this: a type that nobody knows is no reason to
/// ask for ever at the pace of a deploy.
pub const LONGEST_NO_HANDLER_DELAY: Duration = Duration::from_mins(8);

/// Runs tasks. Clones share everything.
#[derive(Clone)]
pub struct Processor {
    /// Hot statements: claims and records.
    pub store: Store,
    /// What handlers share; its store is another, driven by the handlers' runtime.
    pub house: House,
    /// By task type.
    pub handlers: Arc<Handlers>,
    /// Our identity.
    pub heartbeat: Heartbeat,
    /// Our claims.
    pub slots: Slots,
    /// Holding when the store is away.
    pub outage: Outage,
    /// Where handlers run, so that one that blocks its thread starves nothing else.
    pub runtime: Handle,
    /// Lets a suspect run alone.
    pub gate: Gate,
    /// Publishes follow-up tasks.
    pub relay: Relay,
    /// When to give back.
    pub shutdown: Shutdown,
    /// `worker@host#pid`.
    pub label: String,
}

/// A task in hand, with everything that protects it.
pub struct Claimed {
    attempt: Box<Attempt>,
    identity: Identity,
    cancel: CancellationToken,
    /// Among others or alone; others wait for its end.
    turn: Option<Turn>,
    /// Kept by a handler that does not end.
    slot: Arc<Slot>,
    /// Keeps the claim on the list until the record is written.
    _listed: Listed,
}

/// What a claim came to.
pub enum Taken {
    /// Run it.
    Task(Claimed),
    /// Settle the delivery like this.
    Settle(Settlement),
    /// The process ends: leave the delivery to the broker.
    Leave,
}

impl Claimed {
    /// Longest time that the attempt may take.
    pub fn timeout(&self) -> Duration {
        self.attempt.timeout
    }
}

impl Processor {
    /// Claims a task under our living identity, with a token of its own.
    pub async fn claim(&self, task: TaskId, slot: &Arc<Slot>) -> Taken {
        loop {
            // Before the claim, whose deadline would run while it waits.
            let turn = tokio::select! {
                turn = self.gate.pass() => turn,
                () = self.shutdown.hard.cancelled() => return Taken::Leave,
            };
            let Some(identity) = self.heartbeat.identity().await else { return Taken::Leave };
            let token = ClaimToken::new();
            let cancel = CancellationToken::new();
            let held = Held { task, by: identity.incarnation, cancel: cancel.clone() };
            let listed = self.slots.list(token, held);
            let ask = || self.store.claim(task, token, identity.incarnation);
            match self.outage.hold("claim", ask).await {
                Some(Claim::Run(attempt)) => {
                    failpoint::hit("after_claim").await;
                    let turn = Some(turn);
                    return Taken::Task(Claimed {
                        slot: slot.clone(),
                        attempt,
                        identity,
                        cancel,
                        turn,
                        _listed: listed,
                    });
                }
                Some(Claim::Skip(settlement)) => return Taken::Settle(settlement),
                Some(Claim::LostIdentity) => {
                    // The heartbeat sees it too; a new identity follows.
                    identity.lost.cancel();
                }
                None => return Taken::Leave,
            }
        }
    }

    /// As [`Processor::claim`], for the copy of a dead letter: somebody has moved it here by hand,
    /// which replays the task, once a letter. Any other delivery of a dead task is only acked.
    pub async fn claim_moved(&self, task: TaskId, letter: i64, slot: &Arc<Slot>) -> Taken {
        let settlement = match self.claim(task, slot).await {
            Taken::Settle(settlement) if settlement.is_ack() => settlement,
            other => return other,
        };
        let ask = || self.store.replay_moved(letter, task);
        match self.outage.hold("replay a dead letter that was moved by hand", ask).await {
            Some(true) => {
                info!(task.id = %task, dead_letter = letter, "replayed: {MOVED_BY_HAND}");
                self.claim(task, slot).await
            }
            Some(false) => Taken::Settle(settlement),
            None => Taken::Leave,
        }
    }

    /// Runs a claimed task, decides, records, and says how to settle. `None`: the process ends.
    pub async fn execute(&self, mut claimed: Claimed) -> Option<Settlement> {
        let waited = self.wait_for_quiet(&mut claimed).await;
        let attempt = &claimed.attempt;
        let span = spans::attempt(attempt, &self.label);
        metrics::queue_wait(&attempt.task_type, attempt.waited);
        let context = Context::new(self.house.clone(), attempt, claimed.cancel.clone())
            .traced(span.traceparent())
            .among(self.handlers.clone(), self.shutdown.soft.clone());
        let ending = context.ending.clone();
        let result = match waited {
            Ok(()) => self.run(&claimed, context, &span).await,
            Err(error) => Err(error),
        };
        failpoint::hit("after_effect").await;
        let ended = ending.take();
        // What is committed is completed, whatever the handler said or met afterwards.
        let committed = ended.as_ref().is_some_and(|ended| !ended.recorded.settlement.is_fenced());
        let result = if committed { Ok(Value::Null) } else { result };
        let error = result.as_ref().err().cloned();
        let (policy, semantics) = (&attempt.retry, attempt.semantics);
        let jitter = rand::rng().random_range(0.0..=1.0);
        let outcome = outcome::decide(result, attempt.failures, policy, semantics, jitter);
        tell(&span, attempt, &outcome, error.as_ref());

        let recorded = match ended {
            Some(ended) => {
                self.publish(ended.follow_ups);
                ended.recorded
            }
            None => self.record(attempt, span.traceparent(), outcome).await?,
        };
        failpoint::hit("after_record").await;
        if recorded.settlement.is_fenced() {
            metrics::fenced(&attempt.task_type);
            warn!(task.id = %attempt.task_id, task.run = attempt.run,
                "fenced: another attempt has the task, this one's result is not written");
        }
        Some(recorded.settlement)
    }

    async fn record(
        &self,
        attempt: &Attempt,
        traceparent: Option<String>,
        outcome: outcome::Outcome,
    ) -> Option<Recorded> {
        let completion =
            Completion { task: attempt.task_id, token: attempt.token, traceparent, outcome };
        let write = async || match self.store.record(&completion).await {
            // What cannot be stored would be tried for ever: the task is given up, and says why.
            Err(error) if error.is_data() => {
                let failure = Failure::new(
                    ErrorClass::Permanent,
                    format!("the outcome cannot be stored: {error}"),
                );
                let outcome = outcome::Outcome::Dead { failure };
                self.store.record(&Completion { outcome, ..completion.clone() }).await
            }
            answer => answer,
        };
        self.outage.hold("record", write).await
    }

    /// Publishes tasks that a handler enqueued with its completion; the relay covers a failure.
    fn publish(&self, tasks: Vec<TaskId>) {
        if tasks.is_empty() {
            return;
        }
        let relay = self.relay.clone();
        self.shutdown.spawn(async move {
            if let Err(error) = relay.publish_now(&tasks).await {
                debug!(%error, "follow-up tasks are left to the relay");
            }
        });
    }

    /// Lets a task whose next crash would bury it wait until it is alone in this worker.
    async fn wait_for_quiet(&self, claimed: &mut Claimed) -> Result<(), TaskError> {
        let attempt = &claimed.attempt;
        if !gate::runs_alone(attempt, self.house.config.limits.crash_limit) {
            return Ok(());
        }
        info!(task.id = %attempt.task_id, crashes = attempt.crashes,
            "one crash short of the limit: waiting to run alone");
        claimed.turn = None;
        let turn = tokio::select! {
            biased;
            turn = self.gate.pass_alone() => turn,
            () = claimed.identity.lost.cancelled() => return Err(interrupted("the lease was lost")),
            () = claimed.cancel.cancelled() => return Err(TaskError::Cancelled),
            () = self.shutdown.hard.cancelled() => return Err(interrupted("the worker was stopped")),
            () = tokio::time::sleep(gate::patience(attempt)) => return Err(TaskError::snooze(
                SOLO_AGAIN,
                "it is one crash short of the limit and runs alone; the other slots did not drain in time",
            )),
        };
        claimed.turn = Some(turn);
        let ask = || self.store.restart_deadline(attempt.task_id, attempt.token);
        match self.outage.hold("restart a deadline", ask).await {
            Some(true) => Ok(()),
            Some(false) => Err(claim_lost()),
            None => Err(interrupted("the worker was stopped")),
        }
    }

    /// Runs the handler inside its walls.
    async fn run(
        &self,
        claimed: &Claimed,
        context: Context,
        span: &Span,
    ) -> Result<Value, TaskError> {
        let attempt = &claimed.attempt;
        let Some(handler) = self.handlers.get(&attempt.task_type) else {
            // Attempts that cost nothing, as those here do.
            let free = attempt.run.saturating_sub(attempt.failures + attempt.crashes + 1);
            return Err(TaskError::snooze(
                no_handler_delay(free),
                format!("this worker has no handler for {:?}", attempt.task_type),
            ));
        };
        let payload = attempt.payload.clone();
        let work = span.in_scope(async move { handler.run(&context, payload).await });
        let mut work = self.runtime.spawn(work);
        let _stopped = StopOnDrop(work.abort_handle());

        let wall = tokio::select! {
            biased;
            joined = &mut work => return joined.unwrap_or_else(|error| Err(panicked(error))),
            () = claimed.identity.lost.cancelled() => interrupted("the lease was lost"),
            () = claimed.cancel.cancelled() => TaskError::Cancelled,
            () = self.shutdown.hard.cancelled() => interrupted("the worker was stopped"),
            () = tokio::time::sleep(attempt.timeout) => TaskError::Retry {
                failure: Failure::new(
                    ErrorClass::Timeout,
                    format!("timed out after {:?}", attempt.timeout),
                ),
                after: None,
            },
        };
        self.stop(work, claimed).await;
        Err(wall)
    }

    /// Stops a handler; one that does not end keeps its slot.
    async fn stop(&self, mut work: JoinHandle<Result<Value, TaskError>>, claimed: &Claimed) {
        work.abort();
        if tokio::time::timeout(STOP_PATIENCE, &mut work).await.is_err() {
            claimed.slot.clone().lose(&claimed.attempt, work, &self.runtime);
        }
    }
}

/// A running handler is stopped when it is no longer waited for.
struct StopOnDrop(AbortHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn no_handler_delay(free: u32) -> Duration {
    NO_HANDLER_DELAY.saturating_mul(1 << free.min(16)).min(LONGEST_NO_HANDLER_DELAY)
}

fn interrupted(why: &str) -> TaskError {
    TaskError::Snooze { delay: Duration::ZERO, failure: Failure::new(ErrorClass::Interrupted, why) }
}

fn panicked(error: tokio::task::JoinError) -> TaskError {
    if !error.is_panic() {
        return interrupted("the handler was stopped");
    }
    let panic = error.into_panic();
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    TaskError::retry(format!("the handler panicked: {text}"))
}

/// One line per attempt, where it is settled.
fn tell(span: &Span, attempt: &Attempt, outcome: &outcome::Outcome, error: Option<&TaskError>) {
    let name = outcome.as_str();
    let class = error.map(|error| error.class().as_str());
    metrics::attempt_ended(&attempt.task_type, name, class);
    // Around the attempt is the handling of its delivery, which came to the same.
    let delivery = spans::current();
    delivery.set(names::belfry::ATTEMPT, i64::from(attempt.run));
    delivery.set(names::belfry::OUTCOME, name);
    span.set(names::belfry::OUTCOME, name);
    if let outcome::Outcome::Retry { delay, .. } = outcome {
        span.set(names::belfry::RETRY_DELAY_MS, delay.as_millis() as i64);
    }
    let Some(error) = error else {
        info!(task.id = %attempt.task_id, "task.type" = %attempt.task_type, task.run = attempt.run,
            "completed");
        return;
    };
    if matches!(error, TaskError::HandOver(_)) {
        info!(task.id = %attempt.task_id, "task.type" = %attempt.task_type, task.run = attempt.run,
            "{error}");
        return;
    }
    span.fail(error.class().as_str(), error.to_string());
    delivery.fail(error.class().as_str(), error.to_string());
    if let outcome::Outcome::Dead { failure } = outcome {
        error!(name: "belfry.dead_letter", {
            task.id = %attempt.task_id, "task.type" = %attempt.task_type, task.run = attempt.run,
            outcome = name, error = %failure
        }, "did not complete, and is a dead letter");
        return;
    }
    warn!(task.id = %attempt.task_id, "task.type" = %attempt.task_type, task.run = attempt.run,
        outcome = name, %error, "did not complete");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_nobody_knows_is_asked_for_less_and_less_often() {
        let delays = [0, 1, 2, 3, 4, 5, u32::MAX].map(|free| no_handler_delay(free).as_secs());
        assert_eq!(delays, [30, 60, 120, 240, 480, 480, 480]);
    }
}
