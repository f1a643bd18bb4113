//! The loop behind a [`super::Publisher`]: connect, set up, publish until something ends.
//!
//! One task owns the channel and every open confirm. lapin gives a returned message to whichever
//! confirm completes next, so that only one who sees all of them can give it to its owner.

use std::pin::pin;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{Channel, Confirmation, Event};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{Content, Request, State, WINDOW};
use crate::broker::connection::{CHANNEL_TIMEOUT, LOOK_EVERY, Link, Settings};
use crate::broker::declare::{depth, ensure};
use crate::broker::error::{Error, is_missing, text};
use crate::broker::topology::Topology;
use crate::retry::Pauses;
use crate::shutdown::Shutdown;

/// Least time between two repairs of the topology after an unroutable message.
const REPAIR_EVERY: Duration = Duration::from_secs(5);
/// How long open confirms are still awaited after the hard token.
const LAST_CONFIRMS: Duration = Duration::from_secs(1);

pub(super) struct Supervisor {
    settings: Settings,
    topology: Topology,
    shutdown: Shutdown,
    state: watch::Sender<State>,
}

/// Why a session ended.
enum End {
    /// Nothing more will be published.
    Done,
    /// The connection is gone.
    Lost(Error),
}

impl Supervisor {
    pub(super) fn new(
        settings: Settings,
        topology: Topology,
        shutdown: Shutdown,
        state: watch::Sender<State>,
    ) -> Self {
        Self { settings, topology, shutdown, state }
    }

    /// Connects again and again until nobody publishes any more.
    pub(super) async fn run(self, mut requests: mpsc::Receiver<Request>) {
        let mut pauses = Pauses::new();
        loop {
            let connecting = self.connect();
            let Some(connected) = self.while_refusing(&mut requests, connecting).await else {
                return;
            };
            let error = match connected {
                Ok((link, channel)) => {
                    tracing::info!(broker = %link.address(), "publishing");
                    pauses.reset();
                    self.state.send_replace(State::Ready);
                    let end = Session::new(&self, &link, channel).run(&mut requests).await;
                    link.close().await;
                    match end {
                        End::Done => return,
                        End::Lost(error) => error,
                    }
                }
                Err(error) => error,
            };
            self.not_ready(error);
            let pause = tokio::time::sleep(pauses.next_pause());
            if self.while_refusing(&mut requests, pause).await.is_none() {
                return;
            }
        }
    }

    async fn connect(&self) -> Result<(Link, Channel), Error> {
        let link = Link::open(&self.settings, "publish").await?;
        ensure(&link, &self.topology).await?;
        let channel = confirming(&link).await?;
        Ok((link, channel))
    }

    /// Tells the handles, and the log when the reason is a new one.
    fn not_ready(&self, error: Error) {
        let told = matches!(
            &*self.state.borrow(),
            State::Connecting { last_error: Some(last) } if *last == error
        );
        if !told {
            tracing::warn!(%error, "not publishing; trying again");
        }
        self.state.send_replace(State::Connecting { last_error: Some(error) });
    }

    /// Does something while answering every request at once with the reason why it is refused.
    /// `None` when the loop should end.
    async fn while_refusing<T>(
        &self,
        requests: &mut mpsc::Receiver<Request>,
        doing: impl Future<Output = T>,
    ) -> Option<T> {
        let mut doing = pin!(doing);
        loop {
            tokio::select! {
                biased;
                () = self.shutdown.hard.cancelled() => return None,
                done = &mut doing => return Some(done),
                request = requests.recv() => request?.refuse(self.reason()),
            }
        }
    }

    fn reason(&self) -> Error {
        match &*self.state.borrow() {
            State::Connecting { last_error: Some(error) } => error.clone(),
            _ => Error::Closed("not connected yet".to_owned()),
        }
    }
}

/// A channel in confirm mode.
async fn confirming(link: &Link) -> Result<Channel, Error> {
    let channel = link.channel().await?;
    let selecting = channel.confirm_select(ConfirmSelectOptions::default());
    link.within(CHANNEL_TIMEOUT, "turning on confirms", selecting)
        .await?
        .map_err(|error| Error::of_channel(&error, link.address()))?;
    Ok(channel)
}

async fn publish(channel: Channel, content: Box<Content>) -> lapin::Result<Confirmation> {
    let Content { exchange, routing_key, body, properties } = *content;
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    channel.basic_publish(exchange, routing_key, options, &body, properties).await?.await
}

/// A message on its way, and who waits for it.
struct Sent {
    exchange: ShortString,
    routing_key: ShortString,
    message_id: Option<ShortString>,
    reply: oneshot::Sender<Result<(), Error>>,
}

/// A message that no queue took, until its confirm is found.
struct Returned {
    exchange: ShortString,
    routing_key: ShortString,
    message_id: Option<ShortString>,
}

impl Returned {
    fn is_of(&self, sent: &Sent) -> bool {
        self.message_id == sent.message_id
            && self.routing_key == sent.routing_key
            && self.exchange == sent.exchange
    }
}

type Answer = (Sent, lapin::Result<Confirmation>);

/// One connection's life as a publisher.
struct Session<'a> {
    supervisor: &'a Supervisor,
    link: &'a Link,
    channel: Channel,
    open: FuturesUnordered<BoxFuture<'static, Answer>>,
    returned: Vec<Returned>,
    repaired: Option<Instant>,
}

impl<'a> Session<'a> {
    fn new(supervisor: &'a Supervisor, link: &'a Link, channel: Channel) -> Self {
        let open = FuturesUnordered::new();
        Self { supervisor, link, channel, open, returned: Vec::new(), repaired: None }
    }

    async fn run(mut self, requests: &mut mpsc::Receiver<Request>) -> End {
        let link = self.link;
        let mut events = pin!(link.events());
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut waiting = Vec::with_capacity(WINDOW);
        let mut asked_for_more = true;
        loop {
            let room = WINDOW - self.open.len();
            let takes = asked_for_more && room > 0 && !self.is_blocked();
            if !asked_for_more && self.open.is_empty() {
                return End::Done;
            }
            tokio::select! {
                Some(answer) = self.open.next(), if !self.open.is_empty() => {
                    if let Err(error) = self.settle(answer).await {
                        return End::Lost(error);
                    }
                }
                count = requests.recv_many(&mut waiting, room), if takes => {
                    asked_for_more = count > 0;
                    for request in waiting.drain(..) {
                        self.begin(request).await;
                    }
                }
                Some(event) = events.next() => if let Some(error) = self.heard(event) {
                    return End::Lost(error);
                },
                _ = look.tick() => if !self.link.is_open() {
                    return End::Lost(Error::Closed("it was lost".to_owned()));
                },
                () = self.supervisor.shutdown.hard.cancelled() => return self.last_confirms().await,
            }
        }
    }

    fn is_blocked(&self) -> bool {
        self.supervisor.state.borrow().is_blocked()
    }

    async fn begin(&mut self, request: Request) {
        match request {
            // Its owner stopped waiting and will come again: a second copy helps nobody.
            Request::Publish { reply, .. } if reply.is_closed() => (),
            Request::Publish { content, reply } => {
                let sent = Sent {
                    exchange: content.exchange.clone(),
                    routing_key: content.routing_key.clone(),
                    message_id: content.properties.message_id().clone(),
                    reply,
                };
                let confirm = publish(self.channel.clone(), content);
                self.open.push(async move { (sent, confirm.await) }.boxed());
            }
            Request::Depth { queue, reply } => {
                // Nobody waits any more only after a timeout.
                let _ = reply.send(depth(self.link, &queue).await);
            }
        }
    }

    /// Answers everything that is confirmed by now. An error means that the connection is gone.
    async fn settle(&mut self, first: Answer) -> Result<(), Error> {
        // All that is ready belongs together: lapin may have given the return of one message to
        // the confirm of another, which then completed no later.
        let mut batch = vec![first];
        while let Some(Some(answer)) = self.open.next().now_or_never() {
            batch.push(answer);
        }
        for (_, answer) in &mut batch {
            if let Ok(Confirmation::Ack(returned) | Confirmation::Nack(returned)) = answer {
                self.returned.extend(returned.take().map(|message| Returned {
                    exchange: message.delivery.exchange,
                    routing_key: message.delivery.routing_key,
                    message_id: message.delivery.properties.message_id().clone(),
                }));
            }
        }
        let mut unroutable = false;
        let mut failed = None;
        for (sent, answer) in batch {
            let result = match answer {
                Ok(confirmation) => self.verdict(&sent, &confirmation),
                Err(error) => {
                    let told = Error::of_channel(&error, self.link.address());
                    failed.get_or_insert(error);
                    Err(told)
                }
            };
            unroutable |= matches!(result, Err(Error::Unroutable { .. }));
            // Whoever no longer waits has been told so by the timeout, and publishes again.
            let _ = sent.reply.send(result);
        }
        if self.open.is_empty() {
            self.returned.clear();
        }
        match failed {
            Some(error) => self.new_channel(&error).await,
            None if unroutable => self.repair().await,
            None => Ok(()),
        }
    }

    fn verdict(&mut self, sent: &Sent, confirmation: &Confirmation) -> Result<(), Error> {
        if let Some(at) = self.returned.iter().position(|returned| returned.is_of(sent)) {
            self.returned.swap_remove(at);
            return Err(Error::Unroutable {
                exchange: sent.exchange.to_string(),
                routing_key: sent.routing_key.to_string(),
            });
        }
        match confirmation {
            Confirmation::Ack(_) => Ok(()),
            Confirmation::Nack(_) => Err(Error::Nacked { exchange: sent.exchange.to_string() }),
            // Only without confirm mode: nothing was promised, so nothing is taken for granted.
            Confirmation::NotRequested => Err(Error::Closed("no confirm was asked for".to_owned())),
        }
    }

    /// Replaces a closed channel. What was open on it has failed with it, published or not.
    async fn new_channel(&mut self, cause: &lapin::Error) -> Result<(), Error> {
        if self.channel.status().connected() {
            return Ok(());
        }
        // Whoever still waits for the old channel learns from the dropped reply that it closed.
        self.open.clear();
        if !self.link.is_open() {
            return Err(Error::of_channel(cause, self.link.address()));
        }
        tracing::warn!(cause = text(cause), "the publishing channel closed and is replaced");
        if is_missing(cause) {
            ensure(self.link, &self.supervisor.topology).await?;
        }
        self.channel = confirming(self.link).await?;
        Ok(())
    }

    /// Declares again what somebody has deleted; now and then, as it may not be the topology.
    async fn repair(&mut self) -> Result<(), Error> {
        if self.repaired.is_some_and(|at| at.elapsed() < REPAIR_EVERY) {
            return Ok(());
        }
        self.repaired = Some(Instant::now());
        ensure(self.link, &self.supervisor.topology).await
    }

    /// The reason when the event ends the session.
    fn heard(&self, event: Event) -> Option<Error> {
        match event {
            Event::ConnectionBlocked(reason) => {
                tracing::warn!(reason, "the broker blocks publishers");
                self.supervisor.state.send_replace(State::Blocked { reason });
                None
            }
            Event::ConnectionUnblocked => {
                tracing::info!("the broker takes messages again");
                self.supervisor.state.send_replace(State::Ready);
                None
            }
            // It may also be one of a single channel.
            Event::Error(error) if !self.link.is_open() => {
                Some(Error::of_channel(&error, self.link.address()))
            }
            _ => None,
        }
    }

    async fn last_confirms(mut self) -> End {
        // Whoever is still without a confirm after this is answered by the dropped reply.
        let _ = timeout(LAST_CONFIRMS, async {
            while let Some(answer) = self.open.next().await {
                self.settle(answer).await?;
            }
            Ok::<(), Error>(())
        })
        .await;
        End::Done
    }
}
