//! Consuming: deliveries that are settled exactly once, over a connection that comes back.
//!
//! A [`Delivery`] is a linear token: not `Clone`, and settling takes it. Acks are cheap and meant
//! to be issued together. It never decides what becomes of a task, and an ack that cannot be sent
//! is no error: the broker delivers again and the claim says why there is nothing to do.

mod delivery;
mod session;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use self::delivery::{Delivery, SETTLE_TIMEOUT, Settled};
use self::session::Supervisor;
use super::connection::Settings;
use super::error::Error;
use super::topology::Topology;
use crate::shutdown::Shutdown;

/// What to consume, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The queue, by a name that [`Topology`] gives.
    pub queue: String,
    /// Deliveries held at once, at least 1. A pool's slots, so that "unacked" in the UI means
    /// "running".
    pub prefetch: u16,
    /// Shown in the UI, e.g. `io_pool@host-3`.
    pub tag: String,
}

/// What a consumer wants of its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Consume,
    Pause,
    Stop,
}

/// The deliveries of one queue, across every reconnection.
#[derive(Debug)]
pub struct Consumer {
    deliveries: mpsc::Receiver<Delivery>,
    connected: watch::Receiver<bool>,
    wish: watch::Sender<Wish>,
    soft: CancellationToken,
}

impl Consumer {
    /// Consumes one queue on a connection of its own. See [`Consumers::start`].
    pub fn start(
        settings: &Settings,
        topology: &Topology,
        subscription: Subscription,
        shutdown: &Shutdown,
    ) -> Result<Self, Error> {
        let mut consumers = Consumers::start(settings, topology, vec![subscription], shutdown)?;
        Ok(consumers.pop().expect("one consumer for one subscription"))
    }

    /// The next delivery that can still be settled; `None` after the soft token or
    /// [`Consumer::stop_consuming`], and then for ever.
    ///
    /// To be called until it says so, or the consumer dropped: only then is everything given back
    /// that was sent but not yet handed out. Nothing is lost when it is cancelled while it waits.
    pub async fn next(&mut self) -> Option<Delivery> {
        loop {
            let delivery = self.deliveries.recv().await?;
            if self.soft.is_cancelled() || *self.wish.borrow() == Wish::Stop {
                delivery.requeue().await;
            } else if delivery.is_usable() {
                // One of a lost channel would run a task whose ack cannot be sent any more.
                return Some(delivery);
            }
        }
    }

    /// Takes no more, while what is held can still be settled. What was sent but not yet handed
    /// out goes back to the queue, for others.
    pub async fn stop_consuming(&mut self) {
        self.wish.send_replace(Wish::Stop);
        self.deliveries.close();
        self.give_back().await;
    }

    /// Takes no more until [`Consumer::resume`]; what is held can be settled.
    pub async fn pause(&mut self) {
        self.wish.send_if_modified(|wish| *wish == Wish::Consume && set(wish, Wish::Pause));
        self.give_back().await;
    }

    /// Consumes again after [`Consumer::pause`].
    pub fn resume(&self) {
        self.wish.send_if_modified(|wish| *wish == Wish::Pause && set(wish, Wish::Consume));
    }

    /// True while the queue is being consumed, to be watched.
    pub fn is_connected(&self) -> watch::Receiver<bool> {
        self.connected.clone()
    }

    async fn give_back(&mut self) {
        while let Ok(delivery) = self.deliveries.try_recv() {
            delivery.requeue().await;
        }
    }
}

fn set(wish: &mut Wish, new: Wish) -> bool {
    *wish = new;
    true
}

/// Several queues on one connection, a channel for each.
#[derive(Debug)]
pub struct Consumers;

impl Consumers {
    /// Begins to consume, and to reconnect, on the given shutdown's tracker; answers one consumer
    /// for each subscription, in their order.
    ///
    /// At the soft token the consumers end and the connection stays until every delivery is
    /// settled or dropped, or shortly after the hard token.
    ///
    /// # Errors
    /// Only [`Error::BadUrl`]; an unreachable broker shows in [`Consumer::is_connected`].
    pub fn start(
        settings: &Settings,
        topology: &Topology,
        subscriptions: Vec<Subscription>,
        shutdown: &Shutdown,
    ) -> Result<Vec<Consumer>, Error> {
        settings.address()?;
        let mut supervisor = Supervisor::new(settings.clone(), topology.clone(), shutdown.clone());
        let mut consumers = Vec::with_capacity(subscriptions.len());
        for subscription in subscriptions {
            let (deliver, deliveries) = mpsc::channel(subscription.prefetch.max(1).into());
            let (tell, connected) = watch::channel(false);
            let (wish, wished) = watch::channel(Wish::Consume);
            supervisor.add(subscription, deliver, tell, wished);
            consumers.push(Consumer { deliveries, connected, wish, soft: shutdown.soft.clone() });
        }
        shutdown.spawn(supervisor.run());
        Ok(consumers)
    }
}
