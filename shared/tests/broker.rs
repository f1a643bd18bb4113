//! The broker room against a real RabbitMQ: each test has a prefix of its own, deleted at the end.
#![cfg(feature = "testing")]

#[path = "broker/consuming.rs"]
mod consuming;
#[path = "broker/house.rs"]
mod house;
#[path = "broker/proxy.rs"]
mod proxy;
#[path = "broker/publishing.rs"]
mod publishing;
#[path = "broker/setting_up.rs"]
mod setting_up;
