//! Publishing: one connection, one channel, a window of confirms, and a loop that reconnects.
//!
//! A publish succeeds only when the broker has confirmed the message *and* not returned it. It
//! never retries: who publishes owns a row that still says "unpublished", and comes again.

mod pulse;
mod readiness;
mod session;
mod supervisor;

use std::time::Duration;

use futures::{StreamExt as _, stream};
use lapin::types::ShortString;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

pub use self::readiness::{REFUSAL_SHOWS, Readiness};
pub(super) use self::session::{confirming, publish};
use self::supervisor::Supervisor;
use super::connection::Settings;
use super::declare::short;
use super::error::{Address, Error};
use super::headers::{self, Header, Properties, one_line};
use super::topology::Topology;
use crate::domain::delay::Rung;
use crate::domain::message::Message;
use crate::domain::outcome::ErrorClass;
use crate::shutdown::Shutdown;
use crate::telemetry::spans;

/// Longest wait for a confirm, queueing included.
pub const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages published and not yet confirmed, at most. Measured: 50 are enough for two thirds of
/// the rate, beyond 500 nothing is gained.
pub const WINDOW: usize = 500;
/// Pause between two questions whether the broker is still there.
pub const PULSE_EVERY: Duration = Duration::from_secs(1);
/// A broker that answers none of them for this long is frozen or gone, and the process not ready. Its
/// connection stays until the heartbeat of AMQP gives it up: a busy broker answers in the end.
pub const SILENT_AFTER: Duration = Duration::from_secs(3);
/// How long a publish waits for a connection before it fails.
pub const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Where a task's message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the queue of its pool, now.
    Tasks,
    /// To its pool after a rung's delay.
    Retry(Rung),
    /// To the dead letters.
    Dead,
}

/// How the publishing connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not there yet, or lost.
    Connecting {
        /// Why the last try failed.
        last_error: Option<Error>,
    },
    /// Confirms flow.
    Ready,
    /// Connected, and the broker has answered nothing for [`SILENT_AFTER`].
    Silent,
    /// The broker takes nothing, by its memory or disk alarm.
    Blocked {
        /// The broker's words.
        reason: String,
    },
}

impl State {
    /// True while the broker holds publishers back.
    pub fn is_blocked(&self) -> bool {
        matches!(self, Self::Blocked { .. })
    }

    /// True when a publish can be confirmed at once.
    pub fn is_ready(&self) -> bool {
        *self == Self::Ready
    }
}

/// A handle for publishing; clones share the connection.
///
/// The loop behind it ends at the hard token, or when the soft one is cancelled and every handle
/// is dropped: a draining worker still publishes the retries of what it finishes.
#[derive(Clone, Debug)]
pub struct Publisher {
    requests: mpsc::Sender<Request>,
    readiness: Readiness,
    topology: Topology,
    address: Address,
    app_id: String,
}

impl Publisher {
    /// Begins to connect, and to reconnect, on the given shutdown's tracker.
    ///
    /// # Errors
    /// Only [`Error::BadUrl`]; an unreachable broker shows in [`Publisher::state`].
    pub fn start(
        settings: &Settings,
        topology: &Topology,
        shutdown: &Shutdown,
    ) -> Result<Self, Error> {
        let address = settings.address()?;
        spans::broker_is(&address.host, address.port);
        let (requests, inbox) = mpsc::channel(WINDOW);
        let (state, watched) = watch::channel(State::Connecting { last_error: None });
        let (refused, seen) = watch::channel(None);
        let readiness = Readiness { state: watched, refused: seen };
        let supervisor = Supervisor {
            settings: settings.clone(),
            topology: topology.clone(),
            shutdown: shutdown.clone(),
            state,
            refused,
        };
        shutdown.spawn(supervisor.run(inbox));
        let topology = topology.clone();
        Ok(Self { requests, readiness, topology, address, app_id: settings.app_id().to_owned() })
    }

    /// The connection's state, to be watched.
    pub fn state(&self) -> watch::Receiver<State> {
        self.readiness.state.clone()
    }

    /// Whether messages are taken, for a readiness page.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Waits until it is ready, or gives the last reason why it is not.
    pub async fn ready(&self, patience: Duration) -> Result<(), Error> {
        let mut state = self.state();
        match timeout(patience, state.wait_for(State::is_ready)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(self.usable().err().unwrap_or_else(|| self.too_late("connecting", patience))),
        }
    }

    /// Publishes a task's message: `mandatory`, persistent, confirmed.
    pub async fn publish(&self, to: Destination, message: &Message) -> Result<(), Error> {
        self.connected().await?;
        self.confirmed(self.request(to, message)?).await
    }

    /// Publishes many at once, each with its own answer, in the same order.
    pub async fn publish_many(
        &self,
        messages: &[(Destination, Message)],
    ) -> Vec<Result<(), Error>> {
        if let Err(error) = self.connected().await {
            return vec![Err(error); messages.len()];
        }
        // Requests are made first: a closure that borrows in a stream is not `Send` enough.
        let requests: Vec<_> =
            messages.iter().map(|(to, message)| self.request(*to, message)).collect();
        let publishing = requests.into_iter().map(|request| async move {
            self.usable()?;
            self.confirmed(request?).await
        });
        // Those that cannot be in the window yet would only start their clocks.
        stream::iter(publishing).buffered(WINDOW).collect().await
    }

    /// Publishes any body to any exchange.
    pub async fn publish_raw(
        &self,
        exchange: &str,
        routing_key: &str,
        body: &[u8],
        properties: &Properties,
    ) -> Result<(), Error> {
        self.connected().await?;
        let content = Content {
            exchange: short("the exchange's name", exchange)?,
            routing_key: short("the routing key", routing_key)?,
            body: body.to_vec(),
            properties: headers::of_raw(properties, &self.app_id)?,
        };
        self.confirmed(Box::new(content)).await
    }

    /// Puts a body that is no task message among the dead letters, with the reason, and with the
    /// number of the letter that was kept of it, so that the copy can leave when that is closed.
    pub async fn publish_unreadable(
        &self,
        body: &[u8],
        reason: &str,
        routing_key: &str,
        letter: Option<i64>,
    ) -> Result<(), Error> {
        let mut headers = vec![
            ("error-class".to_owned(), Header::Text(ErrorClass::Invalid.as_str().to_owned())),
            ("error-message".to_owned(), Header::Text(one_line(reason))),
        ];
        headers.extend(letter.map(|letter| ("dead-letter".to_owned(), Header::Number(letter))));
        let content_type = Some("application/octet-stream".to_owned());
        let properties = Properties { content_type, headers, ..Properties::default() };
        self.publish_raw(&self.topology.dead(), routing_key, body, &properties).await
    }

    /// Messages ready in a pool's queue; `None` when the queue does not exist.
    pub async fn ready_count(&self, pool: &str) -> Result<Option<u32>, Error> {
        self.depth(&self.topology.pool_queue(pool)).await
    }

    /// Messages ready in a queue; `None` when it does not exist.
    pub async fn depth(&self, queue: &str) -> Result<Option<u32>, Error> {
        self.connected().await?;
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Depth { queue: queue.to_owned(), reply }, answer, "counting messages")
            .await
    }

    /// The exchange of a destination.
    pub fn exchange(&self, to: Destination) -> String {
        match to {
            Destination::Tasks => self.topology.tasks(),
            Destination::Retry(rung) => self.topology.retry(rung),
            Destination::Dead => self.topology.dead(),
        }
    }

    fn request(&self, to: Destination, message: &Message) -> Result<Box<Content>, Error> {
        let exchange = self.exchange(to);
        let body = serde_json::to_vec(&message.body())
            .expect("a body of strings and UUIDs is always JSON");
        Ok(Box::new(Content {
            exchange: short("the exchange's name", &exchange)?,
            routing_key: short("the routing key", &message.routing_key())?,
            body,
            properties: headers::of_message(message, &self.app_id)?,
        }))
    }

    async fn confirmed(&self, content: Box<Content>) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Publish { content, reply }, answer, "the confirm of a message").await
    }

    async fn ask<T>(
        &self,
        request: Request,
        answer: oneshot::Receiver<Result<T, Error>>,
        what: &str,
    ) -> Result<T, Error> {
        let closed = |why: &str| Error::Closed(why.to_owned());
        let asked = timeout(CONFIRM_TIMEOUT, async {
            let sent = self.requests.send(request).await;
            sent.map_err(|_| closed("this process is shutting down"))?;
            answer.await.map_err(|_| closed("it was lost before the answer"))?
        });
        asked.await.unwrap_or_else(|_| Err(self.too_late(what, CONFIRM_TIMEOUT)))
    }

    /// Gives a connection that is just being made a moment, so that a blip is not an error.
    async fn connected(&self) -> Result<(), Error> {
        if self.usable().is_ok() {
            return Ok(());
        }
        let mut state = self.state();
        let there = |state: &State| !matches!(state, State::Connecting { .. });
        // Its error says that the loop has ended; `usable` tells the same.
        let _ = timeout(CONNECT_PATIENCE, state.wait_for(there)).await;
        self.usable()
    }

    fn usable(&self) -> Result<(), Error> {
        match &*self.readiness.state.borrow() {
            State::Connecting { last_error: Some(error) } => Err(error.clone()),
            State::Connecting { last_error: None } => {
                Err(Error::Closed(format!("{} is not connected yet", self.address)))
            }
            // It may be unblocked, or answer, before the confirm is late.
            State::Ready | State::Silent | State::Blocked { .. } => Ok(()),
        }
    }

    fn too_late(&self, what: &str, after: Duration) -> Error {
        let what = match &*self.readiness.state.borrow() {
            State::Blocked { reason } => {
                format!("{what}; it blocks publishers ({reason}): free its memory or disk")
            }
            _ => what.to_owned(),
        };
        Error::Timeout { what, address: self.address.clone(), after }
    }
}

/// What a handle asks of the loop.
#[derive(Debug)]
enum Request {
    Publish { content: Box<Content>, reply: oneshot::Sender<Result<(), Error>> },
    Depth { queue: String, reply: oneshot::Sender<Result<Option<u32>, Error>> },
}

impl Request {
    fn refuse(self, error: Error) {
        // Whoever no longer waits has been told so by the timeout.
        match self {
            Self::Publish { reply, .. } => drop(reply.send(Err(error))),
            Self::Depth { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

/// A message as AMQP takes it.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) body: Vec<u8>,
    pub(super) properties: lapin::BasicProperties,
}
