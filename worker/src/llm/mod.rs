//! Model calls: one client for OpenAI-compatible endpoints, each call traced and journalled.
//!
//! [`Context::chat`](crate::context::Context::chat) is the only way to ask: it looks for a stored
//! answer, writes the call before it goes out and its end before the handler goes on, so that no
//! answer is paid twice. There is no hidden retry in here: one question is one request, and what
//! becomes of a failure is decided by the task's own policy.

mod admit;
mod answer;
mod body;
mod chat;
mod classify;
mod client;
mod endpoint;
mod error;
mod hint;
mod request;

pub(crate) use body::{json as lenient_json, quote};
pub(crate) use error::spread;
pub(crate) use hint::wait_hint;

pub use admit::{CLOSED_SLOT_WAIT, SLOT_WAIT};
pub use answer::{ChatAnswer, TokenUsage, ToolCall};
pub use client::Models;
pub use error::LlmError;
pub use request::{ChatRequest, Message};
