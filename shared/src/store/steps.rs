//! Steps: kept results, written under the claim token, read by every later attempt.

use std::time::Duration;

use serde_json::Value;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;
use super::record::without_nul;
use super::rows::Get;
use crate::domain::attempt::ClaimToken;
use crate::domain::task::TaskId;

/// A kept step.
#[derive(Clone, Debug)]
pub struct StoredStep {
    /// SHA-256 of its input.
    pub input_hash: Vec<u8>,
    /// What it returned.
    pub result: Value,
    /// Attempt that ran it.
    pub run: u32,
    /// How long it took.
    pub took: Duration,
}

/// What a session has used since it began, or since it was last replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionSpent {
    /// Steps kept.
    pub steps: u32,
    /// Tokens of its model calls, in and out; estimates where nobody knows.
    pub tokens: u64,
    /// Millionths of a US dollar of them, the same.
    pub cost_micro: u64,
    /// Time since its first attempt.
    pub elapsed: Duration,
}

impl Store {
    /// All kept steps of a task by name.
    pub async fn steps(&self, task: TaskId) -> Result<Vec<(String, Value)>, Error> {
        let rows = self.query(include_str!("sql/steps.sql"), &[&task.0]).await?;
        Ok(rows.iter().map(|row| (row.get("name"), row.get("result"))).collect())
    }

    /// What a session has used of its limits.
    pub async fn session_spent(&self, task: TaskId) -> Result<SessionSpent, Error> {
        let row = self.query_opt(include_str!("sql/session_spent.sql"), &[&task.0]).await?;
        let row = row.ok_or_else(|| Error::row("sums without a row"))?;
        Ok(SessionSpent {
            steps: row.count("steps")?,
            tokens: row.get::<_, i64>("tokens").max(0) as u64,
            cost_micro: row.get::<_, i64>("cost_micro").max(0) as u64,
            elapsed: row.millis("elapsed_ms"),
        })
    }

    /// A kept step, if there is one.
    pub async fn step(&self, task: TaskId, name: &str) -> Result<Option<StoredStep>, Error> {
        let row = self.query_opt(include_str!("sql/step.sql"), &[&task.0, &name]).await?;
        row.map(|row| {
            Ok(StoredStep {
                input_hash: row.get("input_hash"),
                result: row.get("result"),
                run: row.count("run")?,
                took: row.millis("took_ms"),
            })
        })
        .transpose()
    }

    /// Keeps a step; false when the claim is no longer ours.
    pub async fn keep_step(
        &self,
        task: TaskId,
        token: ClaimToken,
        name: &str,
        input_hash: &[u8],
        result: &Value,
        took: Duration,
    ) -> Result<bool, Error> {
        let result = without_nul(result);
        let row = self
            .query_opt(
                include_str!("sql/keep_step.sql"),
                &[&task.0, &token.0, &name, &input_hash, &result, &millis(took)],
            )
            .await?;
        Ok(row.is_some())
    }

    /// Writes progress; false when the claim is no longer ours.
    pub async fn progress(
        &self,
        task: TaskId,
        token: ClaimToken,
        done: u64,
        failed: u64,
    ) -> Result<bool, Error> {
        let row = self
            .query_opt(
                include_str!("sql/progress.sql"),
                &[&task.0, &token.0, &(done as i64), &(failed as i64)],
            )
            .await?;
        Ok(row.is_some())
    }
}
