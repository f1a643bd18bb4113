//! `probe`: does what its payload says, the worst included; for drills and load.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::domain::outcome::TaskError;
use shared::domain::payloads::{self, Mode, Payload};

use crate::context::Context;
use crate::handler::Handler;

/// See the module.
pub(super) struct Probe;

#[async_trait]
impl Handler for Probe {
    fn task_type(&self) -> &'static str {
        payloads::Probe::TYPE
    }

    fn summary(&self) -> &'static str {
        "does what its payload says; for drills and load"
    }

    fn schema(&self) -> Value {
        payloads::Probe::schema()
    }

    fn check(&self, payload: &Value) -> Result<(), String> {
        payloads::Probe::read(payload).map(drop)
    }

    async fn run(&self, context: &Context, payload: Value) -> Result<Value, TaskError> {
        let asked = payloads::Probe::read(&payload).map_err(TaskError::invalid)?;
        if asked.sleep_ms > 0 {
            tokio::time::sleep(Duration::from_millis(asked.sleep_ms)).await;
        }
        spin(Duration::from_millis(asked.spin_ms));
        let over = asked.fail_times.is_some_and(|times| context.run > times);
        match if over { Mode::Ok } else { asked.mode } {
            Mode::Ok => Ok(json!({"run": context.run, "echo": asked.echo})),
            Mode::Retry => Err(TaskError::retry("the probe was told to fail")),
            Mode::Permanent => Err(TaskError::permanent("the probe was told to fail for good")),
            Mode::Snooze => {
                let delay = Duration::from_millis(asked.snooze_ms);
                Err(TaskError::snooze(delay, "the probe was told to snooze"))
            }
            Mode::Panic => panic!("the probe was told to panic"),
            Mode::Hang => std::future::pending().await,
            Mode::Die => std::process::abort(),
        }
    }
}

/// Computes without a pause, as a handler does that forgets that it shares its thread.
fn spin(time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {
        std::hint::spin_loop();
    }
}
