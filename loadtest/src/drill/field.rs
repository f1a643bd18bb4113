//! The battlefield of one seed: services, ground, fleet, the way in, and the dice.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use shared::domain::task::NewTask;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use super::book::{Book, Entry};
use super::fleet::Fleet;
use super::log::Log;
use super::rows::{PATIENCE, Params, Rows};
use super::services::Services;
use super::{house, load};
use crate::fleet::{Door, Ground, Role};
use crate::stub_llm::{Stub, StubOptions};

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Time of the stub before each answer: long enough for a fault to hit a question in flight.
const MODEL_LATENCY: Duration = Duration::from_millis(200);

/// See the module.
pub struct Field {
    /// PostgreSQL and RabbitMQ, and the words that break them.
    pub services: Arc<Services>,
    /// Database, broker prefix and configuration of this seed.
    pub ground: Ground,
    /// Who is attacked.
    pub fleet: Fleet,
    /// The way in, which goes past the links.
    pub door: Door,
    /// Questions to the seed's database, past the links too.
    pub rows: Rows,
    /// What was given away.
    pub book: Book,
    /// The model, the webhook and the outside effects.
    pub stub: Stub,
    /// How many times slower this machine is than one that the limits are meant for.
    pub pace: u32,
    /// What this seed decides.
    pub dice: StdRng,
    /// The story.
    pub log: Log,
}

impl Field {
    /// Prepares everything and starts the fleet.
    pub async fn open(
        services: Arc<Services>,
        seed: u64,
        pace: u32,
        log: Log,
    ) -> anyhow::Result<Self> {
        let options = StubOptions { latency: MODEL_LATENCY, ..StubOptions::default() };
        let stub = Stub::start(options).await?;
        let ground = house::prepare(&services, &stub.url, pace).await?;
        let door = Door::open(&ground).await?;
        let rows = Rows::new(ground.config().database_url()?.clone());
        let fleet = Fleet::start(&services, &ground, &log).await?;
        log.tell("the fleet is ready");
        let (book, dice) = (Book::default(), StdRng::seed_from_u64(seed));
        Ok(Self { services, ground, fleet, door, rows, book, stub, pace, dice, log })
    }

    /// Stops the fleet and takes its ground away.
    pub async fn close(self) -> anyhow::Result<()> {
        let Self { ground, fleet, door, rows, .. } = self;
        drop((fleet, rows));
        door.close().await;
        ground.clear().await
    }

    /// A fresh direct connection to the seed's database; tries again until the server is there.
    pub async fn connect(&self) -> anyhow::Result<Client> {
        self.rows.connect().await
    }

    /// One number from the seed's database.
    pub async fn count(&self, sql: &str, params: Params<'_>) -> anyhow::Result<i64> {
        self.rows.count(sql, params).await
    }

    /// Hands tasks in, with the end that each of them must have.
    pub async fn accept(&self, tasks: Vec<NewTask>, entry: Entry) -> anyhow::Result<()> {
        self.book.write(&tasks, entry);
        load::commit(&self.door, &tasks).await?;
        load::publish(&self.door, &tasks).await;
        Ok(())
    }

    /// Lets the load flow for so many milliseconds as the dice say.
    pub async fn calm(&mut self, range: Range<u64>) {
        sleep(Duration::from_millis(self.dice.random_range(range))).await;
    }

    /// A worker that runs tasks at this moment, and how many; waits for one.
    pub async fn worker_at_work(&self) -> anyhow::Result<(usize, i64)> {
        let sql =
            "SELECT w.label, count(*) AS held FROM tasks t JOIN workers w ON w.id = t.incarnation
             WHERE t.state = 'running' AND w.fenced_at IS NULL GROUP BY w.label
             ORDER BY held DESC";
        until("a worker is at work", PATIENCE, async || {
            let rows = self.rows.all(sql, &[]).await?;
            Ok(rows.iter().find_map(|row| {
                let at = self.fleet.by_label(row.get("label"))?;
                Some((at, row.get("held")))
            }))
        })
        .await
    }

    /// The producer that leads, and its term; waits for one.
    pub async fn leader(&self) -> anyhow::Result<(usize, i64)> {
        until("a producer leads", PATIENCE, async || {
            let leader = self.door.store.leader().await.ok().flatten().filter(|term| term.alive);
            Ok(leader.and_then(|term| Some((self.fleet.by_label(&term.label)?, term.epoch))))
        })
        .await
    }

    /// One of the posts of a role.
    pub fn any(&mut self, role: Role) -> usize {
        let all = self.fleet.of(role);
        *all.choose(&mut self.dice).expect("a fleet has members of both roles")
    }
}

/// Asks again and again until there is an answer.
///
/// # Errors
/// After `patience`, with what was waited for; an error of the question ends it at once.
pub async fn until<T>(
    what: &str,
    patience: Duration,
    mut question: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = question().await? {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            bail!("not within {patience:?}: {what}");
        }
        sleep(LOOK).await;
    }
}
