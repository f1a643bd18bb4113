//! What happens to a fleet of real processes when a service, a process or a person does the unexpected,
//! and no drill is needed to show it: one story a test, and every promise audited at its end.

#[path = "../fleet/house.rs"]
#[expect(dead_code, reason = "the house serves several tests")]
mod house;
#[path = "../fleet/programs.rs"]
mod programs;

mod broker;
mod cancel;
mod database;
mod installation;
mod keys;
mod liveness;
mod management;
mod retention;
