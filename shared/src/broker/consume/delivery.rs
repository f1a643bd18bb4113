//! One handing-over of a message, and what the broker must do with it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicRejectOptions};
use tokio::time::timeout;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::broker::guard::Fault;
use crate::broker::headers;
use crate::domain::message::{Body, BodyError};

/// Longest wait until an ack is written to the socket.
pub const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// What became of an ack, a reject or a requeue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was sent.
    Sent,
    /// The channel is gone, or the broker did not take it: it will deliver again.
    Lost,
}

/// A message in our hands. Dropped unsettled, it is held until the connection closes and is then
/// delivered again.
#[must_use = "an unsettled delivery blocks a slot of the prefetch until the connection closes"]
pub struct Delivery {
    inner: lapin::message::Delivery,
    body: Result<Body, BodyError>,
    // The last handle on a channel closes it, and with it every delivery's ack is lost.
    _channel: Arc<Channel>,
    // The connection is closed only after the last of these is gone.
    _held: TaskTrackerToken,
}

impl Delivery {
    pub(super) fn new(
        inner: lapin::message::Delivery,
        channel: Arc<Channel>,
        held: TaskTrackerToken,
    ) -> Self {
        let body = match Fault::of(|name| headers::text(&inner.properties, name)) {
            Some(fault) => Err(BodyError::Properties(fault.as_str())),
            None => Body::parse(&inner.data),
        };
        Self { inner, body, _channel: channel, _held: held }
    }

    /// The task pointed to, or why none is.
    pub fn body(&self) -> Result<&Body, &BodyError> {
        self.body.as_ref()
    }

    /// The body as it came.
    pub fn raw(&self) -> &[u8] {
        &self.inner.data
    }

    /// Its number on its channel.
    pub fn tag(&self) -> u64 {
        self.inner.delivery_tag
    }

    /// True when the broker has handed it over before, to anybody.
    pub fn redelivered(&self) -> bool {
        self.inner.redelivered
    }

    /// The exchange it was published or dead-lettered to.
    pub fn exchange(&self) -> &str {
        self.inner.exchange.as_str()
    }

    /// Its routing key. For people only: pool and type are read from the task's row.
    pub fn routing_key(&self) -> &str {
        self.inner.routing_key.as_str()
    }

    /// Property `message_id`.
    pub fn message_id(&self) -> Option<&str> {
        self.inner.properties.message_id().as_ref().map(lapin::types::ShortString::as_str)
    }

    /// Property `type`.
    pub fn message_type(&self) -> Option<&str> {
        self.inner.properties.kind().as_ref().map(lapin::types::ShortString::as_str)
    }

    /// Property `content_type`.
    pub fn content_type(&self) -> Option<&str> {
        self.inner.properties.content_type().as_ref().map(lapin::types::ShortString::as_str)
    }

    /// Property `app_id`.
    pub fn app_id(&self) -> Option<&str> {
        self.inner.properties.app_id().as_ref().map(lapin::types::ShortString::as_str)
    }

    /// Property `timestamp`, in seconds.
    pub fn timestamp(&self) -> Option<u64> {
        *self.inner.properties.timestamp()
    }

    /// Header `traceparent`.
    pub fn traceparent(&self) -> Option<&str> {
        self.header("traceparent")
    }

    /// Header `dead-letter`: the letter of which this is the copy.
    pub fn dead_letter(&self) -> Option<i64> {
        self.header_number("dead-letter")
    }

    /// Header `run`: attempts when it was published.
    pub fn run(&self) -> Option<u32> {
        self.header_number("run").and_then(|run| run.try_into().ok())
    }

    /// Any header that is a text.
    pub fn header(&self, name: &str) -> Option<&str> {
        headers::text(&self.inner.properties, name)
    }

    /// Any header that is a number, or a text that is one.
    pub fn header_number(&self, name: &str) -> Option<i64> {
        headers::number(&self.inner.properties, name)
    }

    /// False when its channel is gone, so that it cannot be settled and comes again.
    pub fn is_usable(&self) -> bool {
        self.inner.acker.usable()
    }

    /// Done with: the broker forgets it.
    pub async fn ack(self) -> Settled {
        self.sent(self.inner.acker.ack(BasicAckOptions::default())).await
    }

    /// Not for us: the broker moves it to the dead letters.
    pub async fn reject(self) -> Settled {
        let options = BasicRejectOptions { requeue: false };
        self.sent(self.inner.acker.reject(options)).await
    }

    /// Back to the queue. By `basic.reject`, which every version of RabbitMQ counts towards the
    /// delivery limit; a `nack` loops for ever on 4.3.
    pub async fn requeue(self) -> Settled {
        let options = BasicRejectOptions { requeue: true };
        self.sent(self.inner.acker.reject(options)).await
    }

    async fn sent(&self, sending: impl Future<Output = lapin::Result<bool>>) -> Settled {
        let settled = match timeout(SETTLE_TIMEOUT, sending).await {
            Ok(Ok(true)) => Settled::Sent,
            Ok(Ok(false) | Err(_)) | Err(_) => Settled::Lost,
        };
        if settled == Settled::Lost {
            tracing::debug!(message.id = self.message_id(), "a settlement was lost");
        }
        settled
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("routing_key", &self.routing_key())
            .field("body", &self.body)
            .field("redelivered", &self.redelivered())
            .finish_non_exhaustive()
    }
}
