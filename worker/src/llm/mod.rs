//! Model calls: each asked through `shared::llm`, traced and journalled.
//!
//! [`Context::chat`](crate::context::Context::chat) is the only way to ask: it looks for a stored
//! answer, writes the call before it goes out and its end before the handler goes on, so that no
//! answer is paid twice. There is no hidden retry in here: one question is one request, and what
//! becomes of a failure is decided by the task's own policy.

mod chat;

pub(crate) use shared::llm::{lenient_json, quote, spread, wait_hint};

pub use shared::llm::{ChatAnswer, ChatRequest, LlmError, Message, Models, TokenUsage, ToolCall};
