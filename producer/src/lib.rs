//! The producer: the daemon that ticks, and the commands of its operator.
//!
//! [`cli`] reads the command line and [`commands`] has one module per command; [`run`] is the
//! daemon, with one module per loop. Workers are met in PostgreSQL and RabbitMQ alone.

pub mod alerts;
pub mod announcer;
pub mod applying;
pub mod cli;
pub mod commands;
pub mod due;
pub mod inbox;
pub mod leader;
pub mod mirror;
pub mod run;
pub mod ticker;
pub mod watch;
