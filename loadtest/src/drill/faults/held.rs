//! What a member holds at the moment of a blow, and when it has gone on elsewhere.

use std::time::Duration;

use anyhow::Context as _;
use shared::domain::task::NewTask;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::signs::BITE;
use crate::drill::field::{Field, until};

/// With heartbeats of 1 s and leases of 3 s, what a dead or frozen worker held starts elsewhere
/// within this.
pub const RESTART: Duration = Duration::from_secs(5);
/// A freeze that outlasts a lease of 3 s, its sweep, and the longest wait for both.
const FREEZE: Duration = Duration::from_secs(6);

/// The live incarnation of a member, and the attempts under it.
#[derive(Debug)]
pub struct Held {
    /// The identity it has now.
    pub incarnation: Uuid,
    tasks: Vec<Uuid>,
    runs: Vec<i32>,
}

impl Held {
    /// What a worker holds now.
    pub async fn by(field: &Field, at: usize) -> anyhow::Result<Self> {
        let pid = field.fleet.posts[at].pid().context("nobody stands at the post")?;
        let label = format!("%#{pid}");
        let sql = "SELECT w.id AS incarnation, t.id, t.run FROM workers w
            LEFT JOIN tasks t ON t.incarnation = w.id AND t.state = 'running'
            WHERE w.label LIKE $1 AND w.role = 'worker' AND w.fenced_at IS NULL AND w.stopped_at IS NULL";
        until("the worker is registered", BITE, async || {
            let rows = field.rows.all(sql, &[&label]).await?;
            let Some(first) = rows.first() else { return Ok(None) };
            Ok(Some(Self {
                incarnation: first.get("incarnation"),
                tasks: rows.iter().filter_map(|row| row.get("id")).collect(),
                runs: rows.iter().filter_map(|row| row.get("run")).collect(),
            }))
        })
        .await
    }

    /// Waits until a freeze has outlasted the lease.
    pub async fn outlast(field: &Field, blow: Instant) {
        sleep_until(blow + FREEZE * field.pace).await;
    }

    /// How many tasks.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until none of them waits for its next attempt any more; answers how long after `blow`.
    pub async fn restarted(&self, field: &Field, blow: Instant) -> anyhow::Result<Duration> {
        // What waits for a retry that it asked for itself is not held by anybody.
        let sql = "SELECT count(*) FROM tasks t
            JOIN unnest($1::uuid[], $2::int[]) AS held (id, run) ON held.id = t.id
            WHERE t.run <= held.run AND t.state IN ('running', 'queued')";
        until("what it held starts elsewhere", BITE, async || {
            let left = field.rows.count(sql, &[&self.tasks, &self.runs]).await?;
            Ok((left == 0).then(|| blow.elapsed()))
        })
        .await
    }

    /// Waits until its identity is fenced: whatever it still writes is refused.
    pub async fn fenced(&self, field: &Field) -> anyhow::Result<()> {
        let sql = "SELECT count(*) FROM workers WHERE id = $1 AND fenced_at IS NOT NULL";
        until("its identity is fenced", BITE, async || {
            Ok((field.rows.count(sql, &[&self.incarnation]).await? == 1).then_some(()))
        })
        .await
    }
}

/// How many of these tasks run now.
pub async fn running(field: &Field, tasks: &[NewTask]) -> anyhow::Result<i64> {
    let ids: Vec<Uuid> = tasks.iter().map(|task| task.id.0).collect();
    let sql = "SELECT count(*) FROM tasks WHERE id = ANY ($1) AND state = 'running'";
    field.rows.count(sql, &[&ids]).await
}

/// The post of the worker that runs a task; waits for it.
pub async fn runner(field: &Field, task: &NewTask) -> anyhow::Result<usize> {
    let sql = "SELECT w.label FROM tasks t JOIN workers w ON w.id = t.incarnation WHERE t.id = $1";
    until("a worker runs the task", BITE, async || {
        let rows = field.rows.all(sql, &[&task.id.0]).await?;
        Ok(rows.first().and_then(|row| field.fleet.by_label(row.get("label"))))
    })
    .await
}
