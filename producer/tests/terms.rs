//! Terms of a leader: what ends one, what does not, and what the log says of it.
#![expect(dead_code, reason = "the house serves several stories")]

mod house;
mod tower;

use std::time::Duration;

use chrono::TimeDelta;
use shared::testing::{eventually, needed};

use tower::Tower;

/// A house with one schedule, whose leader has a short lease.
async fn open(name: &str, schedule: &str) -> Tower {
    let tower = Tower::open().await;
    let more = format!(
        "scheduler: {{heartbeat_interval: 1, heartbeat_ttl: 2}}\ntasks:\n- {{name: {name}, schedule: '{schedule}', \
         task_type: mine, overlap: allow, catch_up: all}}\n"
    );
    tower.house.configure(&needed("AMQP_URL"), &more);
    tower
}

/// An apply of very many entries holds the file for longer than a statement waits for it, and for
/// longer than a lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_waits_for_an_apply_that_takes_long() {
    let tower = open("beat", "* * * * * *").await;
    let ticks = async || {
        let mut ticks = tower.house.store.ticks(Some("beat"), 1000).await.expect("read");
        ticks.reverse();
        ticks
    };
    let _leader = tower.producer("leader.log");
    eventually("it ticks", async || (!ticks().await.is_empty()).then_some(())).await;
    let holder = tower.house.database.client().await;
    let hold = "BEGIN; SELECT revision FROM schedule_file FOR UPDATE";
    holder.batch_execute(hold).await.expect("held");
    tokio::time::sleep(Duration::from_secs(5)).await; // time itself is under test
    let before = ticks().await.len();
    holder.batch_execute("COMMIT").await.expect("let go");

    let all = eventually("it ticks on", async || {
        Some(ticks().await).filter(|ticks| ticks.len() > before + 5)
    })
    .await;

    let second = TimeDelta::seconds(1);
    assert!(all.windows(2).all(|two| two[1].planned_at - two[0].planned_at == second), "{all:?}");
    let leads = tower.house.store.leader().await.expect("asked").expect("one leads");
    assert_eq!(leads.epoch, 1, "it was one term");
}

/// The numbers of terms in a log are explained by its own lines: who took over, or what was silent.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_term_is_logged_with_its_reason() {
    let tower = open("minutely", "* * * * *").await;
    let leader = tower.producer("leader.log");
    leader.says("in force").await;

    let taken = "UPDATE leadership SET token = gen_random_uuid(), label = 'producer@other#1', \
                 epoch = epoch + 1, lease_until = belfry_now() + interval '1 second'";
    tower.house.database.client().await.batch_execute(taken).await.expect("taken");

    leader.says("leads no more").await;
    leader.says("producer@other#1 has taken the lead, epoch 2").await;
    leader.says("leading epoch=3").await;
    leader.signal("TERM");
    leader.says("leads no more: it stops").await;
}
