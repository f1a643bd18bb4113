//! Rows that hold a number nobody can believe, as a hand may leave them: calls go on, sums are told,
//! and tasks are pruned.

use std::time::Duration;

use shared::config::Retention;
use shared::domain::quota::{Limits, Reason, Scope};
use shared::store::{UsageBy, UsageRow};

use crate::fleet::Fleet;
use crate::house::completed;

const DAY: Duration = Duration::from_hours(24);

/// A call that was answered with such a number, the counters that it filled, and a sum of pruned ones.
const POISON: &str = "
    UPDATE llm_calls SET input_tokens = 9223372036854775807, output_tokens = 9223372036854775807,
        cost_micro = 9223372036854775807;
    UPDATE llm_quotas SET used_tokens = 9223372036854775807, held_tokens = 9223372036854775807,
        used_cost_micro = 9223372036854775807, held_cost_micro = 9223372036854775807;
    INSERT INTO llm_usage SELECT day, model, schedule, task_type, 1, 1, 0, 0, 0, 9223372036854775807,
        9223372036854775807, 9223372036854775807, 9223372036854775807, 9223372036854775807, 0, 0 FROM llm_calls";

async fn poisoned() -> Fleet {
    let fleet = Fleet::open().await;
    let call = fleet.granted("m").await;
    fleet.answered(call, 4, 40).await;
    fleet.client.batch_execute(POISON).await.expect("poisoned");
    fleet
}

#[tokio::test]
async fn a_full_counter_says_no_or_lets_in_and_never_fails() {
    let fleet = poisoned().await;

    let call = fleet.granted("m").await;
    fleet.answered(call, 4, 40).await;

    assert_eq!(fleet.quota("m").await.used_tokens, i64::MAX);
    fleet.limit(Scope::Model, "m", Limits { daily_tokens: Some(100), ..Limits::default() }).await;
    assert_eq!(fleet.denied("m").await.reason, Reason::DailyTokens);
}

#[tokio::test]
async fn full_sums_are_told_and_keep_no_task_from_going() {
    let fleet = poisoned().await;
    for by in [UsageBy::Model, UsageBy::Schedule, UsageBy::Type, UsageBy::Day] {
        let rows = fleet.store.usage(by, None, None).await.expect("sums");
        assert_eq!(rows[0].input_tokens, i64::MAX);
        let total = UsageRow::total(&[rows[0].clone(), rows[0].clone()]);
        assert_eq!((total.input_tokens, total.calls), (i64::MAX, 4));
    }
    let task = fleet.attempt.task_id;
    fleet.store.session_spent(task).await.expect("spent");
    fleet.store.task(task).await.expect("shown");

    fleet.house.record(&fleet.attempt, completed()).await;
    fleet.pass(DAY * 2).await;
    let keep = Retention { completed: DAY, dead: DAY, execution_keys: DAY, artifacts: None };
    assert_eq!(fleet.store.prune(&keep).await.expect("pruned").tasks, 1);
    let rows = fleet.store.usage(UsageBy::Model, None, None).await.expect("sums");
    assert_eq!((rows[0].calls, rows[0].input_tokens), (2, i64::MAX));
}
