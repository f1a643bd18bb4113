//! Model calls: each asked through `shared::llm`, traced and journalled.
//!
//! [`Context::chat`](crate::context::Context::chat) is the only way to ask: it looks for a stored
//! answer, writes the call before it goes out and its end before the handler goes on, so that no
//! answer is paid twice. There is no hidden retry in here: one try is one request and one row, what
//! follows an answer that cannot be used is the question's policy, and what becomes of a failure is
//! the task's.

mod admit;
mod asking;
mod chat;
mod reply;
mod tries;

pub(crate) use shared::llm::{lenient_json, quote, spread, wait_hint};

pub use admit::{CLOSED_SLOT_WAIT, SLOT_WAIT};
pub(crate) use reply::usage_json;
pub use reply::{Reply, Try};
pub use shared::llm::{
    AnswerFault, AnswerPolicy, ChatAnswer, ChatRequest, LlmError, Message, Models, OnEmpty,
    OnInvalid, OnRefused, OnTruncated, TokenUsage, Tool, ToolCall, ToolChoice, ToolFault,
};
