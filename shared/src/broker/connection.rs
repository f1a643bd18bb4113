//! One connection: opened within seconds or refused with a reason, and surely closed again.
//!
//! It never reconnects by itself: the loops of [`super::publish`] and [`super::consume`] do, so
//! that topology, channels and consumers are set up anew in one visible place. lapin's own
//! recovery stays off; it hides lost channels from whoever holds a delivery.

use std::fmt;
use std::net::{Shutdown as Direction, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_rs::{Runtime, Tokio};
use futures::{Stream, StreamExt as _};
use lapin::tcp::{AsyncTcpStream, OwnedTLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Channel, Connection, ConnectionProperties, Event};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{interval, timeout};
use url::Url;

use super::error::{Address, Error};
use super::guard::{self, Guarded};

/// Longest wait for name resolution, and for TCP, TLS and AMQP to be ready; together under 10 s.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a name to be resolved.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest wait for a channel to open.
pub const CHANNEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a polite goodbye, before the socket is shut.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often an idle connection is looked at, beside the events that lapin sends.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Seconds between heartbeats unless the URL says `?heartbeat=`: a peer that vanished without a
/// word is given up after twice this. The broker's own suggestion is a minute.
pub const HEARTBEAT_SECONDS: u16 = 15;

/// Parts of a lease in one heartbeat: the broker gives a silent process up after two to three
/// heartbeats, and so about when its lease ends.
const HEARTBEATS_IN_LEASE: u32 = 3;

/// Where the broker is and how this process calls itself there.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `amqp://user:password@host:5672/vhost`, or amqps:// for TLS with the system's roots.
    pub url: SecretString,
    /// First part of every exchange's and queue's name.
    pub prefix: String,
    /// Shown as connection name, with `publish` or `consume` behind it, e.g. `worker@host#123`.
    pub label: String,
    /// Seconds between heartbeats, unless the URL says.
    pub heartbeat: u16,
}

impl Settings {
    /// Takes them together.
    pub fn new(url: SecretString, prefix: impl Into<String>, label: impl Into<String>) -> Self {
        let (prefix, label) = (prefix.into(), label.into());
        Self { url, prefix, label, heartbeat: HEARTBEAT_SECONDS }
    }

    /// Of a process that works under a lease: what was sent to one that froze comes back when its
    /// tasks do. Otherwise a rescued task's new message, dealt to the same frozen process, waits
    /// there for as long as its connection lives.
    #[must_use]
    pub fn with_lease(mut self, ttl: Duration) -> Self {
        let seconds = ttl.div_f64(HEARTBEATS_IN_LEASE.into()).as_secs();
        self.heartbeat =
            u16::try_from(seconds).map_or(HEARTBEAT_SECONDS, |s| s.clamp(1, HEARTBEAT_SECONDS));
        self
    }

    /// Host, port and vhost of the URL, for messages.
    pub fn address(&self) -> Result<Address, Error> {
        let uri = self.uri()?;
        Ok(Address { host: uri.authority.host, port: uri.authority.port, vhost: uri.vhost })
    }

    /// The corner of the broker that these settings use, whatever the host is called from here: two
    /// installations have two.
    pub fn place(&self) -> Result<String, Error> {
        Ok(format!("prefix {:?} in vhost {:?}", self.prefix, self.address()?.vhost))
    }

    /// The program's name: the label up to its `@`.
    pub(super) fn app_id(&self) -> &str {
        self.label.split('@').next().unwrap_or_default()
    }

    fn uri(&self) -> Result<AMQPUri, Error> {
        let text = self.url.expose_secret();
        // `AMQPUri` echoes what it cannot parse, so that the shape is checked first: an error must
        // not carry a password into a log.
        let url = Url::parse(text).map_err(|error| Error::BadUrl(error.to_string()))?;
        if !matches!(url.scheme(), "amqp" | "amqps") {
            return Err(Error::BadUrl(format!("it begins with {:?}", url.scheme())));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(Error::BadUrl("it names no host".into()));
        }
        let mut uri: AMQPUri = text
            .parse()
            .map_err(|_| Error::BadUrl("user, vhost or query is malformed".to_owned()))?;
        if uri.vhost.is_empty() {
            // By the letter `amqp://host/` is the vhost "", which nobody has; everybody means `/`.
            uri.vhost.push('/');
        }
        // IPv6 literals come with their brackets, which the resolver does not know.
        uri.authority.host = uri.authority.host.trim_matches(['[', ']']).to_owned();
        uri.query.heartbeat.get_or_insert(self.heartbeat);
        Ok(uri)
    }
}

/// An open connection. Dropped without [`Link::close`], its socket is shut at once.
pub(super) struct Link {
    connection: Connection,
    socket: Socket,
    address: Address,
}

impl Link {
    /// Connects; `role` ends the connection's name in the UI.
    pub(super) async fn open(settings: &Settings, role: &str) -> Result<Self, Error> {
        let uri = settings.uri()?;
        let address = settings.address()?;
        let targets = resolve(&address).await?;

        let socket = Socket::default();
        let properties = ConnectionProperties::default()
            .with_connection_name(format!("{} {role}", settings.label).into());
        let keep = socket.clone();
        let plain_runtime = Runtime::new(Tokio::current());
        // lapin's own thread dials; without an end it would wait there for a silent peer for ever.
        let opening = Connection::connector(
            uri,
            guard::runtime(),
            async move |uri, _| {
                let dial = async {
                    let plain = AsyncTcpStream::connect(&plain_runtime, &targets[..]).await?;
                    if let AsyncTcpStream::Plain(stream) = &plain {
                        keep.hold(stream.get_ref())?;
                    }
                    if uri.scheme == AMQPScheme::AMQP {
                        return Ok(plain);
                    }
                    let tls = OwnedTLSConfig::default();
                    plain
                        .into_tls(&uri.authority.host, tls.as_ref())
                        .await
                        .map_err(|error| tls_failed(&error))
                };
                let late = |_| Err(std::io::ErrorKind::TimedOut.into());
                let dialled = timeout(CONNECT_TIMEOUT, dial).await.unwrap_or_else(late)?;
                Ok(AsyncTcpStream::Plain(Guarded::new(dialled)))
            },
            properties,
        );
        match timeout(CONNECT_TIMEOUT, opening).await {
            Ok(Ok(connection)) => Ok(Self { connection, socket, address }),
            Ok(Err(error)) => Err(Error::of_connect(&error, &address)),
            Err(_) => {
                // Ends lapin's thread, which has no timeout of its own.
                socket.shut();
                Err(Error::unreachable(
                    &address,
                    format!("no AMQP answer within {CONNECT_TIMEOUT:?}"),
                ))
            }
        }
    }

    /// A new channel.
    pub(super) async fn channel(&self) -> Result<Channel, Error> {
        self.within(CHANNEL_TIMEOUT, "opening a channel", self.connection.create_channel())
            .await?
            .map_err(|error| Error::of_channel(&error, &self.address))
    }

    /// Waits for an answer, but not for ever.
    pub(super) async fn within<T>(
        &self,
        after: Duration,
        what: &str,
        answer: impl Future<Output = T>,
    ) -> Result<T, Error> {
        timeout(after, answer).await.map_err(|_| Error::Timeout {
            what: what.to_owned(),
            address: self.address.clone(),
            after,
        })
    }

    /// Where it leads.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// False once either side has closed it.
    pub(super) fn is_open(&self) -> bool {
        self.connection.status().connected()
    }

    /// What the broker says about the connection itself: blocked, unblocked, failed.
    pub(super) fn events(&self) -> impl Stream<Item = Event> + Send + '_ {
        self.connection.events_listener()
    }

    /// Waits until it is gone; the reason, as far as it is known. To be awaited in one place only:
    /// lapin gives each event to one listener.
    pub(super) async fn lost(&self) -> Error {
        let mut events = pin!(self.events());
        let mut look = interval(LOOK_EVERY);
        loop {
            tokio::select! {
                // An error may also be one of a single channel.
                Some(Event::Error(error)) = events.next() => if !self.is_open() {
                    return Error::of_channel(&error, &self.address);
                },
                _ = look.tick() => if !self.is_open() {
                    return Error::Closed("it was lost".to_owned());
                },
            }
        }
    }

    /// Says goodbye, so that acks on their way arrive, and shuts the socket.
    pub(super) async fn close(self) {
        let goodbye = self.connection.close(200, "done".into());
        match timeout(CLOSE_TIMEOUT, goodbye).await {
            Ok(Ok(())) => (),
            // A channel that is closing at the same moment makes lapin say so here; harmless.
            Ok(Err(error)) => tracing::debug!(%error, "the broker connection closed with an error"),
            Err(_) => tracing::debug!("the broker did not answer the close"),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.socket.shut();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn resolve(address: &Address) -> Result<Vec<SocketAddr>, Error> {
    let lookup = tokio::net::lookup_host((address.host.as_str(), address.port));
    match timeout(RESOLVE_TIMEOUT, lookup).await {
        Ok(Ok(found)) => Ok(found.collect()),
        Ok(Err(error)) => {
            Err(Error::unreachable(address, format!("the name is unknown ({error})")))
        }
        Err(_) => Err(Error::unreachable(address, "the name was not resolved in time")),
    }
}

fn tls_failed(error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("TLS failed ({error})"))
}

/// A second handle on the connection's socket, so that it can be shut from outside. lapin's thread
/// waits without a timeout for a silent peer, and writes nothing while the broker blocks us: only
/// the end of the socket ends it.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Option<TcpStream>>>);

impl Socket {
    fn hold(&self, stream: &impl AsFd) -> std::io::Result<()> {
        let twin = TcpStream::from(stream.as_fd().try_clone_to_owned()?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(twin);
        Ok(())
    }

    fn shut(&self) {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(socket) = taken {
            // Fails only when the peer has already gone.
            let _ = socket.shutdown(Direction::Both);
        }
    }
}
