//! The loop behind [`super::Consumers`]: connect, set up, consume until something ends.
//!
//! A consumer stream that ends is an error: the queue was deleted, or the broker's consumer
//! timeout struck. Then the channel is left to the deliveries that still hold it, and consuming
//! begins on a new one.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::join_all;
use lapin::Channel;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Delivery, Subscription, Wish};
use crate::broker::connection::{CHANNEL_TIMEOUT, Link, Settings};
use crate::broker::declare::{ensure, short};
use crate::broker::error::Error;
use crate::broker::topology::Topology;
use crate::retry::Pauses;
use crate::shutdown::Shutdown;

/// How long deliveries may still be settled after the hard token.
const LAST_ACKS: std::time::Duration = std::time::Duration::from_secs(5);

pub(super) struct Supervisor {
    settings: Settings,
    topology: Topology,
    shutdown: Shutdown,
    lines: Vec<Line>,
    held: TaskTracker,
}

/// One subscription, and the ends that its consumer holds.
struct Line {
    subscription: Subscription,
    deliver: mpsc::Sender<Delivery>,
    connected: watch::Sender<bool>,
    wish: watch::Receiver<Wish>,
}

/// What every line of one connection shares.
struct Session<'a> {
    link: &'a Link,
    topology: &'a Topology,
    held: &'a TaskTracker,
    soft: &'a CancellationToken,
}

impl Supervisor {
    pub(super) fn new(settings: Settings, topology: Topology, shutdown: Shutdown) -> Self {
        Self { settings, topology, shutdown, lines: Vec::new(), held: TaskTracker::new() }
    }

    pub(super) fn add(
        &mut self,
        subscription: Subscription,
        deliver: mpsc::Sender<Delivery>,
        connected: watch::Sender<bool>,
        wish: watch::Receiver<Wish>,
    ) {
        self.lines.push(Line { subscription, deliver, connected, wish });
    }

    /// Connects again and again until the soft token or until every consumer has stopped.
    pub(super) async fn run(mut self) {
        let mut pauses = Pauses::new();
        let mut last = None;
        let soft = self.shutdown.soft.clone();
        while !soft.is_cancelled() && self.lines.iter().any(Line::is_wanted) {
            let opened = tokio::select! {
                opened = self.open() => opened,
                () = soft.cancelled() => return,
            };
            let error = match opened {
                Ok(link) => {
                    tracing::info!(broker = %link.address(), "consuming");
                    pauses.reset();
                    last = None;
                    match self.consume(&link).await {
                        Some(error) => error,
                        None => return self.close(link).await,
                    }
                }
                Err(error) => error,
            };
            if last.as_ref() != Some(&error) {
                tracing::warn!(%error, "not consuming; trying again");
            }
            last = Some(error);
            tokio::select! {
                () = sleep(pauses.next_pause()) => (),
                () = soft.cancelled() => return,
            }
        }
    }

    async fn open(&self) -> Result<Link, Error> {
        let link = Link::open(&self.settings, "consume").await?;
        ensure(&link, &self.topology).await?;
        Ok(link)
    }

    /// Serves every line until all have ended; the reason when the connection was lost.
    async fn consume(&mut self, link: &Link) -> Option<Error> {
        let Self { topology, shutdown, lines, held, .. } = self;
        let session = Session { link, topology, held, soft: &shutdown.soft };
        let serving = lines.iter_mut().map(|line| line.serve(&session));
        let lost = tokio::select! {
            _ = join_all(serving) => None,
            error = link.lost() => Some(error),
        };
        for line in lines {
            line.connected.send_replace(false);
        }
        lost
    }

    /// Closes the connection after the last delivery is settled.
    async fn close(self, link: Link) {
        let Self { shutdown, lines, held, .. } = self;
        // Ends every `next`, and with it the deliveries that nobody has taken.
        drop(lines);
        held.close();
        tokio::select! {
            () = held.wait() => (),
            () = shutdown.hard.cancelled() => {
                // What is given back at the end should still reach the broker.
                let _ = timeout(LAST_ACKS, held.wait()).await;
            }
        }
        link.close().await;
    }
}

impl Line {
    fn is_wanted(&self) -> bool {
        *self.wish.borrow() != Wish::Stop && !self.deliver.is_closed()
    }

    /// Consumes on channel after channel until it is no longer wanted.
    async fn serve(&mut self, session: &Session<'_>) {
        let mut pauses = Pauses::new();
        while let Err(error) = self.channel(session, &mut pauses).await {
            self.connected.send_replace(false);
            tracing::warn!(queue = self.subscription.queue, %error, "consuming ended; again");
            tokio::select! {
                () = sleep(pauses.next_pause()) => (),
                () = session.soft.cancelled() => return,
            }
            // Most likely the queue was deleted. The other queues' deliveries live on this
            // connection, so that it is kept even if this one cannot be declared.
            if let Err(error) = ensure(session.link, session.topology).await {
                tracing::warn!(queue = self.subscription.queue, %error, "the queue is not restored");
            }
        }
        self.connected.send_replace(false);
    }

    /// Consumes on one new channel; `Ok` when it is no longer wanted.
    async fn channel(&mut self, session: &Session<'_>, pauses: &mut Pauses) -> Result<(), Error> {
        let channel = Arc::new(session.link.channel().await?);
        let prefetch = self.subscription.prefetch.max(1);
        let setting = channel.basic_qos(prefetch, BasicQosOptions::default());
        session.answer("setting the prefetch", setting).await?;
        loop {
            let wish = tokio::select! {
                // An error means that the consumer is dropped.
                wish = self.wish.wait_for(|wish| *wish != Wish::Pause) => {
                    wish.map_or(Wish::Stop, |wish| *wish)
                }
                () = session.soft.cancelled() => Wish::Stop,
            };
            if wish == Wish::Stop || session.soft.is_cancelled() {
                return Ok(());
            }
            self.consume(session, &channel, pauses).await?;
        }
    }

    /// Hands over deliveries until the wish changes, then gives back what nobody has seen.
    async fn consume(
        &mut self,
        session: &Session<'_>,
        channel: &Arc<Channel>,
        pauses: &mut Pauses,
    ) -> Result<(), Error> {
        let tag = short("the consumer's tag", &self.subscription.tag)?;
        let starting = channel.basic_consume(
            short("the queue's name", &self.subscription.queue)?,
            tag.clone(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let mut stream = session.answer("starting to consume", starting).await?;
        pauses.reset();
        self.connected.send_replace(true);
        loop {
            tokio::select! {
                delivery = stream.next() => match delivery {
                    Some(Ok(delivery)) => {
                        let delivery =
                            Delivery::new(delivery, channel.clone(), session.held.token());
                        // Fails when the consumer has stopped: back to the queue with it.
                        if let Err(unwanted) = self.deliver.send(delivery).await {
                            unwanted.0.requeue().await;
                        }
                    }
                    Some(Err(error)) => return Err(session.error(&error)),
                    None => return Err(Error::Closed("the broker ended the consumer".to_owned())),
                },
                _ = self.wish.changed() => break,
                () = session.soft.cancelled() => break,
            }
        }
        self.connected.send_replace(false);
        let cancelling = channel.basic_cancel(tag, BasicCancelOptions::default());
        session.answer("ending to consume", cancelling).await?;
        while let Some(Ok(unseen)) = stream.next().await {
            Delivery::new(unseen, channel.clone(), session.held.token()).requeue().await;
        }
        Ok(())
    }
}

impl Session<'_> {
    async fn answer<T>(
        &self,
        what: &str,
        answer: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, Error> {
        self.link.within(CHANNEL_TIMEOUT, what, answer).await?.map_err(|error| self.error(&error))
    }

    fn error(&self, error: &lapin::Error) -> Error {
        Error::of_channel(error, self.link.address())
    }
}
