//! Streams: the same answer piece by piece, and every way for one to end.

use std::time::Duration;

use loadtest::stub_llm::{Fault, StreamFault, Stub, StubOptions};
use serde_json::json;
use shared::llm::{ChatAnswer, ChatRequest, LlmError};

use crate::{ask, ask_within, failed, models, question, told};

fn streamed() -> ChatRequest {
    ChatRequest { stream: true, ..question() }
}

async fn stream(fault: StreamFault) -> Result<ChatAnswer, LlmError> {
    told(Fault { stream: fault, ..Fault::default() }, &streamed()).await
}

#[tokio::test]
async fn a_streamed_answer_is_the_answer_with_its_tokens_and_its_pace() {
    let stub = Stub::start(StubOptions::default()).await.expect("a stub");
    let pause = StreamFault { pause_ms: 5, ..StreamFault::default() };
    let fault = Fault { reasoning: Some("let me think".to_owned()), ..Fault::default() };
    stub.script("*", vec![fault.clone(), Fault { stream: pause, ..fault }]);
    let models = models(&stub.url, "k");

    let whole = ask(&models, &question()).await.expect("an answer");
    let piece_by_piece = ask(&models, &streamed()).await.expect("an answer");

    let calls = stub.calls();
    assert_eq!((calls[0].stream, calls[1].stream), (false, true));
    assert_eq!(whole.text, piece_by_piece.text);
    assert_eq!(whole.reasoning, piece_by_piece.reasoning);
    assert_eq!(whole.usage, piece_by_piece.usage);
    assert!(!piece_by_piece.usage.estimated, "the stream was asked for its tokens");
    assert_eq!((whole.finish_reason, whole.id), (piece_by_piece.finish_reason, piece_by_piece.id));
    assert!(whole.pace.first.is_none());
    let first = piece_by_piece.pace.first.expect("a first piece");
    // The frame before the first word, and the word, with their pauses.
    assert!(first >= Duration::from_millis(10), "{first:?}");
    assert!(piece_by_piece.pace.gaps.len() > 3);
}

#[tokio::test]
async fn what_servers_add_and_forget_changes_nothing() {
    for fault in [
        StreamFault { keep_alive: true, ..StreamFault::default() },
        StreamFault { crlf: true, keep_alive: true, ..StreamFault::default() },
        StreamFault { no_done: true, ..StreamFault::default() },
        StreamFault { ignored: true, ..StreamFault::default() },
        // The end is told: nobody waits for the connection's.
        StreamFault { stay_open: true, ..StreamFault::default() },
    ] {
        let answer = stream(fault.clone()).await;
        let answer = answer.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(answer.text.contains("17 orders"), "{fault:?}");
        assert_eq!(answer.finish_reason.as_deref(), Some("stop"), "{fault:?}");
        assert!(!answer.usage.estimated, "{fault:?}");
    }
}

#[tokio::test]
async fn a_stream_that_tells_no_tokens_is_estimated() {
    let fault = Fault { usage: Some(serde_json::Value::Null), ..Fault::default() };
    let answer = told(fault, &streamed()).await.expect("an answer");
    assert!(answer.usage.estimated && answer.usage.output_tokens > 0);
}

/// It was sent, a part came, and nobody knows what is billed.
#[tokio::test]
async fn a_stream_that_breaks_off_is_an_unknown_outcome() {
    for fault in [
        StreamFault { cut_after: Some(3), ..StreamFault::default() },
        StreamFault { end_after: Some(3), ..StreamFault::default() },
        StreamFault {
            end_after: Some(3),
            error: Some(json!({"error": {"code": 502, "message": "gone"}})),
            ..StreamFault::default()
        },
        StreamFault {
            end_after: Some(3),
            error: Some(json!({"error": "busy"})),
            ..StreamFault::default()
        },
        StreamFault {
            end_after: Some(3),
            error: Some(json!("nonsense")),
            ..StreamFault::default()
        },
    ] {
        let (kind, said) = failed(stream(fault.clone()).await);
        assert_eq!(kind, "unknown_outcome", "{fault:?}: {said}");
        assert!(said.contains("may still have charged"), "{said}");
    }
}

/// The reason of the end is known, so the answer is whole; only its tokens are lost.
#[tokio::test]
async fn a_stream_that_breaks_after_its_last_word_is_an_answer() {
    let all = told(Fault::default(), &streamed()).await.expect("an answer");
    let events = all.text.chars().count().div_ceil(8) + 2;
    for fault in [
        StreamFault { cut_after: Some(events), ..StreamFault::default() },
        StreamFault { end_after: Some(events), ..StreamFault::default() },
    ] {
        let answer = stream(fault.clone()).await.expect("an answer");
        assert_eq!((answer.text == all.text, answer.usage.estimated), (true, true), "{fault:?}");
    }
}

/// Before its first word a stream's error is as good as a status.
#[tokio::test]
async fn an_error_in_place_of_a_stream_has_the_fate_of_its_code() {
    for (error, expected) in [
        (json!({"error": {"code": 429, "message": "slow down"}}), "rate_limit_exceeded"),
        (json!({"error": {"type": "overloaded_error", "message": "busy"}}), "503"),
        (
            json!({"choices": [{"error": {"code": 502, "message": "gone"}, "finish_reason": "error"}]}),
            "502",
        ),
        (json!({"object": "error", "message": "no", "code": 400}), "400"),
    ] {
        for end_after in [0, 1] {
            let fault = StreamFault {
                end_after: Some(end_after),
                error: Some(error.clone()),
                ..StreamFault::default()
            };
            assert_eq!(failed(stream(fault).await).0, expected, "{error} after {end_after}");
        }
    }
    let nothing = StreamFault { end_after: Some(0), ..StreamFault::default() };
    assert_eq!(failed(stream(nothing).await).0, "malformed_response");
    assert_eq!(failed(told(Fault::status(503), &streamed()).await).0, "503");
}

#[tokio::test]
async fn case_20_a_stream_is_left_at_the_calls_deadline() {
    let stub = Stub::start(StubOptions::default()).await.expect("a stub");
    let slow = StreamFault { pause_ms: 60_000, ..StreamFault::default() };
    stub.script("*", vec![Fault { stream: slow, ..Fault::default() }]);

    let patience = Duration::from_millis(500);
    let (kind, said) = failed(ask_within(&models(&stub.url, "k"), &streamed(), patience).await);

    assert_eq!(kind, "unknown_outcome", "{said}");
}
