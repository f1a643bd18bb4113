//! The spans of a task's life: one constructor a kind, one guard for all of them.
//!
//! tick → publish → process → attempt → `chat {model}` is one trace. A constructor whose span comes
//! from elsewhere takes the other side's `traceparent`; all others are children of whatever scope
//! they are made in ([`Span::in_scope`]). Attributes a sampler may want are set at the start.
//! Names are in [`super::names`]; nothing here ever fails a caller.

mod calls;
mod guard;
mod tasks;

pub use calls::{Chat, ChatAnswer, ExecuteTool, Server, admit, chat, db_query, execute_tool, http};
pub use guard::{Current, Link, Span, current, current_traceparent};
pub use tasks::{
    Delivery, attempt, broker_is, enqueue, process, publish, publish_copy, replay, tick,
};
