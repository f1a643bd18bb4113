//! 429 with `Retry-After: 5`, four workers and 200 tasks: one word closes the model for all of them.

use std::time::Duration;

use chrono::TimeDelta;
use loadtest::stub_llm::Fault;
use shared::testing::within;

use crate::house::{House, PATIENCE};

const HINT: TimeDelta = TimeDelta::seconds(5);
/// Before it says 429.
const THINKS: TimeDelta = TimeDelta::seconds(3);
const WORKERS: usize = 4;
/// Of each worker, where it speaks in the middle of the work.
const SLOTS: usize = 4;
/// How long each answer then takes.
const MIDWAY: Duration = Duration::from_millis(500);
/// 200 tasks are sent away and come back, on a loaded machine.
const HEALED: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_429_closes_the_model_for_the_fleet_and_costs_no_attempt() {
    let mut house = House::open("provider", "{}", 8, Duration::from_millis(50)).await;
    // All that may ask a model that has not answered yet hear it, after a time in which all of them
    // are under way; after that the provider is well again.
    let hang_ms = THINKS.num_milliseconds().unsigned_abs();
    let limited = Fault { times: Some(4), hang_ms, ..Fault::status(429).after(5) };
    house.stub.script("m", vec![limited]);
    house.workers(4).await;
    house.ask("m", 200).await;

    within(PATIENCE, "the first 429", async || {
        house.calls("m").iter().any(|call| call.status == Some(429)).then_some(())
    })
    .await;
    house.ask("n", 20).await;
    house.until(HEALED, "SELECT count(*) FROM tasks WHERE state = 'completed'", 220).await;

    let calls = house.calls("m");
    let limited = calls.iter().find(|call| call.status == Some(429)).expect("a 429");
    let heard = limited.time + THINKS;
    let before = calls.iter().filter(|call| call.time < heard + HINT).count();
    let others = house.calls("n");
    let aside = others.iter().filter(|call| call.time < heard + HINT).count();
    let reopened = calls[before].time - heard;
    let last = calls.last().expect("200 calls").time - heard;
    eprintln!(
        "{before} calls before +5 s, the next {:.3} s after the first 429, the last {:.1} s after; of another \
         model {aside} of {} meanwhile",
        reopened.as_seconds_f64(),
        last.as_seconds_f64(),
        others.len()
    );
    assert!(before <= 5, "the first and at most four further calls, not {before}");
    // Each that heard it says when it was over for it: nobody is earlier than the first of them allows.
    assert!(reopened >= HINT, "{reopened}");
    let probe = &calls[before];
    let next = &calls[before + 1];
    assert_eq!(probe.status, Some(200));
    assert!(
        next.time - probe.time >= TimeDelta::milliseconds(50),
        "the others wait for the probe's answer"
    );

    no_attempt_is_spent(&house).await;
    let touched = "SELECT count(*) FROM attempts a JOIN task_inputs i USING (task_id)
        WHERE i.payload->>'model' = 'n' AND a.outcome <> 'completed'";
    assert_eq!(house.count(touched).await, 0, "the other model's tasks ran at their first attempt");
    assert_eq!(others.len(), 20);
    house.close().await;
}

/// A word in the middle of the work, when every slot asks: whoever hears it closes the model for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_429_in_the_middle_of_the_work_stops_the_fleet_until_its_time() {
    let mut house = House::open("midway", "{}", SLOTS, MIDWAY).await;
    let proper = Fault { times: Some(40), ..Fault::default() };
    let limited = Fault { times: Some(6), ..Fault::status(429).after(5) };
    house.stub.script("m", vec![proper, limited]);
    house.workers(WORKERS).await;
    house.ask("m", 200).await;
    house.until(HEALED, "SELECT count(*) FROM tasks WHERE state = 'completed'", 200).await;

    let calls = house.calls("m");
    let first = calls.iter().find(|call| call.status == Some(429)).expect("a 429").time;
    let heard = first + TimeDelta::from_std(MIDWAY).expect("short");
    let between =
        |from, to| calls.iter().filter(|call| from < call.time && call.time <= to).count();
    let (meanwhile, further) = (between(first, heard), between(heard, heard + HINT));
    eprintln!("{meanwhile} calls while the first 429 was on its way, {further} before +5 s");
    // How many slip through while the word is being written is the machine's affair; but no slot does
    // twice.
    assert!(further <= SLOTS * WORKERS, "{further} calls after the model was closed");
    no_attempt_is_spent(&house).await;
    house.close().await;
}

async fn no_attempt_is_spent(house: &House) {
    let costly = "SELECT count(*) FROM tasks WHERE failures + crashes > 0";
    assert_eq!(house.count(costly).await, 0, "no failure is counted");
    let spent = "SELECT count(*) FROM attempts WHERE outcome NOT IN ('completed', 'snooze')";
    assert_eq!(house.count(spent).await, 0);
}
