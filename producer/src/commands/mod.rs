//! One module per command. Data goes to stdout, talk to stderr, and the exit code tells scripts.

pub mod alerts;
pub mod announce;
pub mod artifacts;
pub mod batch;
pub mod completions;
pub mod config;
pub mod connect;
pub mod cron;
pub mod dead;
pub mod doctor;
pub mod error;
pub mod health;
pub mod migrate;
pub mod numbers;
pub mod output;
pub mod prune;
pub mod publish;
pub mod request;
pub mod row;
pub mod schedules;
pub mod status;
pub mod tasks;
pub mod topology;
pub mod wait;
pub mod why;
pub mod workers;
