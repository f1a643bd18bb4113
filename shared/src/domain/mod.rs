//! The words of the house and their rules: pure values and functions.
//!
//! Nothing here reads a clock, a file, a socket or an environment variable; that is why every rule
//! can be tested by a table.

pub mod answer;
pub mod attempt;
pub mod clock;
pub mod cron;
pub mod delay;
pub mod execution_key;
pub mod json_schema;
pub mod message;
pub mod outcome;
pub mod payloads;
pub mod quota;
pub mod retry;
pub mod room;
pub mod schedule;
pub mod task;
pub mod template;
pub mod tools;
