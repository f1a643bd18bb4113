//! The outsider's view of a run: what the database and the broker say, and what asking cost.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use shared::broker::Operator;
use tokio::time::sleep;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use crate::database;
use crate::fleet::Ground;

/// Pause between two looks: the error of the settled clock.
const LOOK: Duration = Duration::from_millis(10);
/// A session tells its transactions at least this often while it is busy.
const TOLD: Duration = Duration::from_millis(1100);

/// What the server has done so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    /// Transactions, our own left out.
    pub commits: i64,
    /// Bytes logged, by the whole server.
    pub wal_bytes: i64,
}

pub(super) struct Observer<'a> {
    ground: &'a Ground,
    client: Client,
    operator: Operator,
    asked: AtomicI64,
}

impl<'a> Observer<'a> {
    pub(super) async fn open(ground: &'a Ground) -> anyhow::Result<Self> {
        let client = database::connect(ground.config().database_url()?).await?;
        let operator = Operator::connect(&ground.settings()?).await?;
        Ok(Self { ground, client, operator, asked: AtomicI64::new(0) })
    }

    /// What the server has done so far. With `whole`, once all other sessions have ended and so
    /// told their transactions; what we asked ourselves is left out of them.
    pub(super) async fn counters(&self, whole: bool) -> anyhow::Result<Counters> {
        while whole && self.one(include_str!("others.sql"), &[]).await?.get::<_, i64>("others") > 0
        {
            sleep(LOOK).await;
        }
        // Servers before 15 have no such function, and tell soon enough.
        if self.one(include_str!("flush.sql"), &[]).await.is_err() {
            sleep(TOLD).await;
        }
        // As many of our own are told at each look as were asked before it, but for one.
        let own = self.asked.load(Ordering::Relaxed);
        let row = self.one(include_str!("counters.sql"), &[]).await?;
        Ok(Counters {
            commits: row.get::<_, i64>("commits") - own,
            wal_bytes: row.get("wal_bytes"),
        })
    }

    /// Waits until a task of this name has completed; answers how many have.
    pub(super) async fn first_completed(&self, name: &str) -> anyhow::Result<i64> {
        loop {
            let (completed, _) = self.finished(name).await?;
            if completed > 0 {
                return Ok(completed);
            }
            sleep(LOOK).await;
        }
    }

    /// Completed tasks of a name, and when the first was.
    pub(super) async fn finished(
        &self,
        name: &str,
    ) -> anyhow::Result<(i64, Option<DateTime<Utc>>)> {
        let row = self.one(include_str!("finished.sql"), &[&name]).await?;
        Ok((row.get("completed"), row.get("first_at")))
    }

    /// The settled clock: waits until no task is unfinished and no queue of work holds a message;
    /// answers when that was, by the database's clock.
    pub(super) async fn settled(&self) -> anyhow::Result<DateTime<Utc>> {
        loop {
            let row = self.one(include_str!("working.sql"), &[]).await?;
            if !row.get::<_, bool>("working") && self.left_in_queues().await? == 0 {
                return Ok(row.get("now"));
            }
            sleep(LOOK).await;
        }
    }

    /// Messages ready in the pools' queues. After the workers have stopped, what they had not
    /// acked is ready again, so that this counts it too.
    pub(super) async fn left_in_queues(&self) -> anyhow::Result<u32> {
        let topology = self.ground.topology();
        let mut left = 0;
        for pool in topology.pools() {
            left += self.operator.depth(&topology.pool_queue(pool)).await?.unwrap_or(0);
        }
        Ok(left)
    }

    /// Median, 95th and 99th percentile of the latencies of a name, in milliseconds.
    pub(super) async fn latencies(&self, name: &str) -> anyhow::Result<[f64; 3]> {
        let row = self.one(include_str!("latencies.sql"), &[&name]).await?;
        let found: Option<Vec<f64>> = row.get("percentiles");
        found
            .and_then(|found| found.try_into().ok())
            .context("no task of the steady feed completed")
    }

    async fn one(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> anyhow::Result<Row> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(self.client.query_one(sql, params).await?)
    }
}
