//! A client that keeps no rule: AMQP by hand, so that it can send what no library would.

use std::collections::BTreeSet;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Class and method.
type Method = (u16, u16);

const START: Method = (10, 10);
const TUNE: Method = (10, 30);
const OPENED: Method = (10, 41);
const CHANNEL_OPENED: Method = (20, 11);
const CONFIRMING: Method = (85, 11);
const ACK: Method = (60, 80);
const NACK: Method = (60, 120);
const CHANNEL_CLOSED: Method = (20, 40);
const CLOSED: Method = (10, 50);

/// What brokers and clients agree on.
const FRAME_MAX: u32 = 131_072;
/// Kind, channel, size and end.
const FRAME_COST: usize = 8;

/// What is sent: a body, and the properties as they stand in the frame.
#[derive(Clone, Default)]
pub struct Sent {
    pub body: Vec<u8>,
    flags: u16,
    properties: Vec<u8>,
}

impl Sent {
    pub fn body(body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    pub fn headers(self, table: &[u8]) -> Self {
        self.properties(1 << 13, &long(table))
    }

    pub fn message_id(self, id: &[u8]) -> Self {
        self.properties(1 << 7, &short(id))
    }

    /// Properties in the order of their flags.
    pub fn properties(mut self, flags: u16, bytes: &[u8]) -> Self {
        self.flags |= flags;
        self.properties.extend_from_slice(bytes);
        self
    }
}

/// A short text with its length.
pub fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).expect("at most 255 bytes")], text].concat()
}

/// Bytes with their length.
pub fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).expect("short enough").to_be_bytes(), bytes].concat()
}

/// An entry of a table: a name, the letter of a type, and the value in its bytes.
pub fn entry(name: &str, letter: u8, value: &[u8]) -> Vec<u8> {
    [&short(name.as_bytes())[..], &[letter], value].concat()
}

/// A connection with one channel that confirms.
pub struct Raw {
    stream: BufReader<TcpStream>,
    sent: u64,
    open: BTreeSet<u64>,
}

impl Raw {
    /// Connects to `amqp://user:password@host:port/vhost`.
    pub async fn connect(address: &str) -> Self {
        let url = url::Url::parse(address).expect("an address");
        assert_eq!(url.scheme(), "amqp", "this client speaks no TLS");
        let host = (url.host_str().expect("a host"), url.port().unwrap_or(5672));
        let stream = BufReader::new(TcpStream::connect(host).await.expect("a broker"));
        let mut raw = Self { stream, sent: 0, open: BTreeSet::new() };
        raw.stream.write_all(b"AMQP\0\0\x09\x01").await.expect("sent");

        raw.expect(START).await;
        let login = format!("\0{}\0{}", url.username(), url.password().unwrap_or_default());
        let parts = [long(b""), short(b"PLAIN"), long(login.as_bytes()), short(b"en_US")];
        raw.call(0, (10, 11), &parts.concat()).await;
        let tune = raw.expect(TUNE).await;
        let limits = [&tune[..2], &FRAME_MAX.to_be_bytes(), &[0, 0]].concat();
        raw.call(0, (10, 31), &limits).await;
        let vhost = url.path().trim_start_matches('/').replace("%2f", "/").replace("%2F", "/");
        let vhost = if vhost.is_empty() { "/" } else { &vhost };
        raw.call(0, (10, 40), &[short(vhost.as_bytes()), vec![0, 0]].concat()).await;
        raw.expect(OPENED).await;
        raw.call(1, (20, 10), &[0]).await;
        raw.expect(CHANNEL_OPENED).await;
        raw.call(1, (85, 10), &[0]).await;
        raw.expect(CONFIRMING).await;
        raw
    }

    /// Publishes and waits for the confirm; the broker's words when it refuses.
    pub async fn publish(&mut self, to: &str, key: &[u8], sent: &Sent) -> Result<(), String> {
        self.send(to, key, sent).await.map_err(|error| error.to_string())?;
        self.confirmed().await
    }

    /// Publishes, and does not wait.
    pub async fn send(&mut self, to: &str, key: &[u8], sent: &Sent) -> std::io::Result<()> {
        self.sent += 1;
        self.open.insert(self.sent);
        let mut bytes = Vec::with_capacity(sent.body.len() + sent.properties.len() + 100);
        let publish = [&[0, 60, 0, 40, 0, 0][..], &short(to.as_bytes()), &short(key), &[0]];
        frame(&mut bytes, 1, 1, &publish.concat());
        let size = (sent.body.len() as u64).to_be_bytes();
        let head = [&[0, 60, 0, 0][..], &size, &sent.flags.to_be_bytes(), &sent.properties];
        frame(&mut bytes, 2, 1, &head.concat());
        for part in sent.body.chunks(FRAME_MAX as usize - FRAME_COST) {
            frame(&mut bytes, 3, 1, part);
        }
        self.stream.write_all(&bytes).await
    }

    /// Waits until everything sent is confirmed.
    pub async fn confirmed(&mut self) -> Result<(), String> {
        while !self.open.is_empty() {
            let (method, rest) = self.method().await.map_err(|error| error.to_string())?;
            match method {
                ACK => {
                    let tag = u64::from_be_bytes(rest[..8].try_into().expect("a tag"));
                    let above = self.open.split_off(&(tag + 1));
                    let below = std::mem::replace(&mut self.open, above);
                    let is_multiple = rest[8] & 1 == 1;
                    self.open.extend(below.into_iter().filter(|n| !is_multiple && *n != tag));
                }
                NACK => return Err("nack".to_owned()),
                CLOSED | CHANNEL_CLOSED => return Err(reason(&rest)),
                other => panic!("{other:?} instead of a confirm"),
            }
        }
        Ok(())
    }

    async fn expect(&mut self, wanted: Method) -> Vec<u8> {
        let (method, rest) = self.method().await.expect("an answer");
        assert_eq!(method, wanted, "{}", String::from_utf8_lossy(&rest));
        rest
    }

    async fn method(&mut self) -> std::io::Result<(Method, Vec<u8>)> {
        loop {
            let kind = self.stream.read_u8().await?;
            self.stream.read_u16().await?;
            let mut payload = vec![0; self.stream.read_u32().await? as usize];
            self.stream.read_exact(&mut payload).await?;
            self.stream.read_u8().await?;
            // Anything else is a heartbeat.
            if kind == 1 {
                let number = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
                return Ok(((number(0), number(2)), payload[4..].to_vec()));
            }
        }
    }

    async fn call(&mut self, channel: u16, (class, method): Method, arguments: &[u8]) {
        let payload = [&class.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat();
        let mut bytes = Vec::new();
        frame(&mut bytes, 1, channel, &payload);
        self.stream.write_all(&bytes).await.expect("sent");
    }
}

fn frame(bytes: &mut Vec<u8>, kind: u8, channel: u16, payload: &[u8]) {
    bytes.push(kind);
    bytes.extend_from_slice(&channel.to_be_bytes());
    bytes.extend_from_slice(&long(payload));
    bytes.push(0xce);
}

/// `501 FRAME_ERROR - …`
fn reason(close: &[u8]) -> String {
    let code = u16::from_be_bytes([close[0], close[1]]);
    let text = &close[3..3 + usize::from(close[2])];
    format!("{code} {}", String::from_utf8_lossy(text))
}
