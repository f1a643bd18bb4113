//! A TCP link that can be made to fail while it is in use: cut, silent, one-way, slow, torn.
//!
//! One [`Link`] is one port of ours in front of one server, so that each process of a fleet can have
//! links of its own. It knows no protocol but one: of PostgreSQL's it reads which statement is being
//! sent, so that the answer of a chosen one can be lost. It never changes a byte that it passes on.

mod answer;
mod connection;
mod counters;
mod statements;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use shared::shutdown::Shutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::debug;

pub use answer::MAX_PATTERN;
pub use counters::Counters;

use answer::{Losses, Wanted};
use connection::{Connection, Ending};
use counters::Tally;

/// A server that does not take a connection is given up after this.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be accepted (no file left, say).
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// How a link behaves, for the connections it has and for new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a cable.
    Pass,
    /// New connections are reset at once; those that live go on. [`Link::cut`] ends them.
    Refuse,
    /// Nothing arrives anywhere, not even the end of a connection; whoever dials is answered by
    /// nobody. A connection that lost bytes stays silent when the mode ends: they cannot come again.
    BlackHole,
    /// As [`Mode::BlackHole`], from the server to the client only.
    DropDown,
    /// As [`Mode::BlackHole`], from the client to the server only.
    DropUp,
    /// Everything is late, both ways, by `base` and up to `jitter` more.
    Delay {
        /// At least this.
        base: Duration,
        /// At most this more.
        jitter: Duration,
    },
    /// So few bytes at a time, both ways.
    Trickle {
        /// How many.
        bytes: usize,
        /// The pause before each.
        every: Duration,
    },
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Mode {
    fn swallows(self, way: Way) -> bool {
        match self {
            Self::BlackHole => true,
            Self::DropUp => way == Way::Up,
            Self::DropDown => way == Way::Down,
            Self::Pass | Self::Refuse | Self::Delay { .. } | Self::Trickle { .. } => false,
        }
    }
}

/// A link. Dropped, its port and all its connections close.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
    shutdown: Shutdown,
}

/// What the connections of a link share.
#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    mode: watch::Sender<Mode>,
    tally: Tally,
    losses: Mutex<Losses>,
    living: Mutex<HashMap<u64, Arc<Connection>>>,
    numbers: AtomicU64,
}

impl Link {
    /// Listens on a free port of 127.0.0.1 and leads to `target`.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(target: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .with_context(|| format!("listening for a link to {target}"))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            mode: watch::Sender::new(Mode::Pass),
            tally: Tally::default(),
            losses: Mutex::default(),
            living: Mutex::default(),
            numbers: AtomicU64::new(0),
        });
        let shutdown = Shutdown::new();
        shutdown.spawn(accept(listener, Arc::clone(&shared), shutdown.clone()));
        Ok(Self { address, shared, shutdown })
    }

    /// Where clients dial.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.shared.tally.read(self.shared.living().len())
    }

    /// Switches, also for the connections that live.
    pub fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// Resets all connections now; answers how many there were.
    pub fn cut(&self) -> usize {
        let living = self.shared.living();
        living.values().for_each(|connection| connection.cut());
        living.len()
    }

    /// Lets so many more bytes of each living connection go to the server, then resets it: half a
    /// frame. Answers how many connections there are.
    pub fn cut_after_bytes(&self, up: u64) -> usize {
        let living = self.shared.living();
        living.values().for_each(|connection| connection.cut_after(up));
        living.len()
    }

    /// Silences those living connections, both ways and for ever, whose client's first bytes had
    /// these: a half-open connection among healthy ones. Answers how many.
    ///
    /// AMQP's greeting has the connection's name, `worker@host#123 publish`.
    pub fn silence(&self, greeted: &[u8]) -> usize {
        self.shared.living().values().filter(|connection| connection.silence_if(greeted)).count()
    }

    /// Watches what clients send for `pattern`. What has it is forwarded; then its answer is
    /// swallowed and the connection reset, so that the client cannot know what the server did. As
    /// often as `times` says.
    ///
    /// # Errors
    /// When the pattern is empty or longer than [`MAX_PATTERN`].
    pub fn lose_answer_to(&self, pattern: &[u8], times: u64) -> anyhow::Result<()> {
        self.shared.losses().add(Wanted::bytes(pattern)?, times);
        Ok(())
    }

    /// As [`Link::lose_answer_to`], for executions of a PostgreSQL statement whose text has
    /// `fragment`, also where it was prepared long before, and one of whose values has the bytes
    /// `value` (none for any). A connection under TLS is not understood.
    pub fn lose_answer_to_statement(&self, fragment: &str, value: &[u8], times: u64) {
        let (fragment, value) = (fragment.to_owned(), value.to_vec());
        self.shared.losses().add(Wanted::Statement { fragment, value }, times);
    }

    /// Forgets what [`Link::lose_answer_to`] still waits for.
    pub fn keep_answers(&self) {
        self.shared.losses().clear();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shutdown.hard.cancel();
    }
}

impl Shared {
    fn living(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries one connection from its first byte to its end.
    async fn carry(self: Arc<Self>, client: TcpStream) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(&self));
        self.living().insert(number, Arc::clone(&connection));
        let _listed = Listed { shared: &self, number };
        let mode = *self.mode.borrow();
        if mode == Mode::Refuse {
            return self.refuse(&client);
        }
        self.tally.opened.add(1);
        // A packet that waits for its successor would look like a fault of ours.
        let _ = client.set_nodelay(true);
        if mode == Mode::BlackHole {
            // Its greeting goes nowhere either.
            return connection.hole(&client).await;
        }
        let server = match timeout(DIAL_TIMEOUT, TcpStream::connect(self.target)).await {
            Ok(Ok(server)) => server,
            Ok(Err(error)) => {
                debug!(target = %self.target, %error, "the server does not take a connection");
                return self.refuse(&client);
            }
            Err(_) => return self.refuse(&client),
        };
        let _ = server.set_nodelay(true);
        if connection.carry(client, server).await == Ending::Fault {
            self.tally.closed_by_fault.add(1);
        }
    }

    fn refuse(&self, client: &TcpStream) {
        self.tally.refused.add(1);
        let _ = client.set_zero_linger();
    }
}

/// Takes a connection off the list of the living, however it ended.
struct Listed<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.shared.living().remove(&self.number);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, shutdown: Shutdown) {
    let end = shutdown.hard.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.cancelled() => return,
        };
        match accepted {
            Ok((client, _)) => {
                let (carried, end) = (Arc::clone(&shared).carry(client), end.clone());
                shutdown.spawn(async move {
                    tokio::select! { () = carried => (), () = end.cancelled() => () }
                });
            }
            Err(error) => {
                debug!(%error, "a connection was not accepted");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}
