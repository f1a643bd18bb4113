//! Schedules as the database keeps them, with a durable high-water mark: what is in force is what
//! these rows say, whichever file they came from.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::Timestamp;
use uuid::Uuid;

use super::connect::Store;
use super::error::Error;
use super::session::Session;
use crate::domain::schedule::Standing;

/// Schedules of one page: short statements, whatever the number of schedules.
const PAGE: i64 = 5000;

/// The same of whole entries, which are large when they are read.
const PAGE_OF_ENTRIES: i64 = 500;

/// The file whose schedules are in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInForce {
    /// Counts the applied changes.
    pub revision: i64,
    /// When it was read; `None` before the first.
    pub read_at: Option<DateTime<Utc>>,
    /// Last change; `None` before the first.
    pub applied_at: Option<DateTime<Utc>>,
    /// By which process or person.
    pub applied_by: String,
    /// The database's present when it answered.
    pub now: DateTime<Utc>,
}

/// An entry as the database has it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Name.
    pub name: String,
    /// Every planned instant up to here has its tick row.
    pub mark: DateTime<Utc>,
    /// The entry, for [`Schedule::from_spec`](crate::domain::schedule::Schedule::from_spec).
    pub spec: Value,
    /// True when it is no longer in force.
    pub removed: bool,
}

/// A schedule as listed. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleRow {
    /// Name.
    pub name: String,
    /// Cron line.
    pub cron: String,
    /// Zone.
    pub timezone: String,
    /// Task type.
    pub task_type: String,
    /// High-water mark.
    pub mark: DateTime<Utc>,
    /// Last change.
    pub applied_at: DateTime<Utc>,
    /// Paused by hand since.
    pub paused_at: Option<DateTime<Utc>>,
    /// By whom.
    pub paused_by: Option<String>,
    /// The whole entry.
    pub spec: Value,
    /// The database's present when it answered.
    pub now: DateTime<Utc>,
    /// No longer in force since.
    pub removed_at: Option<DateTime<Utc>>,
    /// The one that goes on for it, where it was renamed; the last one, where that was renamed again.
    pub renamed_to: Option<String>,
    /// Since when that one is gone itself.
    pub heir_removed_at: Option<DateTime<Utc>>,
    /// Last tick.
    pub last_at: Option<DateTime<Utc>>,
    /// Its outcome.
    pub last_outcome: Option<String>,
    /// Its task.
    pub last_task: Option<Uuid>,
    /// True when that has another payload than the tick wanted.
    pub last_other_payload: bool,
}

/// A schedule that was paused or resumed.
#[derive(Clone, Debug)]
pub struct Paused {
    /// As it is now.
    pub row: ScheduleRow,
    /// Who had paused it before.
    pub was_paused_by: Option<String>,
}

/// By schedule, where its pauses begin and end, in order.
pub type PauseEdges = HashMap<String, Vec<DateTime<Utc>>>;

impl Store {
    /// The file in force.
    pub async fn file_in_force(&self) -> Result<FileInForce, Error> {
        let row = self.query_opt(include_str!("sql/file_in_force.sql"), &[]).await?;
        let row = row.ok_or_else(|| Error::row("schedule_file is empty"))?;
        let instant = |column: &str| match row.get(column) {
            Timestamp::Value(at) => Some(at),
            Timestamp::PosInfinity | Timestamp::NegInfinity => None,
        };
        Ok(FileInForce {
            revision: row.get("revision"),
            read_at: instant("read_at"),
            applied_at: instant("applied_at"),
            applied_by: row.get("applied_by"),
            now: row.get("now"),
        })
    }

    /// Its revision alone.
    pub async fn revision(&self) -> Result<i64, Error> {
        let row = self.query_opt(include_str!("sql/revision.sql"), &[]).await?;
        Ok(row.map_or(0, |row| row.get("revision")))
    }

    /// All schedules in force, by name.
    pub async fn in_force(&self) -> Result<HashMap<String, Standing>, Error> {
        let session = self.session().await?;
        let mut all = HashMap::new();
        let mut last = String::new();
        loop {
            let page = session.query(include_str!("sql/in_force.sql"), &[&last, &PAGE]).await?;
            for row in &page {
                let digest: Option<&[u8]> = row.get("digest");
                let digest = digest.and_then(|digest| digest.try_into().ok());
                all.insert(row.get("name"), Standing { mark: row.get("mark"), digest });
            }
            match page.last() {
                Some(row) if page.len() as i64 == PAGE => last = row.get("name"),
                _ => return Ok(all),
            }
        }
    }

    /// Entries in force, by name.
    pub async fn specs(&self, names: &[&str]) -> Result<Vec<Kept>, Error> {
        specs_in(&self.session().await?, names).await
    }

    /// What was applied, changed or removed, in the order of revisions and names, up to a revision: the
    /// page behind a place, which begins with `(first revision, "")`; an empty one is behind the last.
    pub async fn changed_schedules(
        &self,
        (revision, name): (i64, &str),
        until: i64,
    ) -> Result<Vec<(i64, Kept)>, Error> {
        let sql = include_str!("sql/changed_schedules.sql");
        let rows = self.query(sql, &[&revision, &name, &until, &PAGE_OF_ENTRIES]).await?;
        let kept = |row: &Row| Kept { removed: row.get("removed"), ..kept_of(row) };
        Ok(rows.iter().map(|row| (row.get("revision"), kept(row))).collect())
    }

    /// Schedules that are in force; one, if named.
    pub async fn schedules(&self, name: Option<&str>) -> Result<Vec<ScheduleRow>, Error> {
        self.schedule_rows(name, false).await
    }

    /// The same, and those that were in force once.
    pub async fn schedules_ever(&self, name: Option<&str>) -> Result<Vec<ScheduleRow>, Error> {
        self.schedule_rows(name, true).await
    }

    async fn schedule_rows(
        &self,
        name: Option<&str>,
        removed: bool,
    ) -> Result<Vec<ScheduleRow>, Error> {
        let rows = self.query(include_str!("sql/schedules.sql"), &[&name, &removed]).await?;
        Ok(rows.iter().map(row_of).collect())
    }

    /// Pauses a schedule (`by` somebody) or resumes it (`None`); `None` when there is none.
    pub async fn pause_schedule(
        &self,
        name: &str,
        by: Option<&str>,
    ) -> Result<Option<Paused>, Error> {
        let row = self.query_opt(include_str!("sql/pause_schedule.sql"), &[&name, &by]).await?;
        Ok(row.map(|row| Paused { was_paused_by: row.get("was_paused_by"), row: row_of(&row) }))
    }

    /// Where pauses by hand begin and end that may hold undecided instants, of those of these
    /// schedules that have any.
    pub async fn pause_edges(&self, names: &[&str]) -> Result<PauseEdges, Error> {
        pause_edges_in(&self.session().await?, names).await
    }
}

pub(super) async fn pause_edges_in(session: &Session, names: &[&str]) -> Result<PauseEdges, Error> {
    let mut all = PauseEdges::new();
    if names.is_empty() {
        return Ok(all);
    }
    for row in session.query(include_str!("sql/pause_edges.sql"), &[&names]).await? {
        all.entry(row.get("name")).or_default().push(row.get("edge"));
    }
    Ok(all)
}

fn row_of(row: &Row) -> ScheduleRow {
    ScheduleRow {
        name: row.get("name"),
        cron: row.get("cron"),
        timezone: row.get("timezone"),
        task_type: row.get("task_type"),
        mark: row.get("mark"),
        applied_at: row.get("applied_at"),
        paused_at: row.get("paused_at"),
        paused_by: row.get("paused_by"),
        spec: row.get("spec"),
        now: row.get("now"),
        removed_at: row.get("removed_at"),
        renamed_to: row.get("renamed_to"),
        heir_removed_at: row.get("heir_removed_at"),
        last_at: row.get("last_at"),
        last_outcome: row.get("last_outcome"),
        last_task: row.get("last_task"),
        last_other_payload: row.get("last_other_payload"),
    }
}

pub(super) async fn specs_in(session: &Session, names: &[&str]) -> Result<Vec<Kept>, Error> {
    let mut all = Vec::with_capacity(names.len());
    for page in names.chunks(PAGE as usize) {
        let rows = session.query(include_str!("sql/specs.sql"), &[&page]).await?;
        all.extend(rows.iter().map(kept_of));
    }
    Ok(all)
}

fn kept_of(row: &Row) -> Kept {
    Kept { name: row.get("name"), mark: row.get("mark"), spec: row.get("spec"), removed: false }
}
