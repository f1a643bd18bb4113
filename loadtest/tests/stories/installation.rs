//! Two installations that share a database by mistake, with another prefix on the broker each: the
//! second one says so and does nothing.

use std::time::Duration;

use loadtest::fleet::{Member, Role};
use serde_json::json;
use shared::domain::task::TaskState;
use shared::testing::within;
use tokio::time::sleep;

use crate::house::{House, LONG_LEASES, PATIENCE, POOLS, outcomes, probe, told};

/// Time in which the intruder would have done harm: its relay and its sweeps look every second.
const A_WHILE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_of_two_houses_on_one_database_waits_and_says_why() {
    let mut house = House::over("two_houses", &format!("{LONG_LEASES}{POOLS}")).await;
    let first = house.started(Role::Producer).await;
    let own = std::fs::read_to_string(house.ground.file()).expect("its configuration");
    let prefix = house.ground.config().rabbitmq.prefix.clone();
    let other = own.replace(&prefix, &format!("{prefix}-b"));
    std::fs::write(house.ground.file(), &other).expect("written");

    let intruders = [Role::Producer, Role::Worker].map(|role| Member::start(&house.ground, role));
    let intruders = intruders.map(|member| member.expect("started"));
    for intruder in &intruders {
        let what = format!("{} says why", intruder.role.program());
        within(PATIENCE, &what, async || {
            intruder.tail().contains("another installation").then_some(())
        })
        .await;
        assert!(intruder.tail().contains(&format!("{prefix}-b")), "{}", intruder.tail());
    }
    let doctor = house.command(&["doctor"], &[]).await;
    std::fs::write(house.ground.file(), &own).expect("written");
    let task = house.given(probe(json!({}))).await;
    let worker = house.started(Role::Worker).await;
    let row = house.is(task, TaskState::Completed).await;
    sleep(A_WHILE).await; // time itself is under test

    assert_ne!(doctor.status.code(), Some(0));
    assert!(told(&doctor).contains("installation"), "{}", told(&doctor));
    assert_eq!(outcomes(&row), ["completed"]);
    for intruder in intruders {
        assert!(!intruder.is_ready().await);
        let status = intruder.stop(PATIENCE).await.expect("ended");
        assert!(status.success(), "it ended with {status}");
    }
    assert_eq!(house.count("SELECT count(DISTINCT place) FROM workers").await, 1);
    take_away(&mut house, &format!("{prefix}-b")).await;
    house.close(vec![first, worker]).await;
}

/// What the intruders have declared on the broker.
async fn take_away(house: &mut House, prefix: &str) {
    let topology = shared::broker::Topology::new(prefix, ["io_pool"]);
    let operator = house.operator().await;
    operator.delete_all(&topology).await.expect("deleted");
    operator.close().await;
}
