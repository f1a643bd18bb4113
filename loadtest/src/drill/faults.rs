//! All faults of the drill, room by room.

mod broker;
mod clock;
mod crash;
mod disk_full;
mod held;
mod leader;
mod lost_commit;
mod messages;
mod model;
mod network;
mod postgres;
mod process;
mod signs;

use super::fault::Fault;

/// All of them, each with a name of its own.
pub fn all() -> Vec<Box<dyn Fault>> {
    let rooms = [
        process::all(),
        leader::all(),
        crash::all(),
        clock::all(),
        messages::all(),
        model::all(),
        network::all(),
        broker::all(),
        postgres::all(),
    ];
    rooms.into_iter().flatten().collect()
}
