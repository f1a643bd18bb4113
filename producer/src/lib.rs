//! The producer: the daemon that ticks, and the commands of its operator.
//!
//! [`cli`] reads the command line, [`commands`] has one module per command, [`run`] is the daemon.
//! Workers are spoken to through PostgreSQL and RabbitMQ alone.

pub mod cli;
pub mod commands;
pub mod run;
