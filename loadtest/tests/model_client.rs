//! The client of model endpoints against the stub and against raw sockets: addresses, keys, streams,
//! and what networks do. No database: what is kept of a call is told in `handlers`.
//!
//! Where each case of a provider's behaviour is told, by its number (a test's name begins with it):
//!
//! | case | what | where |
//! |---|---|---|
//! | 1, 2, 6 | waits that are asked for | `model_fleet` |
//! | 4 | a long wait parks the task | `handlers::chat` |
//! | 5 | an account without quota | `handlers::chat` |
//! | 7 | an error inside a 200 | `handlers::cases`, `shared::llm::classify` |
//! | 8 | choices that are none, content in parts | here |
//! | 9 | reasons of an end | here, `shared::llm::judge` |
//! | 10 | a prompt that is filtered | `handlers::cases` |
//! | 11 | no hidden retry | `model_fleet`, `handlers::chat` |
//! | 12 | pages instead of answers | here |
//! | 14 | byte order marks, blank lines | here |
//! | 16 | base URLs | here, `shared::llm::endpoint` |
//! | 17 | the other name of the limit | `handlers::chat` |
//! | 18 | keys | here, `shared::llm::key` |
//! | 19 | proxies | `doctor`, `shared::http::proxy` |
//! | 20 | slow, silent and dripping answers | here, `model_fleet` |
//! | 21 | a worker dies while the model thinks | `model_fleet` |
//! | 23 | usage in every dress | `handlers::cases`, `shared::llm::usage` |
//! | 25 | tools | here, `handlers::quality`, `shared::domain::tools` |
//! | 28 | another model answers | `handlers::cases` |
//! | 29 | a rate over a fleet | beside the quota |
//! | 30 | redirects | here |
//! | 31, 32 | long lines, NUL, lone surrogates | here, `handlers::cases` |
//! | 33 | old and idle connections | here |

#[path = "model_client/answers.rs"]
mod answers;
#[path = "model_client/doors.rs"]
mod doors;
#[path = "model_client/sockets.rs"]
mod sockets;
#[path = "model_client/streams.rs"]
mod streams;

use std::time::Duration;

use loadtest::stub_llm::{Fault, Stub, StubOptions};
use shared::config;
use shared::llm::{ChatAnswer, ChatRequest, LlmError, Message, Models};
use tokio::time::Instant;
use uuid::Uuid;

/// The key that must never be seen.
const API_KEY: &str = "sk-canary-0123456789";
/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Models at an address, with a key.
fn models(base_url: &str, key: &str) -> Models {
    let variables = |name: &str| match name {
        "MODEL_BASE_URL" => Some(base_url.to_owned()),
        "MODEL_API_KEY" => Some(key.to_owned()),
        "MODEL_NAME" => Some("m".to_owned()),
        _ => None,
    };
    let config = config::load_str("", "environment", &variables);
    Models::from_config(&config.unwrap_or_else(|problems| panic!("{problems}")))
}

fn question() -> ChatRequest {
    let messages = vec![Message::user("summarise: 17 orders")];
    ChatRequest { messages, max_tokens: Some(100), ..ChatRequest::default() }
}

/// One request, until a deadline.
async fn ask_within(
    models: &Models,
    request: &ChatRequest,
    patience: Duration,
) -> Result<ChatAnswer, LlmError> {
    let call = models.prepare(request)?;
    models.ask(&call, Uuid::new_v4(), None, Instant::now() + patience).await
}

async fn ask(models: &Models, request: &ChatRequest) -> Result<ChatAnswer, LlmError> {
    ask_within(models, request, PATIENCE).await
}

/// The answer of a stub that is told one fault.
async fn told(fault: Fault, request: &ChatRequest) -> Result<ChatAnswer, LlmError> {
    let stub = Stub::start(StubOptions::default()).await.expect("a stub");
    stub.script("*", vec![fault]);
    let answer = ask(&models(&stub.url, "k"), request).await;
    assert_eq!(stub.calls().len(), 1, "one question is one request");
    answer
}

/// The error's type and text.
#[track_caller]
fn failed(answer: Result<ChatAnswer, LlmError>) -> (String, String) {
    let error = answer.expect_err("no answer");
    (error.error_type(), error.to_string())
}
