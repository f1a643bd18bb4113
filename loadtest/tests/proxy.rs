//! The link that fails on purpose, before a server that says everything back.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use loadtest::proxy::{Link, Mode};
use shared::shutdown::Shutdown;
use shared::testing::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Longer than anything on this machine takes that arrives at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// What has not arrived after this does not arrive.
const SILENCE: Duration = Duration::from_millis(300);

/// Says back what it hears, and remembers it.
#[derive(Clone)]
struct Echo {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
    open: Arc<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let echo = Self { address, heard: Arc::default(), open: Arc::default() };
        let told = echo.clone();
        let shutdown = Shutdown::new();
        shutdown.clone().spawn(async move {
            // Counted by `open`: one more while a connection lives.
            let Echo { heard, open, .. } = told;
            while let Ok((socket, _)) = listener.accept().await {
                shutdown.spawn(serve(socket, Arc::clone(&heard), Arc::clone(&open)));
            }
        });
        echo
    }

    fn heard(&self) -> Vec<u8> {
        self.heard.lock().expect("not poisoned").clone()
    }

    /// Connections that it has; two of the counted are the listener's and ours.
    fn connections(&self) -> usize {
        Arc::strong_count(&self.open) - 2
    }
}

async fn serve(mut socket: TcpStream, heard: Arc<Mutex<Vec<u8>>>, _open: Arc<()>) {
    let mut piece = [0; 1024];
    while let Ok(read @ 1..) = socket.read(&mut piece).await {
        heard.lock().expect("not poisoned").extend_from_slice(&piece[..read]);
        if socket.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
}

/// A server, a link to it, and a client that has talked through it once.
struct Scene {
    echo: Echo,
    link: Link,
    client: TcpStream,
}

impl Scene {
    async fn open() -> Self {
        let echo = Echo::start().await;
        let link = Link::start(echo.address).await.expect("a link");
        let mut client = TcpStream::connect(link.address()).await.expect("connected");
        assert_eq!(asked(&mut client, b"hello").await, b"hello");
        Self { echo, link, client }
    }
}

async fn asked(client: &mut TcpStream, question: &[u8]) -> Vec<u8> {
    client.write_all(question).await.expect("sent");
    let mut answer = vec![0; question.len()];
    timeout(PATIENCE, client.read_exact(&mut answer)).await.expect("in time").expect("an answer");
    answer
}

/// The reset that a client sees; nothing may come before it.
async fn is_reset(client: &mut TcpStream) {
    let read = timeout(PATIENCE, client.read(&mut [0; 64])).await.expect("in time");
    assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
}

async fn hears_nothing(client: &mut TcpStream) {
    let read = timeout(SILENCE, client.read(&mut [0; 64])).await;
    assert!(read.is_err(), "it heard {read:?}");
}

#[tokio::test]
async fn a_link_passes_bytes_and_ends_and_counts_them() {
    let Scene { echo, link, mut client } = Scene::open().await;

    client.shutdown().await.expect("half closed");
    let end = timeout(PATIENCE, client.read(&mut [0; 8])).await.expect("in time").expect("read");

    assert_eq!(end, 0);
    eventually("both ends are gone", async || (link.counters().living == 0).then_some(())).await;
    let counters = link.counters();
    assert_eq!((counters.opened, counters.passed_up, counters.passed_down), (1, 5, 5));
    assert_eq!((counters.closed_by_fault, counters.swallowed_up), (0, 0));
    assert_eq!(echo.connections(), 0);
}

#[tokio::test]
async fn a_cut_is_a_reset_and_the_next_connection_is_whole() {
    let Scene { echo, link, mut client } = Scene::open().await;

    assert_eq!(link.cut(), 1);
    is_reset(&mut client).await;

    eventually("the server knows", async || (echo.connections() == 0).then_some(())).await;
    let mut next = TcpStream::connect(link.address()).await.expect("connected");
    assert_eq!(asked(&mut next, b"again").await, b"again");
    assert_eq!(link.counters().closed_by_fault, 1);
}

#[tokio::test]
async fn a_black_hole_swallows_what_is_said_and_that_anybody_left() {
    let Scene { echo, link, mut client } = Scene::open().await;
    link.set(Mode::BlackHole);

    client.write_all(b"is anybody there?").await.expect("sent");
    let mut late = TcpStream::connect(link.address()).await.expect("connected");
    late.write_all(b"me too").await.expect("sent");
    hears_nothing(&mut client).await;
    hears_nothing(&mut late).await;
    drop(client);
    eventually("all is swallowed", async || (link.counters().swallowed_up == 23).then_some(()))
        .await;
    assert_eq!(echo.connections(), 1, "the server does not know that its client has gone");
    assert_eq!(echo.heard(), b"hello");

    link.set(Mode::Pass);
    eventually("now it does", async || (echo.connections() == 0).then_some(())).await;
    hears_nothing(&mut late).await;
    let mut next = TcpStream::connect(link.address()).await.expect("connected");
    assert_eq!(asked(&mut next, b"yes").await, b"yes");
}

#[tokio::test]
async fn a_connection_that_lost_bytes_stays_silent_and_one_that_lost_none_goes_on() {
    let Scene { echo, link, mut client } = Scene::open().await;
    let mut quiet = TcpStream::connect(link.address()).await.expect("connected");
    assert_eq!(asked(&mut quiet, b"quiet").await, b"quiet");
    link.set(Mode::BlackHole);
    client.write_all(b"lost").await.expect("sent");
    eventually("swallowed", async || (link.counters().swallowed_up == 4).then_some(())).await;

    link.set(Mode::Pass);

    client.write_all(b"and what follows").await.expect("sent");
    hears_nothing(&mut client).await;
    assert_eq!(asked(&mut quiet, b"goes on").await, b"goes on");
    assert_eq!(echo.heard(), b"helloquietgoes on");
}

#[tokio::test]
async fn one_connection_among_others_can_be_silenced_by_its_first_bytes() {
    let Scene { echo, link, mut client } = Scene::open().await;
    let mut other = TcpStream::connect(link.address()).await.expect("connected");
    assert_eq!(asked(&mut other, b"other").await, b"other");

    assert_eq!(link.silence(b"ell"), 1);

    client.write_all(b"anybody?").await.expect("sent");
    hears_nothing(&mut client).await;
    drop(client);
    assert_eq!(asked(&mut other, b"still here").await, b"still here");
    assert_eq!(echo.connections(), 2, "the server does not know that its client has gone");
    assert_eq!(link.cut(), 2);
    eventually("now it does", async || (echo.connections() == 0).then_some(())).await;
}

#[tokio::test]
async fn a_link_can_be_deaf_in_one_direction() {
    let Scene { echo, link, mut client } = Scene::open().await;
    let mut other = TcpStream::connect(link.address()).await.expect("connected");

    link.set(Mode::DropDown);
    client.write_all(b" down").await.expect("sent");
    eventually("the server hears", async || (echo.heard() == b"hello down").then_some(())).await;
    hears_nothing(&mut client).await;
    link.set(Mode::DropUp);
    other.write_all(b" up").await.expect("sent");
    hears_nothing(&mut other).await;

    assert_eq!(echo.heard(), b"hello down");
    let counters = link.counters();
    assert_eq!((counters.swallowed_down, counters.swallowed_up), (5, 3));
}

#[tokio::test]
async fn a_delay_makes_answers_late_and_its_end_sets_them_free() {
    let Scene { link, mut client, .. } = Scene::open().await;

    link.set(Mode::Delay { base: Duration::from_millis(100), jitter: Duration::from_millis(50) });
    let began = Instant::now();
    assert_eq!(asked(&mut client, b"slow").await, b"slow");
    assert!(began.elapsed() >= Duration::from_millis(200), "late both ways");

    link.set(Mode::Delay { base: Duration::from_secs(3600), jitter: Duration::ZERO });
    client.write_all(b"free").await.expect("sent");
    hears_nothing(&mut client).await;
    link.set(Mode::Pass);
    let mut answer = [0; 4];
    timeout(PATIENCE, client.read_exact(&mut answer)).await.expect("in time").expect("an answer");
    assert_eq!(&answer, b"free");
}

#[tokio::test]
async fn a_trickle_carries_few_bytes_at_a_time() {
    let Scene { link, mut client, .. } = Scene::open().await;

    link.set(Mode::Trickle { bytes: 2, every: Duration::from_millis(20) });
    let began = Instant::now();
    assert_eq!(asked(&mut client, b"ten bytes!").await, b"ten bytes!");

    // Up and down overlap: the first of ten bytes is on its way back when the second leaves.
    assert!(began.elapsed() >= Duration::from_millis(100), "five times two bytes");
}

#[tokio::test]
async fn refused_are_new_connections_only() {
    let Scene { link, mut client, .. } = Scene::open().await;

    link.set(Mode::Refuse);

    let mut next = TcpStream::connect(link.address()).await.expect("the kernel answers first");
    is_reset(&mut next).await;
    assert_eq!(asked(&mut client, b"still here").await, b"still here");
    assert_eq!((link.counters().refused, link.counters().opened), (1, 1));
}

#[tokio::test]
async fn a_server_that_is_away_is_a_refusal() {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = nobody.local_addr().expect("an address");
    drop(nobody);
    let link = Link::start(address).await.expect("a link");

    let mut client = TcpStream::connect(link.address()).await.expect("the kernel answers first");

    is_reset(&mut client).await;
    assert_eq!(link.counters().refused, 1);
}

#[tokio::test]
async fn half_a_frame_arrives_and_then_a_reset() {
    let Scene { echo, link, mut client } = Scene::open().await;

    assert_eq!(link.cut_after_bytes(6), 1);
    assert_eq!(asked(&mut client, b"abc").await, b"abc");
    client.write_all(b"defghi").await.expect("sent");

    eventually("half arrived", async || (echo.heard() == b"helloabcdef").then_some(())).await;
    eventually("reset", async || (link.counters().closed_by_fault == 1).then_some(())).await;
    // The answer to the half may still come, or be lost by the reset.
    let end = timeout(PATIENCE, client.read_to_end(&mut Vec::new())).await.expect("in time");
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    assert_eq!(link.counters().passed_up, 11);
}

#[tokio::test]
async fn a_lost_answer_is_one_that_the_server_has_given() {
    let Scene { echo, link, mut client } = Scene::open().await;
    link.lose_answer_to(b"COMMIT", 1).expect("a pattern");

    assert_eq!(asked(&mut client, b"BEGIN").await, b"BEGIN");
    client.write_all(b"COM").await.expect("sent");
    eventually("the first half", async || (link.counters().passed_down == 13).then_some(())).await;
    client.write_all(b"MIT").await.expect("sent");

    let end = timeout(PATIENCE, client.read_to_end(&mut Vec::new())).await.expect("in time");
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    assert_eq!(echo.heard(), b"helloBEGINCOMMIT", "it was forwarded, and answered");
    let counters = link.counters();
    assert_eq!((counters.answers_lost, counters.closed_by_fault), (1, 1));
    assert_eq!((counters.swallowed_up, counters.swallowed_down), (0, 3));
    let mut next = TcpStream::connect(link.address()).await.expect("connected");
    assert_eq!(asked(&mut next, b"COMMIT").await, b"COMMIT", "once was enough");
}

#[tokio::test]
async fn a_link_that_is_dropped_takes_its_port_and_its_connections_along() {
    let Scene { echo, link, mut client } = Scene::open().await;
    let mut silent = TcpStream::connect(link.address()).await.expect("connected");
    assert_eq!(asked(&mut silent, b"silent").await, b"silent");
    link.set(Mode::BlackHole);
    client.write_all(b"lost").await.expect("sent");
    let mut holed = TcpStream::connect(link.address()).await.expect("connected");
    eventually("all are there", async || (link.counters().living == 3).then_some(())).await;
    let address = link.address();

    drop(link);

    for socket in [&mut client, &mut silent, &mut holed] {
        let end = timeout(PATIENCE, socket.read(&mut [0; 8])).await.expect("in time");
        assert!(matches!(end, Ok(0) | Err(_)), "it heard {end:?}");
    }
    eventually("the server's are gone", async || (echo.connections() == 0).then_some(())).await;
    eventually("nobody listens", async || TcpStream::connect(address).await.err()).await;
}
