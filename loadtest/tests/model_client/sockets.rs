//! What only a bare socket can do: old protocols, connections that close between two questions,
//! silence and drips.

use std::net::Ipv4Addr;
use std::time::Duration;

use loadtest::stub_llm::{Fault, Stub, StubOptions};
use shared::shutdown::Shutdown;
use shared::testing::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::{ask, ask_within, failed, models, question};

const ANSWER: &str = r#"{"model":"m","choices":[{"message":{"content":"pong"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    (listener, url)
}

/// Reads one whole request; false when the connection ended instead.
async fn request(stream: &mut TcpStream) -> bool {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).to_lowercase();
        if let Some(head) = text.find("\r\n\r\n") {
            let length =
                text[..head].lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.trim().parse().expect("a number"));
            if read.len() >= head + 4 + length {
                return true;
            }
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return false,
            Ok(bytes) => read.extend_from_slice(&piece[..bytes]),
        }
    }
}

fn keep_alive() -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ANSWER}",
        ANSWER.len()
    )
}

#[tokio::test]
async fn case_33_an_old_server_that_ends_its_answer_with_the_connection_is_understood() {
    let (listener, url) = listen().await;
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        assert!(request(&mut stream).await);
        let answer = format!("HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{ANSWER}");
        stream.write_all(answer.as_bytes()).await.expect("written");
    };
    let models = models(&url, "k");
    let request = question();
    let (answer, ()) = tokio::join!(ask(&models, &request), serve);
    assert_eq!(answer.expect("an answer").text, "pong");
}

/// The connection that waits in the pool is closed by the server: nothing was sent on it, so another
/// one is taken, and nobody notices.
#[tokio::test]
async fn case_33_a_connection_that_closed_between_two_questions_costs_nothing() {
    let (listener, url) = listen().await;
    let models = models(&url, "k");
    let question = question();
    for round in 0..3 {
        let serve = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            assert!(request(&mut stream).await, "round {round}: one request each");
            stream.write_all(keep_alive().as_bytes()).await.expect("written");
        };
        // The stream is dropped here: closed while it is idle in the client's pool.
        let (answer, ()) = tokio::join!(ask(&models, &question), serve);
        assert_eq!(answer.expect("an answer").text, "pong", "round {round}");
    }
}

/// The server closes just when the question has been written: it may have read it, so it is asked
/// no second time.
#[tokio::test]
async fn case_33_a_question_that_was_sent_is_never_sent_again_by_itself() {
    let (listener, url) = listen().await;
    let models = models(&url, "k");
    let question = question();
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        assert!(request(&mut stream).await);
        stream.write_all(keep_alive().as_bytes()).await.expect("written");
        assert!(request(&mut stream).await, "the second question comes by the same connection");
    };
    let asking = async {
        ask(&models, &question).await.expect("the first answer");
        ask(&models, &question).await
    };
    let (second, ()) = tokio::join!(asking, serve);
    let (kind, said) = failed(second);
    assert_eq!(kind, "unknown_outcome", "{said}");
    let again = tokio::time::timeout(Duration::from_millis(300), listener.accept()).await;
    assert!(again.is_err(), "it knocked again");
}

#[tokio::test]
async fn case_20_a_first_byte_that_takes_its_time_is_waited_for_and_silence_is_not() {
    let stub = Stub::start(StubOptions::default()).await.expect("a stub");
    let slow = Fault { hang_ms: 700, ..Fault::default() };
    stub.script("*", vec![slow, Fault { hang_ms: 600_000, ..Fault::default() }]);
    let models = models(&stub.url, "k");

    ask(&models, &question()).await.expect("slow, and in time");
    let begun = Instant::now();
    let silence = ask_within(&models, &question(), Duration::from_millis(500)).await;

    assert_eq!(failed(silence).0, "unknown_outcome");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// A byte now and then keeps no call alive beyond its deadline.
#[tokio::test]
async fn case_20_a_dripping_answer_ends_at_the_deadline() {
    let stub = Stub::start(StubOptions::default()).await.expect("a stub");
    stub.script("*", vec![Fault { drip_ms: 100, ..Fault::default() }]);
    let begun = Instant::now();
    let patience = Duration::from_secs(1);
    let (kind, said) = failed(ask_within(&models(&stub.url, "k"), &question(), patience).await);
    assert_eq!(kind, "unknown_outcome", "{said}");
    assert!(begun.elapsed() >= patience, "{:?}", begun.elapsed());
}

/// Nothing was sent: nobody listens, or nobody speaks TLS.
#[tokio::test]
async fn what_was_not_sent_is_known_not_to_be_sent() {
    let (listener, url) = listen().await;
    let shutdown = Shutdown::new();
    let tls = url.replace("http://", "https://");
    let plain = shutdown.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await;
        }
    });
    let (kind, said) = failed(ask(&models(&tls, "k"), &question()).await);
    assert_eq!(kind, "connection_error", "{said}");
    assert!(said.contains("the port speaks plain HTTP? try http://"), "{said}");

    plain.abort();
    let said = eventually("a refused connection", || async {
        let (kind, said) = failed(ask(&models(&url, "k"), &question()).await);
        (kind == "connection_error").then_some(said)
    })
    .await;
    assert!(said.contains("the model was not asked") && said.contains("MODEL_BASE_URL"), "{said}");
}
