//! The only room that speaks AMQP: topology, publishing with confirms, consuming with care.
//!
//! `RabbitMQ` is the wake-up call: whatever is lost, doubled or late here is put right from
//! Postgres. So nothing in this room retries a message; it says surely whether the broker has it.
//! It never hands out a type of lapin, and it never speaks SQL.
//!
//! A process has two connections, because a broker in need blocks a publishing connection as a
//! whole, acks included: [`Publisher`] owns one, [`Consumers`] the other. Each is kept by a loop
//! that reconnects for ever, checks the topology and declares what is missing.
//!
//! lapin logs at ERROR whatever ends a channel, also a look at a queue that is not there, and each
//! returned message whole. Everything of it that matters is logged here, so that the target
//! `lapin` may be silenced.

mod connection;
mod consume;
mod declare;
mod error;
mod guard;
mod headers;
mod publish;
mod topology;
mod walk;

pub use connection::{CONNECT_TIMEOUT, HEARTBEAT_SECONDS, Settings};
pub use consume::{Consumer, Consumers, Delivery, SETTLE_TIMEOUT, Settled, Subscription};
pub use declare::{DECLARE_TIMEOUT, Diff, Found, Operator};
pub use error::{Address, Error};
pub use headers::{Death, Header, MAX_ERROR_CHARS, Properties, one_line};
pub use publish::{
    CONFIRM_TIMEOUT, CONNECT_PATIENCE, Destination, PULSE_EVERY, Publisher, REFUSAL_SHOWS,
    Readiness, SILENT_AFTER, State, WINDOW,
};
pub use topology::{Argument, DELIVERY_LIMIT, Exchange, ExchangeKind, Queue, Topology};
pub use walk::{BYTES_IN_HAND, Fate, IN_HAND, Met, Walk};
