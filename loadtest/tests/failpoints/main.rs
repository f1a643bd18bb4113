//! Processes that die between two steps of a task's life, each at a named point: what the user sees of
//! it, what the outside sees of it, and that every promise holds afterwards.

#[path = "../fleet/house.rs"]
#[expect(dead_code, reason = "the house serves several tests")]
mod house;
#[path = "../fleet/programs.rs"]
mod programs;

mod accepting;
mod giving_up;
mod once;
mod working;
