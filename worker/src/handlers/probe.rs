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
            Mode::Ok => {
                let result = json!({"run": context.run, "echo": asked.echo});
                match &asked.effect {
                    Some(table) => leave_effect(context, table, &result).await,
                    None => Ok(result),
                }
            }
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

/// Leaves a row of this attempt in the transaction that completes the task.
async fn leave_effect(context: &Context, table: &str, result: &Value) -> Result<Value, TaskError> {
    // A table is no parameter; the payload's check lets nothing but a plain name through.
    let sql = include_str!("probe_effect.sql").replace("{table}", table);
    let (sql, (task, token)) = (sql.as_str(), (context.task_id.0, context.token.0));
    let (run, key) = (context.run as i32, context.execution_key.as_str());
    context
        .complete_in(|tx| async move {
            tx.execute(sql, &[&task, &run, &token, &key]).await?;
            Ok(result.clone())
        })
        .await
}

/// Computes without a pause, as a handler does that forgets that it shares its thread.
fn spin(time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {
        std::hint::spin_loop();
    }
}
