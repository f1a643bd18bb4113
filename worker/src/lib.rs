//! The worker: takes messages, claims their tasks, runs handlers, records outcomes, settles.
//!
//! Read it from [`consumer`] (permit → delivery → process → settle) through [`processor`]
//! (claim → run → decide → record) to [`handlers`]. The binary is a thin door to this library, so
//! that Rust users can build a worker of their own with more handlers.

pub mod commands;
pub mod completion;
pub mod consumer;
pub mod context;
pub mod gate;
pub mod handler;
pub mod handlers;
pub mod heartbeat;
pub mod llm;
pub mod outage;
pub mod places;
pub mod processor;
pub mod run;
pub mod slots;
