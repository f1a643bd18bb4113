//! Quotas against a real PostgreSQL: who is let in, who waits how long, and what ends give back.
#![cfg(feature = "testing")]

#[path = "store_quota/closing.rs"]
mod closing;
#[path = "store_quota/counters.rs"]
mod counters;
#[path = "store_quota/days.rs"]
mod days;
#[path = "store_quota/fleet.rs"]
mod fleet;
mod house;
#[path = "store_quota/limits.rs"]
mod limits;
#[path = "store_quota/poisoned.rs"]
mod poisoned;
#[path = "store_quota/race.rs"]
mod race;
