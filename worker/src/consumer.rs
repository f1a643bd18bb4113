//! One pool's loop: permit → delivery → process → settle.
//!
//! A permit comes first, so nothing is taken from the queue that no slot could run, and "unacked"
//! in the RabbitMQ UI means "running".

use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::broker::{Consumer, Delivery, Destination, Error, Publisher, one_line};
use shared::domain::delay::rung_for;
use shared::domain::message::{Body, Message};
use shared::domain::task::TaskId;
use shared::failpoint;
use shared::store::{Action, Settlement};
use shared::telemetry::{metrics, spans};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::places::{Places, Slot};
use crate::processor::{Processor, Taken};

/// What a pool's loop works with.
pub struct Pool {
    /// Its queue, for spans.
    pub queue: String,
    /// Its slots.
    pub places: Arc<Places>,
    /// Tasks with a longer timeout are acked right after their claim: the lease protects them, and
    /// the broker's consumer timeout would not.
    pub ack_early_above: Duration,
    /// Runs tasks.
    pub processor: Processor,
    /// Publishes retries and dead letters.
    pub publisher: Publisher,
}

impl Pool {
    /// Takes and runs until the consumer ends or a drain is asked, then waits for its slots.
    pub async fn run(self: Arc<Self>, mut consumer: Consumer, mut draining: watch::Receiver<bool>) {
        let deliveries = TaskTracker::new();
        loop {
            let slot = tokio::select! {
                slot = self.places.take() => slot,
                // All slots may be lost.
                () = self.processor.shutdown.soft.cancelled() => None,
            };
            let Some(slot) = slot else {
                consumer.stop_consuming().await;
                break;
            };
            if self.processor.outage.is_down() {
                consumer.pause().await;
                tokio::select! {
                    () = self.processor.outage.over() => {}
                    // What is in hand is held on, and nothing else waits for the database.
                    () = self.processor.shutdown.soft.cancelled() => {}
                }
                consumer.resume();
            }
            let delivery = tokio::select! {
                next = consumer.next() => next,
                () = asked(&mut draining) => {
                    consumer.stop_consuming().await;
                    None
                }
            };
            let Some(delivery) = delivery else { break };
            self.places.tell();
            let this = self.clone();
            self.processor.shutdown.spawn(deliveries.track_future(async move {
                this.deliver(delivery, &slot).await;
            }));
        }
        // Every delivery is settled; a lost slot has settled its own and is not waited for.
        deliveries.close();
        deliveries.wait().await;
    }

    async fn deliver(&self, delivery: Delivery, slot: &Arc<Slot>) {
        let started = Instant::now();
        metrics::message_consumed(&self.queue);
        let span = spans::process(
            &spans::Delivery {
                queue: &self.queue,
                exchange: delivery.exchange(),
                routing_key: delivery.routing_key(),
                task_id: delivery.message_id().unwrap_or_default(),
                body_size: delivery.raw().len(),
                worker: &self.processor.label,
                redelivered: delivery.redelivered(),
                delivery_tag: delivery.tag(),
            },
            delivery.traceparent(),
            delivery.header("previous-attempt"),
        );
        span.in_scope(async {
            let ids = delivery.body().map(Body::ids).map_err(ToString::to_string);
            match ids {
                Ok(ids) => self.work(delivery, ids, slot).await,
                Err(reason) => self.unreadable(delivery, &reason).await,
            }
        })
        .await;
        metrics::message_processed(&self.queue, started.elapsed(), None);
    }

    /// Runs the tasks of a delivery one after another, then acks it.
    async fn work(&self, delivery: Delivery, ids: Vec<TaskId>, slot: &Arc<Slot>) {
        let letter = delivery.dead_letter();
        let mut held = Some(delivery);
        for id in ids {
            let taken = match letter {
                Some(letter) => self.processor.claim_moved(id, letter, slot).await,
                None => self.processor.claim(id, slot).await,
            };
            let settlement = match taken {
                Taken::Leave => return,
                Taken::Settle(settlement) => settlement,
                Taken::Task(claimed) => {
                    if claimed.timeout() > self.ack_early_above
                        && let Some(delivery) = held.take()
                    {
                        delivery.ack().await;
                    }
                    match self.processor.execute(claimed).await {
                        Some(settlement) => settlement,
                        // The process ends and the row is rescued: the broker may keep the message.
                        None => return,
                    }
                }
            };
            self.settle(settlement, held.as_ref()).await;
        }
        if let Some(delivery) = held {
            failpoint::hit("before_ack").await;
            delivery.ack().await;
        }
    }

    /// Carries out everything of a settlement but the ack, which follows.
    async fn settle(&self, settlement: Settlement, delivery: Option<&Delivery>) {
        match settlement.into_action() {
            Action::Ack | Action::Fenced => {}
            Action::Delay { remaining, mut message, mark } => {
                failpoint::hit("in_retry").await;
                let to = rung_for(remaining).map_or(Destination::Tasks, Destination::Retry);
                if self.publish(to, &mut message).await.is_ok() && mark {
                    failpoint::hit("before_mark").await;
                    let marks = [(message.task_id, message.run)];
                    if let Err(error) = self.processor.store.mark_published(&marks).await {
                        debug!(%error, "the mark is missing; the relay publishes once more");
                    }
                }
            }
            Action::DeadLetter { mut message } => {
                failpoint::hit("in_dead_letter").await;
                let letter = message.dead_letter;
                if self.publish(Destination::Dead, &mut message).await.is_ok()
                    && let Some(letter) = letter
                    && let Err(error) = self.processor.store.mark_letters(&[letter]).await
                {
                    debug!(%error, "the letter's mark is missing; the relay publishes once more");
                }
            }
            Action::Orphan => {
                let Some(delivery) = delivery else { return };
                metrics::message_rejected("orphan");
                let reason = "no such task: an orphan after a failover, or a forged message";
                let key = delivery.routing_key().to_owned();
                let _ = self.publisher.publish_unreadable(delivery.raw(), reason, &key, None).await;
            }
        }
    }

    async fn publish(&self, to: Destination, message: &mut Message) -> Result<(), Error> {
        let span = spans::publish_copy(&self.publisher.exchange(to), message);
        let started = Instant::now();
        let answer = self.publisher.publish(to, message).await;
        let kind = answer.as_ref().err().map(Error::kind);
        metrics::message_sent(&self.publisher.exchange(to), started.elapsed(), kind);
        if let Err(error) = &answer {
            span.fail(error.kind(), error.to_string());
            // The row says that it is unpublished: the relay publishes it.
            warn!(%error, task.id = %message.task_id, "not published by the worker");
        }
        answer
    }

    /// A body that points to no task goes to the dead exchange with the reason, and into a row.
    async fn unreadable(&self, delivery: Delivery, reason: &str) {
        // It may repeat what was sent.
        let reason = one_line(reason);
        let reason = reason.as_str();
        warn!(reason, "an unreadable message was moved to the dead letters");
        metrics::message_rejected("unreadable");
        let keep = || self.processor.store.keep_unreadable(reason, delivery.raw());
        let Some(letter) = self.processor.outage.hold("keep an unreadable message", keep).await
        else {
            return;
        };
        let key = delivery.routing_key().to_owned();
        // A copy with the reason where the broker takes it, else the queue's own dead-lettering.
        match self.publisher.publish_unreadable(delivery.raw(), reason, &key, Some(letter)).await {
            Ok(()) => delivery.ack().await,
            Err(_) => delivery.reject().await,
        };
    }
}

/// Resolves when a drain is asked for.
async fn asked(draining: &mut watch::Receiver<bool>) {
    if draining.wait_for(|draining| *draining).await.is_err() {
        // The heartbeat has ended, and with it the process: its own stop comes by the consumer.
        std::future::pending::<()>().await;
    }
}
