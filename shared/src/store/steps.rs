//! Steps: kept results, written under the claim token, read by every later attempt.

use std::time::Duration;

use serde_json::Value;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;
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

impl Store {
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
        let row = self
            .query_opt(
                include_str!("sql/keep_step.sql"),
                &[&task.0, &token.0, &name, &input_hash, result, &millis(took)],
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
