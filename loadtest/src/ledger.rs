//! The ledger: the promises of the house as queries over its database and its broker.
//!
//! It believes nobody: planned instants are recomputed from the cron lines, and everything else is
//! read in one snapshot, so that a house at work can be audited too. It never changes a row, and
//! what only operation can prove (an alert that arrived, an effect elsewhere) it does not judge.

mod checks;
mod command;
mod planned;
mod queues;

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use shared::config::Config;
use shared::sweeps::LOST_GRACE;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Transaction};

pub use checks::{Check, Needs, PROMISES, checks};
pub use command::{LedgerOptions, run};
pub use planned::{Due, Undecided};
pub use queues::Queue;

use crate::database;
use planned::Planned;
use queues::Queues;

/// A sweep that has not acted after this has failed: it runs every few seconds, and acts on what is
/// [`LOST_GRACE`] old. A leader decides an instant within a second; another leads when it is gone so long.
pub const LATE: Duration = LOST_GRACE.saturating_mul(2);
/// Offenders that are named.
const NAMED: usize = 5;
/// One check may take this long.
const CHECK_TIMEOUT: Duration = Duration::from_mins(2);

/// What to look at beyond the promises that hold at any moment.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Nothing may be left to do.
    pub expect_settled: bool,
    /// The broker's management API, for messages in workers' hands.
    pub management: Option<reqwest::Url>,
}

/// What an audit found. JSON: `{"ok","database","promises","undecided","queues"}`.
#[derive(Clone, Debug, Serialize)]
pub struct Ledger {
    /// No promise is broken.
    pub ok: bool,
    /// Host, port and database.
    pub database: String,
    /// Promises, in the order of the contract.
    pub promises: Vec<Kept>,
    /// What is due and was not decided: nobody leads, or the leader hangs.
    pub undecided: Undecided,
    /// Queues as they were.
    pub queues: Vec<Queue>,
}

/// One promise. JSON: `{"promise","title","ok","checks"}`.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// Its number in the contract.
    pub promise: u8,
    /// Its words.
    pub title: &'static str,
    /// All checks hold.
    pub ok: bool,
    /// Its checks.
    pub checks: Vec<Checked>,
}

/// One check. JSON: `{"name","counts","counted","violations","ok","offenders"}`.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// Its name.
    pub name: &'static str,
    /// What is counted.
    pub counts: &'static str,
    /// How many were looked at.
    pub counted: i64,
    /// How many break the promise.
    pub violations: i64,
    /// None does.
    pub ok: bool,
    /// The first few that do, in words.
    pub offenders: Vec<String>,
}

impl Ledger {
    /// What is broken, in one line; `None` when nothing is.
    pub fn broken(&self) -> Option<String> {
        let broken = self.promises.iter().filter(|kept| !kept.ok).map(|kept| {
            let checks = kept.checks.iter().filter(|check| !check.ok);
            let checks: Vec<String> =
                checks.map(|c| format!("{} ({} of {})", c.name, c.violations, c.counted)).collect();
            format!("promise {} ({}) is broken: {}", kept.promise, kept.title, checks.join(", "))
        });
        let broken: Vec<String> = broken.collect();
        (!broken.is_empty()).then(|| broken.join("; "))
    }
}

/// Audits a house.
///
/// # Errors
/// When database or broker cannot be asked. A broken promise is no error but an answer.
pub async fn audit(config: &Config, options: &Options) -> anyhow::Result<Ledger> {
    let dsn = config.database_url()?;
    let mut client = database::connect(dsn).await?;
    let limit = CHECK_TIMEOUT.as_millis();
    client.batch_execute(&format!("SET statement_timeout = {limit}")).await?;
    // Looked at on both sides of the snapshot: a message that was delivered meanwhile was there.
    let before = Queues::look(config, options).await?;
    let snapshot = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await
        .context("beginning the snapshot")?;
    let auditor = Auditor {
        planned: Planned::read(&snapshot, config.retention.completed).await?,
        snapshot,
        keys_kept: config.retention.execution_keys.as_secs_f64(),
        tasks_kept: config.retention.completed.min(config.retention.dead).as_secs_f64(),
        late: LATE.as_secs_f64(),
        pools: config.pools.iter().map(|pool| pool.name.clone()).collect(),
        queues: Queues::look(config, options).await?.or_more(before),
    };
    auditor.ledger(dsn, options).await
}

struct Auditor<'a> {
    snapshot: Transaction<'a>,
    planned: Planned,
    keys_kept: f64,
    tasks_kept: f64,
    late: f64,
    pools: Vec<String>,
    queues: Queues,
}

impl Auditor<'_> {
    async fn ledger(
        self,
        dsn: &secrecy::SecretString,
        options: &Options,
    ) -> anyhow::Result<Ledger> {
        let mut promises: Vec<Kept> = PROMISES
            .iter()
            .zip(1..)
            .map(|(title, promise)| Kept { promise, title, ok: true, checks: Vec::new() })
            .collect();
        for check in checks().iter().filter(|c| options.expect_settled || !c.only_settled) {
            let checked = self
                .check(check)
                .await
                .with_context(|| format!("the ledger's check {}", check.name))?;
            let kept = &mut promises[usize::from(check.promise) - 1];
            kept.ok &= checked.ok;
            kept.checks.push(checked);
        }
        Ok(Ledger {
            ok: promises.iter().all(|kept| kept.ok),
            database: shared::config::Redacted::of(dsn).to_string(),
            promises,
            undecided: self.planned.undecided(),
            queues: self.queues.all,
        })
    }

    async fn check(&self, check: &Check) -> anyhow::Result<Checked> {
        let mut sum = Checked {
            name: check.name,
            counts: check.counts,
            counted: 0,
            violations: 0,
            ok: true,
            offenders: Vec::new(),
        };
        match check.needs {
            Needs::Nothing => self.ask(check, &[], &mut sum).await?,
            Needs::KeysKept => self.ask(check, &[&self.keys_kept], &mut sum).await?,
            Needs::TasksKept => self.ask(check, &[&self.tasks_kept], &mut sum).await?,
            Needs::Late => self.ask(check, &[&self.late], &mut sum).await?,
            Needs::Depths => {
                let ready: Vec<i64> = self.pools.iter().map(|p| self.queues.of_pool(p)).collect();
                self.ask(check, &[&self.pools, &ready, &self.late], &mut sum).await?;
            }
            Needs::Queues => {
                let work = self.queues.of_work();
                let names: Vec<&str> = work.iter().map(|q| q.name.as_str()).collect();
                let ready: Vec<i64> = work.iter().map(|q| q.ready).collect();
                let unacked: Vec<Option<i64>> = work.iter().map(|q| q.unacked).collect();
                self.ask(check, &[&names, &ready, &unacked], &mut sum).await?;
            }
            Needs::Instants | Needs::InstantsAndSpans => {
                for part in self.planned.parts() {
                    let mut params: Vec<&(dyn ToSql + Sync)> =
                        vec![&part.schedules, &part.instants];
                    if matches!(check.needs, Needs::InstantsAndSpans) {
                        params.extend::<[&(dyn ToSql + Sync); 2]>([&part.looked_at, &part.since]);
                    }
                    self.ask(check, &params, &mut sum).await?;
                }
            }
        }
        sum.ok = sum.violations == 0;
        sum.offenders.truncate(NAMED);
        Ok(sum)
    }

    /// Counts what a check's query lists. A `broken` of NULL is a question that was not answered,
    /// and counts as broken.
    async fn ask(
        &self,
        check: &Check,
        params: &[&(dyn ToSql + Sync)],
        sum: &mut Checked,
    ) -> anyhow::Result<()> {
        let sql = format!(
            "SELECT count(*) AS counted, count(*) FILTER (WHERE broken IS NOT FALSE) AS violations, \
             coalesce((array_agg(offender ORDER BY offender) \
                       FILTER (WHERE broken IS NOT FALSE))[1:{NAMED}], '{{}}') AS offenders \
             FROM (\n{}\n) AS examined",
            check.sql
        );
        let row = self.snapshot.query_one(&sql, params).await?;
        sum.counted += row.get::<_, i64>("counted");
        sum.violations += row.get::<_, i64>("violations");
        sum.offenders.extend(row.get::<_, Vec<String>>("offenders"));
        Ok(())
    }
}
