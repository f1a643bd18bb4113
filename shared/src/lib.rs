//! What producer, worker and loadtest share, floor by floor.
//!
//! * [`domain`] — schedules, cron, tasks, attempts, outcomes, retry policy, keys, clock. No IO.
//! * [`store`] — the only room that speaks SQL. `PostgreSQL` is the truth.
//! * [`broker`] — the only room that speaks AMQP. `RabbitMQ` is the wake-up call.
//! * [`llm`] — the client of model endpoints; it keeps no journal.
//! * [`config`], [`telemetry`], [`http`], [`shutdown`], [`health`] — what every binary needs at its door.
//! * [`redact`] — taking secrets out of what is stored and shown.
//! * [`failpoint`] — places where tests let a process die; compiled out of releases.
//! * [`sweeps`] and [`relay`] — recovery and publishing, run by any producer and any worker.

pub mod broker;
pub mod config;
pub mod domain;
pub mod failpoint;
pub mod health;
pub mod http;
pub mod llm;
pub mod process;
pub mod redact;
pub mod relay;
pub mod retry;
pub mod shutdown;
pub mod store;
pub mod sweeps;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
