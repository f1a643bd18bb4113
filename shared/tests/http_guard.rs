//! What a payload's URL must not reach, and what an answer must not do to us.
//!
//! The canary is a real server on the loopback interface that counts its visitors. Every story that
//! expects none also shows that the same visit succeeds where it is allowed.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode, header};
use futures::StreamExt;
use shared::config::HttpGuard;
use shared::domain::outcome::ErrorClass;
use shared::http::{self, Call, Error, Guard, Method, PayloadClient};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::Instant;

type Answer = Arc<dyn Fn(&Request) -> Response<Body> + Send + Sync>;

/// A server that counts and answers.
struct Server {
    address: SocketAddr,
    visits: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::AbortHandle>,
}

impl Server {
    async fn start(answer: impl Fn(&Request) -> Response<Body> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
        let address = listener.local_addr().expect("bound");
        let visits = Arc::new(AtomicUsize::new(0));
        let state = (Arc::clone(&visits), Arc::new(answer) as Answer);
        let pages = Router::new().fallback(visit).with_state(state);
        let mut listeners = vec![listener];
        // The same port on ::1, where there is one: half of the odd spellings are IPv6.
        listeners.extend(TcpListener::bind(("::1", address.port())).await.ok());
        let serve = |listener| {
            let pages = pages.clone();
            #[expect(clippy::disallowed_methods, reason = "ends with the Server")]
            tokio::spawn(async move { axum::serve(listener, pages).await }).abort_handle()
        };
        Self { address, visits, tasks: listeners.into_iter().map(serve).collect() }
    }

    async fn canary() -> Self {
        Self::start(|_| Response::new(Body::from("tweet"))).await
    }

    fn port(&self) -> u16 {
        self.address.port()
    }

    fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

async fn visit(
    State((visits, answer)): State<(Arc<AtomicUsize>, Answer)>,
    request: Request,
) -> Response<Body> {
    visits.fetch_add(1, Ordering::SeqCst);
    answer(&request)
}

fn client(allow_hosts: &[String], allow_private: bool) -> PayloadClient {
    let config = HttpGuard { allow_hosts: allow_hosts.to_vec(), allow_private };
    http::payload_client(&Guard::new(&config).expect("guard")).expect("client")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

async fn get(client: &PayloadClient, url: &str) -> Result<http::Response, Error> {
    client.send(Call::get(url)?, soon()).await
}

fn redirect(status: StatusCode, to: String) -> impl Fn(&Request) -> Response<Body> {
    move |_| {
        let answer = Response::builder().status(status).header(header::LOCATION, &to);
        answer.body(Body::empty()).expect("answer")
    }
}

/// S1.
#[tokio::test]
async fn no_spelling_of_this_host_reaches_it() {
    let canary = Server::canary().await;
    let port = canary.port();
    let closed = client(&[], false);
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "①②⑦.0.0.1",
        "127。0。0。1",
        "user:pass@127.0.0.1",
        "0",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "localhost",
        "LOCALHOST",
    ] {
        let error = get(&closed, &format!("http://{host}:{port}/")).await.expect_err(host);
        assert!(matches!(error, Error::Blocked(_)), "{host}: {error:?}");
        assert_eq!((error.class(), error.error_type()), (ErrorClass::Permanent, "ssrf_blocked"));
        assert!(error.to_string().contains("http.allow_hosts") && !error.sent(), "{error}");
    }
    let tricky = format!("http://a@127.0.0.1:{port}#@public.example/");
    get(&closed, &tricky).await.expect_err("parsed as a browser would");
    // Not every resolver knows the absolute spelling; none may lead there.
    let absolute = format!("http://localhost.:{port}/");
    assert!(!get(&closed, &absolute).await.expect_err("refused or unknown").sent());
    assert_eq!(canary.visits(), 0);

    for (allowed, host) in
        [(format!("127.0.0.1:{port}"), "0x7f.1"), ("localhost.".to_owned(), "LOCALHOST")]
    {
        get(&client(&[allowed], false), &format!("http://{host}:{port}/")).await.expect(host);
    }
    get(&client(&[], true), &format!("http://127.1:{port}/")).await.expect("allow_private");
    assert_eq!(canary.visits(), 3);
}

/// S2.
#[tokio::test]
async fn a_redirect_reaches_no_more_than_a_first_request() {
    let canary = Server::canary().await;
    for target in [
        format!("http://127.0.0.1:{}/", canary.port()),
        format!("//0x7f.1:{}/x", canary.port()),
        format!("http://localhost:{}/", canary.port()),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let door = Server::start(redirect(StatusCode::FOUND, target.clone())).await;
        let guarded = client(&[format!("127.0.0.1:{}", door.port())], false);
        let error = get(&guarded, &format!("http://{}/", door.address)).await.expect_err(&target);
        assert!(matches!(error, Error::Blocked(_) | Error::Url(_)), "{target}: {error:?}");
        assert_eq!(door.visits(), 1);
    }
    assert_eq!(canary.visits(), 0);

    let door =
        Server::start(redirect(StatusCode::FOUND, format!("http://{}/", canary.address))).await;
    let both = [format!("127.0.0.1:{}", door.port()), format!("127.0.0.1:{}", canary.port())];
    get(&client(&both, false), &format!("http://{}/", door.address)).await.expect("both allowed");
    assert_eq!(canary.visits(), 1);
}

#[tokio::test]
async fn redirects_have_an_end() {
    let circle = Server::start(redirect(StatusCode::TEMPORARY_REDIRECT, "/again".to_owned())).await;
    let error = get(&client(&[], true), &format!("http://{}/", circle.address)).await;
    let error = error.expect_err("a circle");
    assert!(error.to_string().contains("more than 5 redirects"), "{error}");
    assert_eq!(circle.visits(), 6);
}

#[tokio::test]
async fn a_key_does_not_follow_to_another_host() {
    let names = |request: &Request| {
        let names: Vec<_> = request.headers().keys().map(ToString::to_string).collect();
        Response::new(Body::from(format!("{} {}", request.method(), names.join(" "))))
    };
    let away = Server::start(names).await;
    let door = Server::start(redirect(
        StatusCode::PERMANENT_REDIRECT,
        format!("http://localhost:{}/", away.port()),
    ))
    .await;
    let call = Call {
        method: Method::POST,
        headers: http::headers([
            ("Authorization", "Bearer k"),
            ("X-Api-Key", "k"),
            ("Accept", "*/*"),
        ])
        .expect("headers"),
        body: Some("{}".into()),
        ..Call::get(&format!("http://{}/", door.address)).expect("url")
    };

    let answer = client(&[], true).send(call, soon()).await.expect("followed");
    let seen = http::read_limited(answer, 4096, soon()).await.expect("body");
    let seen = String::from_utf8_lossy(&seen);

    assert!(seen.starts_with("POST") && seen.contains("accept"), "{seen}");
    assert!(seen.contains("traceparent"), "the trace goes on: {seen}");
    assert!(!seen.contains("authorization") && !seen.contains("x-api-key"), "{seen}");
}

/// A client with the operator's key stays with the host that the operator named.
#[tokio::test]
async fn a_trusted_call_is_not_led_away() {
    let away = Server::canary().await;
    let to = format!("http://{}/v1?key=secret", away.address);
    for status in [StatusCode::FOUND, StatusCode::PERMANENT_REDIRECT] {
        let door = Server::start(redirect(status, to.clone())).await;
        let client = http::trusted_client().expect("client");
        let request = client.post(format!("http://{}/v1", door.address)).bearer_auth("key");
        let error = http::send(request, soon()).await.expect_err("not followed");
        assert!(error.to_string().contains(&away.address.to_string()), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(error.class(), ErrorClass::Permanent);
    }
    assert_eq!(away.visits(), 0);

    let home = Server::start(|request| match request.uri().path() {
        "/v1" => redirect(StatusCode::PERMANENT_REDIRECT, "/v1/".to_owned())(request),
        _ => Response::new(Body::from(request.method().to_string())),
    })
    .await;
    let client = http::trusted_client().expect("client");
    let request = client.post(format!("http://{}/v1", home.address));
    let answer = http::send(request, soon()).await.expect("its own host");
    assert_eq!(http::read_limited(answer, 10, soon()).await.expect("body"), "POST");
}

/// 258 zeros for 13 bits: a deflate stream that unpacks to a thousand times its size.
fn bomb() -> Body {
    let pack = |bits: String| -> Vec<u8> {
        let bits: Vec<u8> = bits.bytes().map(|bit| bit - b'0').collect();
        bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, bit| sum << 1 | bit)).collect()
    };
    let repeat = "1100010100000";
    let gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let first = pack(format!("110{}{repeat}", "00110000"));
    let piece = pack(repeat.repeat(8)).repeat(1000);
    let pieces = futures::stream::iter(std::iter::repeat_n(piece, 520));
    let head = futures::stream::iter([gzip, first]);
    Body::from_stream(head.chain(pieces).map(Ok::<_, std::io::Error>))
}

/// Peak resident memory of this process, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") * 1024
}

/// S5: one gibibyte of zeros in seven megabytes.
#[tokio::test]
async fn a_bomb_is_cut_where_the_limit_is() {
    let server = Server::start(|_| {
        let answer = Response::builder().header(header::CONTENT_ENCODING, "gzip");
        answer.body(bomb()).expect("answer")
    })
    .await;
    let client = client(&[], true);
    let url = format!("http://{}/", server.address);

    let before = peak_memory();
    let answer = get(&client, &url).await.expect("answer");
    let error = http::read_limited(answer, 4 << 20, soon()).await.expect_err("too large");
    let grown = peak_memory() - before;

    assert!(matches!(error, Error::TooLarge { limit, .. } if limit == 4 << 20), "{error:?}");
    assert_eq!(error.class(), ErrorClass::Permanent);
    assert!(grown < 64 << 20, "{grown} bytes");
}

#[tokio::test]
async fn the_bomb_would_unpack() {
    let server = Server::start(|_| {
        let answer = Response::builder().header(header::CONTENT_ENCODING, "gzip");
        answer.body(bomb()).expect("answer")
    })
    .await;
    let mut answer =
        get(&client(&[], true), &format!("http://{}/", server.address)).await.expect("answer");
    let mut unpacked = 0;
    while unpacked < 64 << 20 {
        let piece = answer.chunk().await.expect("sound").expect("more");
        assert!(piece.iter().all(|&byte| byte == 0));
        unpacked += piece.len();
    }
}

#[tokio::test]
async fn a_promised_length_over_the_limit_is_not_waited_for() {
    let server = Server::start(|_| Response::new(Body::from(vec![b'x'; 1000]))).await;
    let client = client(&[], true);
    let url = format!("http://{}/", server.address);
    let answer = get(&client, &url).await.expect("answer");
    assert!(matches!(http::read_limited(answer, 999, soon()).await, Err(Error::TooLarge { .. })));
    let answer = get(&client, &url).await.expect("answer");
    assert_eq!(http::read_limited(answer, 1000, soon()).await.expect("fits").len(), 1000);
}

/// What is known after each kind of failure: whether anything was sent.
#[tokio::test]
async fn an_error_says_whether_anything_was_sent() {
    let client = client(&[], true);
    let bind = || async { TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind") };
    let short = || Instant::now() + Duration::from_millis(300);
    let call =
        |address: SocketAddr| Call::get(&format!("http://{address}/?key=s3cret")).expect("url");

    let refused = bind().await.local_addr().expect("bound");
    let error = client.send(call(refused), soon()).await.expect_err("refused");
    assert!(matches!(error, Error::Connect { .. }) && !error.sent(), "{error:?}");
    assert!(error.to_string().contains(&refused.to_string()), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");

    let silent = bind().await;
    let address = silent.local_addr().expect("bound");
    let error = client.send(call(address), short()).await.expect_err("silent");
    assert!(matches!(error, Error::Timeout { .. }) && error.outcome_unknown(), "{error:?}");

    let rude = bind().await;
    let address = rude.local_addr().expect("bound");
    let hang_up = async {
        let (mut stream, _) = rude.accept().await.expect("accept");
        let _ = stream.read(&mut [0; 1024]).await.expect("request");
    };
    let (answer, ()) = tokio::join!(client.send(call(address), soon()), hang_up);
    let error = answer.expect_err("hung up");
    assert!(matches!(error, Error::Lost { .. }) && error.outcome_unknown(), "{error:?}");
    assert_eq!(error.class(), ErrorClass::Retryable);

    let nowhere = Call::get("http://no-such-host.invalid/").expect("url");
    let error = client.send(nowhere, soon()).await.expect_err("no such host");
    assert!(matches!(error, Error::Resolve { .. }) && !error.sent(), "{error:?}");

    let drip = Server::start(|_| {
        let drops = futures::stream::iter([Ok::<_, std::io::Error>("x")]);
        Response::new(Body::from_stream(drops.chain(futures::stream::pending())))
    })
    .await;
    let answer = get(&client, &format!("http://{}/", drip.address)).await.expect("headers");
    let error = http::read_limited(answer, 100, short()).await.expect_err("never ends");
    assert!(matches!(error, Error::Timeout { sent: true, .. }), "{error:?}");
}

/// S4: the child is started with the canary as its proxy.
#[tokio::test]
async fn a_proxy_in_the_environment_is_for_trusted_calls_only() {
    let (proxy, server) = (Server::canary().await, Server::canary().await);
    let url = format!("http://{}/", proxy.address);
    let child = tokio::process::Command::new(env!("CARGO_BIN_EXE_proxied_child"))
        .arg(format!("http://{}/", server.address))
        .env_clear()
        .envs([
            ("HTTP_PROXY", &url),
            ("http_proxy", &url),
            ("HTTPS_PROXY", &url),
            ("ALL_PROXY", &url),
        ])
        .stdin(Stdio::null())
        .output();

    let output = tokio::time::timeout(Duration::from_secs(30), child).await;
    let output = output.expect("in time").expect("started");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((server.visits(), proxy.visits()), (1, 1), "payload direct, trusted by the proxy");
}
