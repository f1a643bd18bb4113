//! The client of OpenAI-compatible chat: one question is one request, and its answer or its error.
//!
//! It keeps no journal and repeats nothing: `worker::llm` writes each call down before it goes out
//! and decides what follows; `producer doctor --model` asks once, for a person. Requests at the
//! endpoint are the calls that were asked for, never more.

mod answer;
mod assembly;
mod body;
mod classify;
mod client;
mod endpoint;
mod error;
mod hint;
mod judge;
mod key;
mod mending;
mod message;
mod ping;
mod reading;
mod request;
pub mod session;
mod sse;
mod usage;

pub use answer::{ChatAnswer, Pace};
pub use body::{json as lenient_json, quote};
pub use client::{Models, Prepared};
pub use endpoint::{Endpoint, Settings};
pub use error::{DEFAULT_WAIT, LlmError, Part, StandIn, spread};
pub use hint::wait_hint;
pub use message::Message;
pub use ping::{Ping, Pong};
pub use request::ChatRequest;
pub use usage::TokenUsage;

pub use crate::domain::answer::{
    AnswerFault, AnswerPolicy, OnEmpty, OnInvalid, OnRefused, OnTruncated,
};
pub use crate::domain::tools::{Tool, ToolCall, ToolChoice, ToolFault};
