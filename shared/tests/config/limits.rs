//! `model.limits` and `budget`: what is refused, and where.

use super::{check, task};

#[test]
fn limits_that_mean_nothing_are_refused_where_they_stand() {
    let text = "\
model:
  prices: {m: {input: 1, output: 2}}
  limits:
    m: {rpm: 60, burst: 5, in_flight: 0, timezone: Mars, over_budget: dead}
    n: {daily_cost: 3, over_budget: wait}
    o: {daily_tokens: 9, daily_cost: -1, tokens_per_day: 4, over_budget: {downgrade: o}}
    a: {daily_tokens: 9, over_budget: 'downgrade: b'}
    b: {daily_tokens: 9, over_budget: {upgrade: a}}
    c: {daily_tokens: 9, over_budget: 'downgrade: d'}
    d: {daily_tokens: 9, over_budget: 'downgrade: c'}
tasks:
- name: t
  schedule: '@daily'
  task_type: command
  budget: {daily_cost: 0, in_flight: 3}
";
    check(
        text,
        &[
            "belfry.yaml:4: model.limits.m.burst: means nothing without `requests_per_minute`",
            "belfry.yaml:4: model.limits.m.in_flight: expected a whole number from 1 to 10000000",
            "belfry.yaml:4: model.limits.m.over_budget: means nothing without `daily_tokens` or `daily_cost`",
            "belfry.yaml:4: model.limits.m.rpm: unknown key; did you mean `requests_per_minute`?",
            "belfry.yaml:4: model.limits.m.timezone: unknown time zone, found \"Mars\"",
            "belfry.yaml:5: model.limits.n.daily_cost: n has no price in model.prices",
            "belfry.yaml:5: model.limits.n.over_budget: expected park, dead, or downgrade: MODEL",
            "belfry.yaml:6: model.limits.o.daily_cost: expected a number, 0 or more",
            "belfry.yaml:6: model.limits.o.daily_cost: o has no price in model.prices",
            "belfry.yaml:6: model.limits.o.over_budget: leads back to where it began: o → o",
            "belfry.yaml:6: model.limits.o.tokens_per_day: unknown key; did you mean `daily_tokens`?",
            "belfry.yaml:8: model.limits.b.over_budget: `downgrade` is missing",
            "belfry.yaml:8: model.limits.b.over_budget.upgrade: unknown key",
            "belfry.yaml:9: model.limits.c.over_budget: leads back to where it began: c → d → c",
            "belfry.yaml:10: model.limits.d.over_budget: leads back to where it began: d → c → d",
            "belfry.yaml:15: tasks[0].budget.daily_cost: expected US dollars a day, more than 0",
            "belfry.yaml:15: tasks[0].budget.in_flight: unknown key",
        ],
    );
    check(
        &task("  budget: {daily_cost: 1}"),
        &["belfry.yaml:5: tasks[0].budget.daily_cost: model.prices names no price"],
    );
}
