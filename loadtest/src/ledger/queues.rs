//! The broker's side of the audit: what waits in which queue.
//!
//! AMQP tells ready messages; those in workers' hands are only known to the management API, whose
//! figures are up to five seconds old. It never takes a message.

use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use shared::broker::{Operator, Settings, Topology};
use shared::config::Config;
use shared::http::{self, Url};
use shared::process;

use super::Options;

/// The management API counts this seldom; a figure above zero is looked at again until it is older
/// than this.
const STATISTICS_AGE: Duration = Duration::from_secs(6);
/// Pause between two looks at it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Longest wait for its answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Largest answer that is read.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// A queue as it was. JSON: `{"name","ready","unacked"}`.
#[derive(Clone, Debug, Serialize)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Messages that wait in it; a queue that does not exist has none.
    pub ready: i64,
    /// Messages in workers' hands; `null` where nobody was asked.
    pub unacked: Option<i64>,
}

/// All queues of the house.
pub(super) struct Queues {
    topology: Topology,
    pub(super) all: Vec<Queue>,
}

impl Queues {
    /// Looks at them.
    pub(super) async fn look(config: &Config, options: &Options) -> anyhow::Result<Self> {
        let url = config.amqp_url()?;
        let settings =
            Settings::new(url.clone(), &config.rabbitmq.prefix, process::label("loadtest"));
        let pools = config.pools.iter().map(|pool| pool.name.clone());
        let topology = Topology::new(&config.rabbitmq.prefix, pools);
        let operator = Operator::connect(&settings).await?;
        let found = operator.show(&topology).await;
        operator.close().await;
        let all = found?
            .into_iter()
            .filter(|found| found.kind == "queue")
            .map(|found| Queue {
                name: found.name,
                ready: found.messages.unwrap_or(0).into(),
                unacked: None,
            })
            .collect();
        let mut queues = Self { topology, all };
        if let (Some(api), true) = (&options.management, options.expect_settled) {
            let vhost = settings.address()?.vhost;
            queues.ask_unacked(api, &vhost).await.context("asking the management API")?;
        }
        Ok(queues)
    }

    /// Of each queue the larger count of the two looks; what is in workers' hands as seen last.
    pub(super) fn or_more(mut self, earlier: Self) -> Self {
        for (queue, before) in self.all.iter_mut().zip(earlier.all) {
            queue.ready = queue.ready.max(before.ready);
        }
        self
    }

    /// Ready messages of a pool.
    pub(super) fn of_pool(&self, pool: &str) -> i64 {
        let name = self.topology.pool_queue(pool);
        self.all.iter().find(|queue| queue.name == name).map_or(0, |queue| queue.ready)
    }

    /// The queues that carry tasks: pools and delays, neither dead letters nor requests.
    pub(super) fn of_work(&self) -> Vec<&Queue> {
        let other = [self.topology.dead(), self.topology.inbox()];
        self.all.iter().filter(|queue| !other.contains(&queue.name)).collect()
    }

    async fn ask_unacked(&mut self, api: &Url, vhost: &str) -> anyhow::Result<()> {
        let started = tokio::time::Instant::now();
        loop {
            let counts = unacked(api, vhost).await?;
            for queue in &mut self.all {
                queue.unacked =
                    counts.iter().find(|count| count.name == queue.name).map(|count| count.unacked);
            }
            let held = self.of_work().iter().any(|queue| queue.unacked.is_some_and(|n| n > 0));
            if !held || started.elapsed() >= STATISTICS_AGE {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

#[derive(Deserialize)]
struct Counted {
    name: String,
    #[serde(default, rename = "messages_unacknowledged")]
    unacked: i64,
}

async fn unacked(api: &Url, vhost: &str) -> anyhow::Result<Vec<Counted>> {
    let mut url = api.clone();
    url.path_segments_mut()
        .map_err(|()| anyhow::anyhow!("its URL has no path"))?
        .pop_if_empty()
        .extend(["api", "queues", vhost]);
    url.query_pairs_mut().append_pair("columns", "name,messages_unacknowledged");
    let deadline = tokio::time::Instant::now() + ANSWER;
    let response = http::send(http::trusted_client()?.get(url), deadline).await?;
    let status = response.status();
    anyhow::ensure!(status.is_success(), "it answered {status}");
    let body = http::read_limited(response, MOST_BYTES, deadline).await?;
    serde_json::from_slice(&body).context("reading its answer")
}
