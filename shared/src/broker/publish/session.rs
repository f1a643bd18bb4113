//! One connection's life as a publisher: requests in, confirms out.
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
use tokio_util::sync::CancellationToken;

use super::pulse::Pulse;
use super::readiness::Refusal;
use super::{CONFIRM_TIMEOUT, Content, Request, State, WINDOW};
use crate::broker::connection::{CHANNEL_TIMEOUT, LOOK_EVERY, Link};
use crate::broker::declare::{depth, ensure};
use crate::broker::error::{Error, is_missing, text};
use crate::broker::topology::Topology;

/// Least time between two repairs of the topology after an unroutable message.
const REPAIR_EVERY: Duration = Duration::from_secs(5);
/// How long open confirms are still awaited after the hard token.
const LAST_CONFIRMS: Duration = Duration::from_secs(1);

/// Why a session ended.
pub(super) enum End {
    /// Nothing more will be published.
    Done,
    /// The connection is gone.
    Lost(Error),
}

/// A channel in confirm mode.
pub(in crate::broker) async fn confirming(link: &Link) -> Result<Channel, Error> {
    let channel = link.channel().await?;
    let selecting = channel.confirm_select(ConfirmSelectOptions::default());
    link.within(CHANNEL_TIMEOUT, "turning on confirms", selecting)
        .await?
        .map_err(|error| Error::of_channel(&error, link.address()))?;
    Ok(channel)
}

/// Publishes with `mandatory`, and waits for the confirm.
pub(in crate::broker) async fn publish(
    channel: Channel,
    content: Box<Content>,
) -> lapin::Result<Confirmation> {
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

/// `None`: the confirm is overdue.
type Answer = (Sent, Option<lapin::Result<Confirmation>>);

/// What a session works on, and whom it tells.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) link: &'a Link,
    pub(super) topology: &'a Topology,
    pub(super) state: &'a watch::Sender<State>,
    pub(super) refused: &'a watch::Sender<Option<Refusal>>,
    pub(super) hard: &'a CancellationToken,
}

/// One connection's life as a publisher.
pub(super) struct Session<'a> {
    ground: Ground<'a>,
    channel: Channel,
    open: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// Questions that answer for themselves, beside the confirms.
    looks: FuturesUnordered<BoxFuture<'a, ()>>,
    returned: Vec<Returned>,
    repaired: Option<Instant>,
    pulse: Pulse,
}

impl<'a> Session<'a> {
    pub(super) fn new(ground: Ground<'a>, channel: Channel) -> Self {
        let (open, looks) = (FuturesUnordered::new(), FuturesUnordered::new());
        let pulse = Pulse::default();
        Self { ground, channel, open, looks, returned: Vec::new(), repaired: None, pulse }
    }

    /// Publishes until the connection is gone or nobody publishes any more.
    pub(super) async fn run(mut self, requests: &mut mpsc::Receiver<Request>) -> End {
        let Ground { link, hard, .. } = self.ground;
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
                        self.begin(request);
                    }
                }
                Some(()) = self.looks.next(), if !self.looks.is_empty() => {}
                Some(event) = events.next() => if let Some(error) = self.heard(event) {
                    return End::Lost(error);
                },
                _ = look.tick() => {
                    if !self.ground.link.is_open() {
                        return End::Lost(Error::Closed("it was lost".to_owned()));
                    }
                    if self.pulse.look(&self.channel, self.ground.state) >= CONFIRM_TIMEOUT {
                        return End::Lost(self.silent("a sign of life"));
                    }
                }
                () = self.pulse.answered() => self.pulse.felt(self.ground.state),
                () = hard.cancelled() => return self.last_confirms().await,
            }
        }
    }

    fn silent(&self, what: &str) -> Error {
        let address = self.ground.link.address().clone();
        Error::Timeout { what: what.to_owned(), address, after: CONFIRM_TIMEOUT }
    }

    fn is_blocked(&self) -> bool {
        self.ground.state.borrow().is_blocked()
    }

    fn begin(&mut self, request: Request) {
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
                let confirm = async move { (sent, timeout(CONFIRM_TIMEOUT, confirm).await.ok()) };
                self.open.push(confirm.boxed());
            }
            Request::Depth { queue, reply } => {
                let link = self.ground.link;
                let look = async move {
                    // Nobody waits any more only after a timeout.
                    let _ = reply.send(depth(link, &queue).await);
                };
                self.looks.push(look.boxed());
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
            if let Some(Ok(Confirmation::Ack(returned) | Confirmation::Nack(returned))) = answer {
                self.returned.extend(returned.take().map(|message| Returned {
                    exchange: message.delivery.exchange,
                    routing_key: message.delivery.routing_key,
                    message_id: message.delivery.properties.message_id().clone(),
                }));
            }
        }
        let (mut unroutable, mut overdue) = (false, false);
        let mut failed = None;
        for (sent, answer) in batch {
            let result = match answer {
                // Its owner has given it up, and publishes again.
                None => {
                    overdue = true;
                    continue;
                }
                Some(Ok(confirmation)) => self.verdict(&sent, &confirmation),
                Some(Err(error)) => {
                    let told = Error::of_channel(&error, self.ground.link.address());
                    failed.get_or_insert(error);
                    Err(told)
                }
            };
            unroutable |= matches!(result, Err(Error::Unroutable { .. }));
            if let Some(refusal) = result.as_ref().err().and_then(Refusal::of) {
                self.ground.refused.send_replace(Some(refusal));
            }
            // Whoever no longer waits has been told so by the timeout, and publishes again.
            let _ = sent.reply.send(result);
        }
        if self.open.is_empty() {
            self.returned.clear();
        }
        // A confirm that is lost would take its place in the window for ever, and what takes one may
        // take them all: only a new connection is sure. While the broker blocks us, none can come.
        if overdue && !self.is_blocked() {
            return Err(self.silent("the confirm of a message"));
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
        if !self.ground.link.is_open() {
            return Err(Error::of_channel(cause, self.ground.link.address()));
        }
        tracing::warn!(cause = text(cause), "the publishing channel closed and is replaced");
        if is_missing(cause) {
            ensure(self.ground.link, self.ground.topology).await?;
        }
        self.channel = confirming(self.ground.link).await?;
        Ok(())
    }

    /// Declares again what somebody has deleted; now and then, as it may not be the topology.
    async fn repair(&mut self) -> Result<(), Error> {
        if self.repaired.is_some_and(|at| at.elapsed() < REPAIR_EVERY) {
            return Ok(());
        }
        self.repaired = Some(Instant::now());
        ensure(self.ground.link, self.ground.topology).await
    }

    /// The reason when the event ends the session.
    fn heard(&self, event: Event) -> Option<Error> {
        match event {
            Event::ConnectionBlocked(reason) => {
                tracing::warn!(reason, "the broker blocks publishers");
                self.ground.state.send_replace(State::Blocked { reason });
                None
            }
            Event::ConnectionUnblocked => {
                tracing::info!("the broker takes messages again");
                self.ground.state.send_replace(State::Ready);
                None
            }
            // It may also be one of a single channel.
            Event::Error(error) if !self.ground.link.is_open() => {
                Some(Error::of_channel(&error, self.ground.link.address()))
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
