//! The house that is drilled: its configuration, and the table of effects beside its own.

use anyhow::Context as _;

use super::services::Services;
use crate::database;
use crate::fleet::Ground;

/// The pool of everything.
pub const POOL: &str = "io_pool";
/// Where tasks leave a row in their completing transaction.
pub const EFFECTS: &str = "drill_effects";
/// The table behind it. No key: a second row of a task must be seen, not refused.
pub const EFFECTS_TABLE: &str =
    "CREATE TABLE drill_effects (task_id uuid NOT NULL, run integer NOT NULL,
    token uuid NOT NULL, execution_key text NOT NULL)";
/// Crashes that a task survives. Above the default, since several faults may hit one task.
pub const CRASH_LIMIT: u32 = 4;

/// Its schedules: each policy of overlap has one that ticks all the time.
const SCHEDULES: &str = "
tasks:
  - {name: every_second, schedule: '* * * * * *', task_type: probe, payload: {sleep_ms: 20}, overlap: allow}
  - {name: skipping, schedule: '*/2 * * * * *', task_type: probe, payload: {sleep_ms: 2500}, overlap: skip}
  - {name: queueing, schedule: '*/3 * * * * *', task_type: probe, payload: {sleep_ms: 500}, overlap: queue}
";

/// Names of the schedules, to pause them.
pub const SCHEDULE_NAMES: [&str; 3] = ["every_second", "skipping", "queueing"];

/// Prepares the ground of a seed; on a slow machine leases are longer.
pub async fn prepare(services: &Services, stub: &str, pace: u32) -> anyhow::Result<Ground> {
    let ttl = 3 * pace;
    let yaml = format!(
        "scheduler: {{heartbeat_interval: {pace}s, heartbeat_ttl: {ttl}s, retry_backoff_base: 1s}}\n\
         limits: {{crash_limit: {CRASH_LIMIT}}}\n\
         http: {{allow_private: true}}\n\
         model: {{base_url: '{stub}/v1', api_key: drill, default_model: stub-mini}}\n\
         alerts: {{webhook: '{stub}/alerts'}}\n\
         task_pools:\n  {POOL}: {{max_workers: 8, task_types: [probe, http_call, model_invoke]}}\n\
         {SCHEDULES}"
    );
    let ground = Ground::prepare(&services.config()?, "drill", &yaml).await?;
    let client = database::connect(ground.config().database_url()?).await?;
    client.batch_execute(EFFECTS_TABLE).await.context("making the table of effects")?;
    Ok(ground)
}
