//! Between the broker's bytes and lapin: what would break its parser is taken out of the way.
//!
//! Whoever may publish can send properties that are no UTF-8, and tables nested a thousandfold;
//! the broker passes them on. The first ends lapin's connection, the second, by recursion, its
//! whole process, and since the broker then delivers again, one process after the other. Here such
//! a message loses its properties and says so ([`Fault`]), so that a consumer can put it where the
//! unreadable goes. It never touches a body, nor anything that is sent.

mod frame;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures::{AsyncRead, AsyncWrite, Stream};
use lapin::tcp::AsyncTcpStream;

pub(super) use self::frame::Fault;
use self::frame::{Kind, judge};

/// Bytes read from the socket at once.
const CHUNK: usize = 64 * 1024;
/// Largest frame that is held whole to be looked at; brokers agree on 128 KiB.
const MAX_FRAME_BYTES: usize = 1024 * 1024;
/// Kind, channel and size.
const FRAME_HEAD: usize = 7;

/// lapin's runtime, on guarded connections.
pub(super) type Kit = RuntimeParts<Tokio, Guarding>;

/// The current tokio runtime for lapin.
pub(super) fn runtime() -> Runtime<Kit> {
    Runtime::new(RuntimeParts::new(Tokio::current(), Guarding(Tokio::current())))
}

/// tokio's reactor; its connections are guarded.
#[derive(Clone, Debug)]
pub(super) struct Guarding(Tokio);

impl Reactor for Guarding {
    type TcpStream = Guarded<AsyncTcpStream<<Tokio as Reactor>::TcpStream>>;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: io::Read + io::Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, dur: Duration) -> Self::Sleep {
        self.0.sleep(dur)
    }

    fn interval(&self, dur: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(dur)
    }

    fn tcp_connect_addr(
        &self,
        addr: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(addr);
        async { Ok(Guarded::new(AsyncTcpStream::Plain(connecting.await?))) }
    }
}

/// A connection whose frames have been looked at when they are read.
pub(super) struct Guarded<S> {
    inner: S,
    chunk: Box<[u8]>,
    frames: Frames,
}

impl<S> Guarded<S> {
    /// Guards what is read from a connection, TLS taken off.
    pub(super) fn new(inner: S) -> Self {
        Self { inner, chunk: vec![0; CHUNK].into(), frames: Frames::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            let given = this.frames.give(out);
            if given > 0 || out.is_empty() {
                return Poll::Ready(Ok(given));
            }
            match ready!(Pin::new(&mut this.inner).poll_read(context, &mut this.chunk))? {
                0 => return Poll::Ready(Ok(0)),
                read => this.frames.take(&this.chunk[..read])?,
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_close(context)
    }
}

/// What was read: given away up to `given`, judged up to `judged`, and the start of a frame.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    given: usize,
    judged: usize,
    /// Bytes to come that need no look: the rest of a body, of which only lapin needs the whole.
    passing: usize,
}

impl Frames {
    fn give(&mut self, out: &mut [u8]) -> usize {
        let ready = &self.bytes[self.given..self.judged];
        let count = ready.len().min(out.len());
        out[..count].copy_from_slice(&ready[..count]);
        self.given += count;
        count
    }

    fn take(&mut self, read: &[u8]) -> io::Result<()> {
        self.bytes.drain(..self.given);
        self.judged -= self.given;
        self.given = 0;
        self.bytes.extend_from_slice(read);
        while self.judge_next()? {}
        Ok(())
    }

    /// Judges what comes next; false when more must be read for it.
    fn judge_next(&mut self) -> io::Result<bool> {
        let left = self.bytes.len() - self.judged;
        if self.passing > 0 {
            let passed = self.passing.min(left);
            self.judged += passed;
            self.passing -= passed;
            return Ok(passed > 0);
        }
        let Some(head) = self.bytes[self.judged..].first_chunk::<FRAME_HEAD>() else {
            return Ok(false);
        };
        let [kind, _, _, size @ ..] = *head;
        let size = u32::from_be_bytes(size) as usize;
        let kind = match kind {
            1 => Kind::Method,
            2 => Kind::Header,
            // A broker that speaks another version answers with its protocol header and hangs up.
            b'A' => {
                self.passing = usize::MAX;
                return Ok(true);
            }
            _ => {
                self.passing = FRAME_HEAD + size + 1;
                return Ok(true);
            }
        };
        if size > MAX_FRAME_BYTES {
            let what = format!("a frame of {size} bytes, where {MAX_FRAME_BYTES} are the most");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if left < FRAME_HEAD + size + 1 {
            return Ok(false);
        }
        let payload = self.judged + FRAME_HEAD..self.judged + FRAME_HEAD + size;
        self.judged = payload.end + 1;
        if let Some(other) = judge(kind, &mut self.bytes[payload.clone()]) {
            let length = u32::try_from(other.len()).expect("a few bytes");
            self.bytes[payload.start - 4..payload.start].copy_from_slice(&length.to_be_bytes());
            self.judged = payload.start + other.len() + 1;
            self.bytes.splice(payload, other);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use futures::AsyncReadExt as _;
    use futures::io::Cursor;

    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let size = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&[kind, 0, 1][..], &size, payload, &[0xce]].concat()
    }

    /// Gives what it has in parts of so many bytes.
    struct Parts(Cursor<Vec<u8>>, usize);

    impl AsyncRead for Parts {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            out: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            let Self(bytes, most) = self.get_mut();
            let most = out.len().min(*most);
            Pin::new(bytes).poll_read(context, &mut out[..most])
        }
    }

    async fn read(bytes: &[u8], at_once: usize) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let parts = Parts(Cursor::new(bytes.to_vec()), at_once);
        Guarded::new(parts).read_to_end(&mut out).await.map(|_| out)
    }

    #[tokio::test]
    async fn only_the_faulty_header_changes_however_the_bytes_come() {
        let method = frame(1, b"\0\x0a\0\x0a");
        let good = frame(2, b"\0\x3c\0\0\0\0\0\0\0\0\0\x02\x10\0\x02");
        let bad = frame(2, b"\0\x3c\0\0\0\0\0\0\0\0\0\x02\0\x80\x01\xff");
        let body = frame(3, &vec![7; 100_000]);
        let bytes = [&method[..], &good, &body, &bad, &body, &good].concat();

        let expected = read(&bytes, usize::MAX).await.expect("read");
        for at_once in [1, 7, 1000] {
            assert_eq!(read(&bytes, at_once).await.expect("read"), expected);
        }

        let before = method.len() + good.len() + body.len();
        assert_eq!(expected[..before], bytes[..before]);
        let after = body.len() + good.len();
        assert_eq!(expected[expected.len() - after..], bytes[bytes.len() - after..]);
        let between = &expected[before..expected.len() - after];
        let words = Fault::Text.as_str().as_bytes();
        assert!(between.windows(words.len()).any(|window| window == words));
        let size = u32::try_from(between.len() - FRAME_HEAD - 1).expect("short").to_be_bytes();
        assert_eq!((&between[3..7], between.last()), (&size[..], Some(&0xce)));
    }

    #[tokio::test]
    async fn another_version_and_an_endless_frame_are_not_waited_for() {
        let old = b"AMQP\0\0\x09\x01";
        assert_eq!(read(old, 3).await.expect("read"), old);
        let endless = [1, 0, 1, 0xff, 0, 0, 0, 5];
        assert_eq!(
            read(&endless, 8).await.expect_err("refused").kind(),
            io::ErrorKind::InvalidData
        );
    }
}
