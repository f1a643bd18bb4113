//! The drill's own account: what was given away against what became of it, in the rows, at the
//! model and outside. The promises of the house are the ledger's.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use shared::domain::task::TaskId;
use uuid::Uuid;

use super::book::{Book, End, Entry, Kind};
use super::rows::{Params, Rows};
use crate::stub_llm::Stub;

/// Offenders that are named.
const NAMED: usize = 5;

/// One invariant. JSON: `{"name","says","counted","violations","ok","offenders"}`.
#[derive(Clone, Debug, Serialize)]
pub struct Invariant {
    /// Its name.
    pub name: &'static str,
    /// What is counted.
    pub says: &'static str,
    /// How many were looked at.
    pub counted: i64,
    /// How many break it.
    pub violations: i64,
    /// None does.
    pub ok: bool,
    /// The first few that do, in words.
    pub offenders: Vec<String>,
}

impl Invariant {
    fn of(name: &'static str, says: &'static str, looked_at: usize, mut bad: Vec<String>) -> Self {
        let violations = bad.len() as i64;
        bad.truncate(NAMED);
        Self {
            name,
            says,
            counted: looked_at as i64,
            violations,
            ok: violations == 0,
            offenders: bad,
        }
    }
}

/// What an account is made of.
pub struct Account<'a> {
    /// The rows of the house.
    pub rows: &'a Rows,
    /// What was given away.
    pub book: &'a Book,
    /// The model and the outside.
    pub stub: &'a Stub,
    /// Planned instants, as the ledger counts them anew from the cron lines.
    pub planned: i64,
}

/// An invariant whose query, named as it is, lists what it looks at.
macro_rules! listed {
    ($account:ident, $name:literal, $says:literal, $params:expr) => {
        listed($account.rows, $name, $says, include_str!(concat!("sql/", $name, ".sql")), $params)
            .await?
    };
}

impl Account<'_> {
    /// Makes the account of a settled house.
    pub async fn make(&self) -> anyhow::Result<Vec<Invariant>> {
        let tasks = self.book.tasks();
        let ids: Vec<Uuid> = tasks.keys().map(|id| id.0).collect();
        let ends: Vec<&str> = tasks.values().map(|entry| told(entry.end)).collect();
        let mortal = of(&tasks, |entry| matches!(entry.end, End::Dead(_) | End::Once));
        let effects = of(&tasks, |entry| entry.kind == Kind::Effect);
        let keys = self.book.request_keys();
        Ok(vec![
            listed!(self, "accepted", "accepted tasks, each with its row", &[&ids]),
            listed!(self, "ended", "accepted tasks, each ended as told", &[&ids, &ends]),
            listed!(self, "requests", "requests in the inbox, each with one task", &[&keys]),
            listed!(self, "effects", "tasks that write as they complete, each once", &[&effects]),
            listed!(self, "stale", "rows written in completion, none of a late owner", &[]),
            self.outside(&tasks).await?,
            self.calls(&tasks).await?,
            self.ticks().await?,
            listed!(self, "letters", "dead letters of tasks, each asked for", &[&mortal]),
            self.refused().await?,
        ])
    }

    /// Every effect elsewhere happened, and each request beyond the first has an attempt that did not
    /// come to its end.
    async fn outside(&self, tasks: &BTreeMap<TaskId, Entry>) -> anyhow::Result<Invariant> {
        let ids = of(tasks, |entry| entry.kind == Kind::Outside);
        let seen = self.stub.effects();
        let mut bad: Vec<String> = Vec::new();
        for row in self.rows.all(include_str!("sql/attempts.sql"), &[&ids]).await? {
            let (id, runs, completed): (Uuid, i64, i64) =
                (row.get("id"), row.get("runs"), row.get("completed"));
            let requests = seen.get(&id.to_string()).copied().unwrap_or(0) as i64;
            if requests < completed || requests > runs {
                bad.push(format!(
                    "task {id}: {requests} requests in {runs} attempts, {completed} completed"
                ));
            }
        }
        let known: BTreeSet<String> = ids.iter().map(ToString::to_string).collect();
        bad.extend(
            seen.keys()
                .filter(|key| !known.contains(*key))
                .map(|key| format!("key {key} is nobody's")),
        );
        let says = "effects elsewhere, each there and each repeat explained by an attempt";
        Ok(Invariant::of("outside", says, ids.len(), bad))
    }

    /// What the model was asked is what the journal says; more than one answer of a task is explained
    /// by a call whose answer never arrived, or too late for the attempt that had asked.
    async fn calls(&self, tasks: &BTreeMap<TaskId, Entry>) -> anyhow::Result<Invariant> {
        let mut journal: BTreeMap<String, (Uuid, String)> = BTreeMap::new();
        let (mut lost, mut answers) = (BTreeMap::<Uuid, i64>::new(), BTreeMap::<Uuid, i64>::new());
        for row in self.rows.all(include_str!("sql/calls.sql"), &[]).await? {
            let (id, task, state): (Uuid, Uuid, String) =
                (row.get("id"), row.get("task_id"), row.get("state"));
            *lost.entry(task).or_default() += i64::from(row.get::<_, bool>("lost"));
            journal.insert(id.to_string(), (task, state));
        }
        let mut bad = Vec::new();
        let mut asked = BTreeSet::new();
        let calls = self.stub.calls();
        for call in &calls {
            let key = call.idempotency_key.clone().unwrap_or_default();
            match journal.get(&key) {
                None => bad.push(format!("the call {key} is in no journal")),
                Some(_) if !asked.insert(key.clone()) => {
                    bad.push(format!("the call {key} came twice"));
                }
                Some((task, _)) => {
                    *answers.entry(*task).or_default() += i64::from(call.output_tokens > 0);
                }
            }
        }
        for (key, (_, state)) in &journal {
            if state == "done" && !asked.contains(key) {
                bad.push(format!("the journal has an answer to {key}, which nobody was asked"));
            }
        }
        for (task, answered) in answers {
            let lost = lost.get(&task).copied().unwrap_or(0);
            if answered > 1 + lost {
                bad.push(format!("task {task}: {answered} answers, {lost} of them lost"));
            }
            if !tasks.contains_key(&TaskId(task)) {
                bad.push(format!("task {task} asked the model and is nobody's"));
            }
        }
        let says = "calls at the model, each in the journal and each repeat explained";
        Ok(Invariant::of("calls", says, calls.len(), bad))
    }

    /// Ticks of every outcome together are the planned instants, counted anew from the cron lines.
    async fn ticks(&self) -> anyhow::Result<Invariant> {
        let sum = self.rows.count("SELECT coalesce(sum(count), 0)::bigint FROM ticks", &[]).await?;
        let planned = self.planned;
        let bad = (sum != planned)
            .then(|| format!("{planned} instants were planned, and the ticks are {sum}"));
        let says = "planned instants, as many as the outcomes of all ticks together";
        Ok(Invariant::of("ticks", says, planned as usize, bad.into_iter().collect()))
    }

    /// What nobody could turn into a task lies among the dead letters, each body.
    async fn refused(&self) -> anyhow::Result<Invariant> {
        let sql = "SELECT count(DISTINCT body) FROM dead_letters WHERE task_id IS NULL";
        let (kept, sent) = (self.rows.count(sql, &[]).await?, self.book.all_refused() as i64);
        let bad = (kept != sent).then(|| format!("{sent} were sent, and {kept} are kept"));
        let says = "requests that cannot be read, each kept with the reason";
        Ok(Invariant::of("refused", says, sent as usize, bad.into_iter().collect()))
    }
}

/// How SQL calls the end of a task.
fn told(end: End) -> &'static str {
    match end {
        End::Completed => "completed",
        End::Once => "once",
        End::Cancelled => "cancelled",
        End::Dead(class) => class,
    }
}

fn of(tasks: &BTreeMap<TaskId, Entry>, wanted: impl Fn(&Entry) -> bool) -> Vec<Uuid> {
    tasks.iter().filter(|(_, entry)| wanted(entry)).map(|(id, _)| id.0).collect()
}

/// An invariant whose query lists what it looks at, as the ledger's do.
async fn listed(
    rows: &Rows,
    name: &'static str,
    says: &'static str,
    sql: &str,
    params: Params<'_>,
) -> anyhow::Result<Invariant> {
    let all = rows.all(sql, params).await?;
    let broken = all.iter().filter(|row| row.get::<_, Option<bool>>("broken") != Some(false));
    let offenders = broken.map(|row| row.get("offender")).collect();
    Ok(Invariant::of(name, says, all.len(), offenders))
}
