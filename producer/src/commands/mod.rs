//! One module per command. Data goes to stdout, talk to stderr, and the exit code tells scripts.

pub mod announce;
pub mod batch;
pub mod config;
pub mod connect;
pub mod dead;
pub mod error;
pub mod migrate;
pub mod output;
pub mod publish;
pub mod request;
pub mod tasks;
pub mod wait;
pub mod why;
