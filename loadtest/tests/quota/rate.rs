//! 60 a minute with a burst of 5, for eight workers that start, stop and die.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::house::House;

/// `requests_per_minute: 60`: one a second.
const PER_SECOND: f64 = 1.0;
const BURST: f64 = 5.0;
/// Five at once and 35 s for the others, and the way of a loaded machine.
const HEALED: Duration = Duration::from_secs(150);

/// The most by which any window of these times exceeds what its length allows.
fn excess(times: &[DateTime<Utc>]) -> f64 {
    let mut worst = f64::MIN;
    for (first, from) in times.iter().enumerate() {
        for (last, to) in times.iter().enumerate().skip(first) {
            let seconds = (*to - *from).as_seconds_f64();
            let seen = (last - first + 1) as f64;
            worst = worst.max(seen - BURST - PER_SECOND * seconds);
        }
    }
    worst
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_sees_more_than_burst_and_rate_through_scale_up_kill_and_restart() {
    let limits = "{m: {requests_per_minute: 60, burst: 5}}";
    let mut house = House::open("rate", limits, 4, Duration::from_millis(300)).await;
    house.workers(4).await;
    house.ask("m", 40).await;

    house.until(HEALED, "SELECT least(count(*), 8) FROM llm_calls", 8).await;
    house.workers(4).await;
    house.until(HEALED, "SELECT least(count(*), 16) FROM llm_calls", 16).await;
    house.kill_one().await;
    house.restart_one().await;
    house.until(HEALED, "SELECT count(*) FROM tasks WHERE state = 'completed'", 40).await;

    let admitted = house
        .client
        .query("SELECT id::text, started_at FROM llm_calls ORDER BY started_at", &[])
        .await
        .expect("the journal");
    let times: Vec<DateTime<Utc>> = admitted.iter().map(|row| row.get(1)).collect();
    let by_journal = excess(&times);
    // Exactly: the clock of the database decided, and it is written with the call.
    assert!(by_journal <= 1e-6, "{by_journal} too many in a window of the journal");

    let journal: BTreeMap<String, DateTime<Utc>> =
        admitted.iter().map(|row| (row.get(0), row.get(1))).collect();
    let calls = house.calls("m");
    let ways = calls.iter().map(|call| {
        let key = call.idempotency_key.as_ref().expect("each call says which it is");
        // Nothing reaches the endpoint that was not admitted.
        (call.time - journal[key]).as_seconds_f64()
    });
    let (shortest, longest) =
        ways.fold((f64::MAX, f64::MIN), |(low, high), way| (low.min(way), high.max(way)));
    let by_stub = excess(&calls.iter().map(|call| call.time).collect::<Vec<_>>());
    eprintln!(
        "{} admitted, {} at the stub; most above burst + rate · W: journal {by_journal:.3}, stub {by_stub:.3}; \
         ways {shortest:.3} to {longest:.3} s",
        times.len(),
        calls.len()
    );
    // One is allowed for the way: where the machine makes ways longer than that, as much more.
    let slack = (1.0_f64).max(PER_SECOND * (longest - shortest));
    assert!(by_stub <= slack, "{by_stub} too many at the stub, ways {shortest} to {longest} s");

    let failed = "SELECT count(*) FROM tasks WHERE failures > 0";
    assert_eq!(house.count(failed).await, 0, "a wait costs no failure");
    let kept = "SELECT count(*) FROM llm_quotas WHERE in_flight > 0";
    assert_eq!(house.count(kept).await, 0, "what the killed worker held is given back");
    house.close().await;
}
