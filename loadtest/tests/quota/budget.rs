//! A day's budget of ten calls, and fifty tasks: ten a day, and nobody is given up.

use std::time::Duration;

use chrono::Timelike as _;
use serde_json::Value;

use crate::house::{House, rows};

/// Time for ten calls, and for the others to be sent away.
const A_DAY: Duration = Duration::from_secs(90);

/// A zone in which it is about noon: the day does not end during the story.
fn noon() -> String {
    match 12 - i64::from(shared::domain::clock::now().hour()) {
        0 => "UTC".to_owned(),
        // These names count westwards.
        east => format!("Etc/GMT{:+}", -east),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_calls_a_day_and_the_others_are_parked_until_the_next() {
    // A call is thought to need 112 tokens and billed with 20: after nine there is room for one.
    let limits = format!("{{m: {{daily_tokens: 300, timezone: {}}}}}", noon());
    let mut house = House::open("budget", &limits, 8, Duration::from_millis(50)).await;
    house.workers(2).await;
    house.ask("m", 50).await;

    for day in 1..=5_i32 {
        let completed = i64::from(day) * 10;
        let sql = "SELECT count(*) FROM tasks WHERE state = 'completed'";
        house.until(A_DAY, sql, completed).await;
        let parked = "SELECT count(*) FROM tasks WHERE state = 'scheduled'";
        house.until(A_DAY, parked, 50 - completed).await;

        let seen = i64::try_from(house.calls("m").len()).expect("few");
        assert_eq!(seen, completed, "day {day}: exactly ten calls a day");
        let costly = "SELECT id, state, failures, crashes FROM tasks
            WHERE state NOT IN ('completed', 'scheduled') OR failures + crashes > 0";
        assert_eq!(rows(&house.client, costly).await, Vec::<Value>::new(), "day {day}");
        if day < 5 {
            let sent_away = "SELECT count(*) FROM llm_waits WHERE reason = 'daily_tokens'";
            assert_eq!(house.count(sent_away).await, 50 - completed, "day {day}");
        }
        let tomorrow = format!(
            "CREATE OR REPLACE FUNCTION belfry_now() RETURNS timestamptz LANGUAGE sql VOLATILE \
             AS $$ SELECT clock_timestamp() + interval '{day} days' $$"
        );
        house.client.batch_execute(&tomorrow).await.expect("the clock moves");
    }

    let alerts = "SELECT count(*) FROM alerts WHERE kind = 'quota'";
    assert_eq!(house.count(alerts).await, 4, "one a day on which somebody was sent away");
    house.close().await;
}
