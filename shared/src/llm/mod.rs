//! The client of OpenAI-compatible chat: one question is one request, and its answer or its error.
//!
//! It keeps no journal and repeats nothing: `worker::llm` writes each call down before it goes out
//! and decides what follows; `producer doctor --model` asks once, for a person. Requests at the
//! endpoint are the calls that were asked for, never more.

mod answer;
mod body;
mod classify;
mod client;
mod endpoint;
mod error;
mod hint;
mod request;

pub use answer::{ChatAnswer, TokenUsage, ToolCall};
pub use body::{json as lenient_json, quote};
pub use client::{Models, Prepared};
pub use endpoint::Endpoint;
pub use error::{LlmError, spread};
pub use hint::wait_hint;
pub use request::{ChatRequest, Message};
