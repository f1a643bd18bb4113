//! The relay: publishes what is committed and not yet confirmed by the broker, and marks it.
//!
//! It runs on every producer and, as a backup, on every worker. No transaction is open while it
//! publishes; what was published and not confirmed is published again, which is only a duplicate.
//! It never decides what is due: rows do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tracing::{debug, warn};

use crate::broker::{self, Destination, Publisher};
use crate::domain::delay::rung_for;
use crate::domain::message::Message;
use crate::domain::task::TaskId;
use crate::failpoint;
use crate::shutdown::Shutdown;
use crate::store::{Error, MAX_BATCH, Store, Unpublished};
use crate::telemetry::{metrics, spans};

/// Pause between two looks when nobody pokes: a crash between commit and publish costs this much.
pub const POLL: Duration = Duration::from_secs(1);
/// A look may take this share of the relay's time, so that a long backlog is not scanned all day.
const LOOK_SHARE: u32 = 10;
/// A backup leaves rows to the leader's relay until they are this late, and every relay a dead letter
/// to the worker that recorded it.
pub const BACKUP_GRACE: Duration = Duration::from_secs(3);
/// Pause after the broker took nothing.
const BROKER_AWAY: Duration = Duration::from_millis(500);

/// Publishes committed rows. Clones share the poke.
#[derive(Clone)]
pub struct Relay {
    store: Store,
    publisher: Publisher,
    poke: Arc<Notify>,
    urgent: Arc<Mutex<Vec<TaskId>>>,
    trouble: watch::Sender<Option<Error>>,
}

impl Relay {
    /// A relay over a store and a publisher.
    pub fn new(store: Store, publisher: Publisher) -> Self {
        let trouble = watch::Sender::new(None);
        Self { store, publisher, poke: Arc::default(), urgent: Arc::default(), trouble }
    }

    /// What the database answered to the last look, unless all was well: for readiness.
    pub fn trouble(&self) -> watch::Receiver<Option<Error>> {
        self.trouble.subscribe()
    }

    /// Asks for a look now.
    pub fn poke(&self) {
        self.poke.notify_one();
    }

    /// Asks to publish these at once, without the patience of a backup: whoever clears a mark knows
    /// best that a message is missing.
    pub fn hurry(&self, tasks: impl IntoIterator<Item = TaskId>) {
        self.urgent().extend(tasks);
        self.poke();
    }

    fn urgent(&self) -> MutexGuard<'_, Vec<TaskId>> {
        self.urgent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until the soft token; `grace` decides how late a row must be to concern this process.
    pub async fn run(&self, grace: impl Fn() -> Duration, shutdown: &Shutdown) {
        while !shutdown.soft.is_cancelled() {
            let started = Instant::now();
            let looked = self.look(grace()).await;
            self.trouble.send_replace(looked.as_ref().err().cloned());
            let pause = match looked {
                Ok(Progress::All) => POLL.max(started.elapsed() * LOOK_SHARE),
                Ok(Progress::More) => Duration::ZERO,
                Ok(Progress::BrokerAway) => BROKER_AWAY,
                Err(error) => {
                    warn!(%error, "the relay could not look; it will again");
                    POLL
                }
            };
            tokio::select! {
                () = shutdown.soft.cancelled() => return,
                () = self.poke.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One look over what is urgent, and over everything that is not published.
    async fn look(&self, grace: Duration) -> Result<Progress, Error> {
        let urgent = std::mem::take(&mut *self.urgent());
        if !urgent.is_empty() {
            self.publish_now(&urgent).await?.tell();
        }
        let released = self.store.release().await?;
        let tasks = self.store.unpublished(None, grace).await?;
        let published = self.publish(tasks).await?;
        let letters = self.publish_letters().await?;
        let found = published.confirmed + published.left;
        if found + letters + released > 0 {
            debug!(found, confirmed = published.confirmed, letters, released, "relayed");
        }
        published.tell();
        Ok(match (found, published.confirmed) {
            (0, _) => Progress::All,
            (_, 0) => Progress::BrokerAway,
            _ => Progress::More,
        })
    }

    /// Publishes the tasks named, at once: right after their commit.
    pub async fn publish_now(&self, ids: &[TaskId]) -> Result<Published, Error> {
        let mut all = Published::default();
        for chunk in ids.chunks(MAX_BATCH) {
            let tasks = self.store.unpublished(Some(chunk), Duration::ZERO).await?;
            let some = self.publish(tasks).await?;
            all.confirmed += some.confirmed;
            all.left += some.left;
            all.error = all.error.or(some.error);
        }
        Ok(all)
    }

    async fn publish(&self, tasks: Vec<Unpublished>) -> Result<Published, Error> {
        let mut batch: Vec<(Destination, Message)> = tasks
            .into_iter()
            .map(|task| {
                let rung = rung_for(task.remaining);
                (rung.map_or(Destination::Tasks, Destination::Retry), task.message)
            })
            .collect();
        let (confirmed, error) = self.publish_traced(&mut batch).await;
        let marks: Vec<(TaskId, u32)> =
            confirmed.iter().map(|&n| (batch[n].1.task_id, batch[n].1.run)).collect();
        if !marks.is_empty() {
            failpoint::hit("after_publish").await;
            failpoint::hit("before_mark").await;
            self.store.mark_published(&marks).await?;
        }
        Ok(Published { confirmed: marks.len(), left: batch.len() - marks.len(), error })
    }

    /// Publishes the open dead letters that have no copy in the dead queue yet.
    async fn publish_letters(&self) -> Result<usize, Error> {
        let letters = self.store.unpublished_letters(BACKUP_GRACE).await?;
        let mut batch: Vec<(Destination, Message)> =
            letters.into_iter().map(|message| (Destination::Dead, message)).collect();
        let (confirmed, error) = self.publish_traced(&mut batch).await;
        let marks: Vec<i64> = confirmed.iter().filter_map(|&n| batch[n].1.dead_letter).collect();
        if !marks.is_empty() {
            self.store.mark_letters(&marks).await?;
        }
        Published { confirmed: marks.len(), left: batch.len() - marks.len(), error }.tell();
        Ok(batch.len())
    }

    /// Publishes under a span each; answers which were confirmed, and the first error.
    async fn publish_traced(
        &self,
        batch: &mut [(Destination, Message)],
    ) -> (Vec<usize>, Option<broker::Error>) {
        let spans: Vec<spans::Span> = batch
            .iter_mut()
            .map(|(to, message)| spans::publish_copy(&self.publisher.exchange(*to), message))
            .collect();
        let started = Instant::now();
        let answers = self.publisher.publish_many(batch).await;
        let mut confirmed = Vec::with_capacity(answers.len());
        let mut first_error = None;
        for (n, (answer, span)) in answers.into_iter().zip(spans).enumerate() {
            let exchange = self.publisher.exchange(batch[n].0);
            let kind = answer.as_ref().err().map(broker::Error::kind);
            metrics::message_sent(&exchange, started.elapsed(), kind);
            match answer {
                Ok(()) => confirmed.push(n),
                Err(error) => {
                    span.fail(error.kind(), error.to_string());
                    first_error.get_or_insert(error);
                }
            }
        }
        (confirmed, first_error)
    }
}

/// What became of rows that asked for a message.
#[derive(Debug, Default)]
pub struct Published {
    /// Confirmed by the broker, and marked.
    pub confirmed: usize,
    /// Not confirmed; the rows stay and are published later.
    pub left: usize,
    /// Why not, for the first of them.
    pub error: Option<broker::Error>,
}

impl Published {
    fn tell(&self) {
        if let Some(error) = &self.error {
            warn!(%error, left = self.left, "not published; the rows stay and are published later");
        }
    }
}

enum Progress {
    All,
    More,
    BrokerAway,
}
