//! One connection through a link: two pumps, each of which asks the mode for every piece.
//!
//! A way that has swallowed bytes stays silent for ever, whatever the mode becomes: what follows
//! the gap would be another fault, a torn stream, and what fills it is gone. While a way is silent
//! the end of its sender stays hidden too, as it would behind a broken cable.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::Rng as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use super::answer::Watch;
use super::{Mode, Shared, Way};

/// Bytes read at once.
const PIECE: usize = 64 * 1024;
/// So much of a client's first bytes is remembered: AMQP's greeting tells the connection's name.
const GREETING: usize = 4096;
/// [`Connection::cut_after`] was not called.
const NO_LIMIT: u64 = u64::MAX;

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Client and server had enough.
    Theirs,
    /// The link reset it.
    Fault,
}

/// A connection, as the link holds it.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    cut: CancellationToken,
    /// Bytes that may still go up.
    allowance: AtomicU64,
    /// The next bytes down are an answer to lose.
    losing: AtomicBool,
    silent_up: AtomicBool,
    silent_down: AtomicBool,
    /// Silent for ever, by [`Connection::silence_if`].
    silenced: AtomicBool,
    /// One sender has ended.
    half_ended: AtomicBool,
    /// What the client said first.
    greeting: Mutex<Vec<u8>>,
}

/// Why a pump stopped.
enum Stop {
    /// A socket is of no use any more.
    Socket(io::Error),
    /// A fault resets the connection.
    Reset,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl Connection {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            cut: CancellationToken::new(),
            allowance: AtomicU64::new(NO_LIMIT),
            losing: AtomicBool::new(false),
            silent_up: AtomicBool::new(false),
            silent_down: AtomicBool::new(false),
            silenced: AtomicBool::new(false),
            half_ended: AtomicBool::new(false),
            greeting: Mutex::default(),
        }
    }

    /// Ends it by a reset.
    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    /// Ends it by a reset after so many more bytes to the server.
    pub(super) fn cut_after(&self, up: u64) {
        self.allowance.store(up, Ordering::Relaxed);
    }

    /// Makes both ways silent for ever when the client's first bytes have these; true then.
    pub(super) fn silence_if(&self, greeted: &[u8]) -> bool {
        let is_meant = self.greeting().windows(greeted.len()).any(|window| window == greeted);
        if is_meant {
            for flag in [&self.silenced, &self.silent_up, &self.silent_down] {
                flag.store(true, Ordering::Relaxed);
            }
        }
        is_meant
    }

    fn greeting(&self) -> MutexGuard<'_, Vec<u8>> {
        self.greeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries bytes until both sides have ended, or a fault ends them.
    pub(super) async fn carry(&self, mut client: TcpStream, mut server: TcpStream) -> Ending {
        let ending = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            // One task for both ways: between two awaits neither sees half of what the other does.
            let both = async {
                tokio::try_join!(self.up(from_client, to_server), self.down(from_server, to_client))
            };
            tokio::select! {
                ended = both => match ended {
                    Ok(_) => Ending::Theirs,
                    Err(Stop::Socket(error)) => {
                        tracing::debug!(%error, "a connection ended");
                        // A reset of one side is one for the other.
                        reset(&client, &server);
                        return Ending::Theirs;
                    }
                    Err(Stop::Reset) => Ending::Fault,
                },
                () = self.cut.cancelled() => Ending::Fault,
            }
        };
        if ending == Ending::Fault {
            reset(&client, &server);
        }
        ending
    }

    /// Swallows what a client says that nobody answers, until it gives up.
    pub(super) async fn hole(&self, client: &TcpStream) {
        let mut piece = vec![0; PIECE];
        let swallow = async {
            loop {
                client.readable().await?;
                match client.try_read(&mut piece) {
                    Ok(0) => return Ok::<(), io::Error>(()),
                    Ok(read) => self.shared.tally.swallowed_up.add(read as u64),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                    Err(error) => return Err(error),
                }
            }
        };
        tokio::select! {
            _ = swallow => (),
            () = self.cut.cancelled() => {
                self.shared.tally.closed_by_fault.add(1);
                let _ = client.set_zero_linger();
            }
        }
    }

    async fn up(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), Stop> {
        let mut piece = vec![0; PIECE];
        let mut watch = Watch::default();
        loop {
            let read = match from.read(&mut piece).await {
                Ok(0) => return self.ended(Way::Up, &mut to, None).await,
                Ok(read) => read,
                Err(error) => return self.ended(Way::Up, &mut to, Some(error)).await,
            };
            let bytes = &piece[..read];
            self.remember(bytes);
            let answer_is_lost = watch.finds(bytes, &mut self.shared.losses());
            let allowed = self.allowance.load(Ordering::Relaxed);
            if allowed <= read as u64 {
                let half = usize::try_from(allowed).unwrap_or(read);
                self.forward(&bytes[..half], &mut to, Way::Up).await?;
                return Err(Stop::Reset);
            }
            if allowed != NO_LIMIT {
                self.allowance.fetch_sub(read as u64, Ordering::Relaxed);
            }
            self.forward(bytes, &mut to, Way::Up).await?;
            if answer_is_lost {
                self.losing.store(true, Ordering::Relaxed);
            }
        }
    }

    async fn down(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), Stop> {
        let mut piece = vec![0; PIECE];
        loop {
            let read = from.read(&mut piece).await;
            if self.losing.load(Ordering::Relaxed) {
                // The server has answered, or has gone: it has done what it would do.
                self.shared.tally.swallowed_down.add(read.unwrap_or(0) as u64);
                self.shared.tally.answers_lost.add(1);
                return Err(Stop::Reset);
            }
            match read {
                Ok(0) => return self.ended(Way::Down, &mut to, None).await,
                Ok(read) => self.forward(&piece[..read], &mut to, Way::Down).await?,
                Err(error) => return self.ended(Way::Down, &mut to, Some(error)).await,
            }
        }
    }

    fn remember(&self, bytes: &[u8]) {
        let mut greeting = self.greeting();
        let room = GREETING.saturating_sub(greeting.len()).min(bytes.len());
        greeting.extend_from_slice(&bytes[..room]);
    }

    /// Does with a piece what the mode says, also when it changes meanwhile.
    async fn forward(&self, mut left: &[u8], to: &mut WriteHalf<'_>, way: Way) -> Result<(), Stop> {
        let mut was_late = false;
        while !left.is_empty() {
            let mode = *self.shared.mode.borrow();
            if mode.swallows(way) || self.is_silent(way) {
                self.silence(way, left.len());
                return Ok(());
            }
            let now = match mode {
                Mode::Delay { base, jitter } if !was_late => {
                    was_late = self.wait(base + share_of(jitter), mode).await;
                    continue;
                }
                Mode::Trickle { bytes, every } => {
                    if !self.wait(every, mode).await {
                        continue;
                    }
                    bytes.clamp(1, left.len())
                }
                _ => left.len(),
            };
            to.write_all(&left[..now]).await?;
            self.passed(way, now);
            left = &left[now..];
        }
        Ok(())
    }

    /// The sender of a way has ended, well or by a reset. Its receiver hears of it unless the way is silent; then both
    /// are reset when the mode allows it: the cable is whole again, and the host of the one that is
    /// gone knows nothing of a connection.
    async fn ended(
        &self,
        way: Way,
        to: &mut WriteHalf<'_>,
        error: Option<io::Error>,
    ) -> Result<(), Stop> {
        let mut mode = self.shared.mode.subscribe();
        let was_silent = self.is_silent(way) || mode.borrow().swallows(way);
        let both_ended = self.half_ended.swap(true, Ordering::Relaxed);
        if was_silent && both_ended {
            // Nobody is left to be deceived.
            return Err(Stop::Reset);
        }
        if self.silenced.load(Ordering::Relaxed) {
            // The other end comes, or a cut.
            return std::future::pending().await;
        }
        // The sender of the modes lives as long as `shared`.
        let _ = mode.wait_for(|mode| !mode.swallows(way)).await;
        if was_silent {
            return Err(Stop::Reset);
        }
        if let Some(error) = error {
            return Err(Stop::Socket(error));
        }
        // Fails when the receiver has gone already.
        let _ = to.shutdown().await;
        Ok(())
    }

    /// Waits; false when the mode became another one meanwhile.
    async fn wait(&self, pause: Duration, mode: Mode) -> bool {
        let mut modes = self.shared.mode.subscribe();
        tokio::select! {
            () = sleep(pause) => true,
            _ = modes.wait_for(|now| *now != mode) => false,
        }
    }

    fn is_silent(&self, way: Way) -> bool {
        self.silent(way).load(Ordering::Relaxed)
    }

    fn silence(&self, way: Way, bytes: usize) {
        self.silent(way).store(true, Ordering::Relaxed);
        match way {
            Way::Up => self.shared.tally.swallowed_up.add(bytes as u64),
            Way::Down => self.shared.tally.swallowed_down.add(bytes as u64),
        }
    }

    fn passed(&self, way: Way, bytes: usize) {
        match way {
            Way::Up => self.shared.tally.passed_up.add(bytes as u64),
            Way::Down => self.shared.tally.passed_down.add(bytes as u64),
        }
    }

    fn silent(&self, way: Way) -> &AtomicBool {
        match way {
            Way::Up => &self.silent_up,
            Way::Down => &self.silent_down,
        }
    }
}

/// Both sockets end with a reset when they are dropped, not with a goodbye.
fn reset(client: &TcpStream, server: &TcpStream) {
    for socket in [client, server] {
        // Fails on a socket that its peer has reset already.
        let _ = socket.set_zero_linger();
    }
}

fn share_of(jitter: Duration) -> Duration {
    jitter.mul_f64(rand::rng().random_range(0.0..=1.0))
}
