//! The producer.

pub mod alerts;
pub mod leader;
pub mod run;
pub mod ticker;
