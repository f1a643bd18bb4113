//! Artifacts: finished reports, one per report and date, kept where every host can read them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio_postgres::Row;
use uuid::Uuid;

use super::connect::Store;
use super::error::Error;
use super::session::Session;
use crate::domain::attempt::ClaimToken;
use crate::domain::execution_key::hex;
use crate::domain::task::TaskId;

/// A report about to be kept.
#[derive(Clone, Debug)]
pub struct NewArtifact {
    /// Name of the report.
    pub report: String,
    /// What it is about.
    pub date: String,
    /// Media type.
    pub content_type: String,
    /// Content.
    pub content: Vec<u8>,
}

/// A kept report. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct Artifact {
    /// Number.
    pub id: i64,
    /// Name of the report.
    pub report: String,
    /// What it is about.
    pub date: String,
    /// The task that made it.
    pub task_id: Uuid,
    /// Media type.
    pub content_type: String,
    /// Hexadecimal SHA-256 of the content.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: i32,
    /// When.
    pub created_at: DateTime<Utc>,
}

impl Store {
    /// Keeps a report; answers its number and its task (another task's, if that was first), or
    /// `None` when the claim is no longer ours.
    pub async fn keep_artifact(
        &self,
        task: TaskId,
        token: ClaimToken,
        artifact: &NewArtifact,
    ) -> Result<Option<(i64, TaskId)>, Error> {
        keep_in(&self.session().await?, task, token, artifact).await
    }

    /// Reports, newest first.
    pub async fn artifacts(
        &self,
        report: Option<&str>,
        limit: i64,
    ) -> Result<Vec<Artifact>, Error> {
        let rows = self.query(include_str!("sql/artifacts.sql"), &[&report, &limit]).await?;
        Ok(rows.iter().map(artifact_of).collect())
    }

    /// One report with its content: by number, by name and date, or the newest by name.
    pub async fn artifact(
        &self,
        id: Option<i64>,
        report: Option<&str>,
        date: Option<&str>,
    ) -> Result<Option<(Artifact, Vec<u8>)>, Error> {
        let row = self.query_opt(include_str!("sql/artifact.sql"), &[&id, &report, &date]).await?;
        Ok(row.map(|row| (artifact_of(&row), row.get("content"))))
    }
}

/// Keeps a report on a given connection, so that a transaction may.
pub(super) async fn keep_in(
    session: &Session,
    task: TaskId,
    token: ClaimToken,
    artifact: &NewArtifact,
) -> Result<Option<(i64, TaskId)>, Error> {
    let hash = Sha256::digest(&artifact.content).to_vec();
    let rows = session
        .query(
            include_str!("sql/keep_artifact.sql"),
            &[
                &task.0,
                &token.0,
                &artifact.report,
                &artifact.date,
                &artifact.content_type,
                &hash,
                &artifact.content,
            ],
        )
        .await?;
    Ok(rows.first().map(|row| (row.get("id"), TaskId(row.get("task_id")))))
}

fn artifact_of(row: &Row) -> Artifact {
    let hash: Vec<u8> = row.get("sha256");
    Artifact {
        id: row.get("id"),
        report: row.get("report"),
        date: row.get("date"),
        task_id: row.get("task_id"),
        content_type: row.get("content_type"),
        sha256: hex(&hash),
        bytes: row.get("bytes"),
        created_at: row.get("created_at"),
    }
}
