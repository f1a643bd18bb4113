//! A variable without a value where a mapping or a list belongs: as everywhere, a note, and absent.

use super::{check, loaded, task};

/// What the file says, with the part of it that uses the variable.
#[track_caller]
fn noted(text: &str, path: &str) -> shared::config::Config {
    let config = loaded(text, &[]);
    let notes = config.notes.join("\n");
    let expected = format!("{path}: the variable NOPE is not set");
    assert!(notes.ends_with(&expected) && config.notes.len() == 1, "{text}: {notes}");
    let used = config.require_complete(path).expect_err("it is used now").to_string();
    assert!(used.ends_with("the variable NOPE is not set, and this value is used now"), "{used}");
    config
}

#[test]
fn every_section_that_is_an_unset_variable_counts_as_absent() {
    for key in [
        "scheduler",
        "storage",
        "storage.postgres",
        "model",
        "model.prices",
        "model.prices.m",
        "model.limits",
        "model.limits.m",
        "model.endpoints",
        "model.endpoints.e",
        "model.fallback",
        "model.fallback.m",
        "task_pools",
        "alerts",
        "sources",
        "sources.s",
        "secrets",
        "http",
        "http.allow_hosts",
        "limits",
        "retention",
        "reports",
        "reports.daily",
        "artifacts",
        "handlers",
        "handlers.agent_session",
        "handlers.agent_session.tools",
    ] {
        let value = key.rsplit('.').fold("\"${NOPE}\"".to_owned(), |v, k| format!("{{{k}: {v}}}"));
        let config = noted(&value, key);
        let bare = loaded("", &[]);
        assert_eq!(config.pools.len(), bare.pools.len(), "{key}");
        assert_eq!(config.session_tools, bare.session_tools, "{key}");
        assert!(config.model.prices.is_empty() && config.model.limits.is_empty(), "{key}");
        assert!(config.model.fallback.is_empty() && config.reports.is_empty(), "{key}");
    }
}

/// Whoever applies it must not take it for the wish to have no schedules.
#[test]
fn tasks_that_are_an_unset_variable_remove_nothing_and_are_not_applied() {
    let config = noted("tasks: ${NOPE}\n", "tasks");
    assert!(!config.says_tasks && config.schedules.is_empty());
    assert!(!loaded("tasks: ${NOPE:-}\n", &[]).says_tasks, "a default of nothing says nothing");

    let entry = noted("tasks: ['${NOPE}']\n", "tasks[0]");
    assert!(entry.require_complete("tasks").is_err(), "an entry is missing");
}

#[test]
fn a_budget_or_a_payload_that_is_an_unset_variable_is_missed_once_the_schedule_is_used() {
    let config = noted(&task("  budget: \"${NOPE}\""), "tasks[0].budget");
    assert!(config.budgets.is_empty() && config.schedules.len() == 1);
    assert!(config.require_complete("tasks[0]").is_err());

    let judge = |_: &str, payload: &serde_json::Value| {
        payload["url"].as_str().map(|_| ()).ok_or("`url` is missing".to_owned())
    };
    let load = |payload: &str| {
        let loader = shared::config::Loader { variables: &|_| None, payload: &judge };
        loader.text(&task(&format!("  payload: {payload}")), "b.yaml")
    };
    assert!(load("${NOPE}").expect("noted").require_complete("tasks").is_err());
    let empty = load("${NOPE:-}").expect_err("nothing is no payload").to_string();
    assert!(empty.contains("`payload` is missing: `url` is missing"), "{empty}");
}

#[test]
fn what_has_a_value_is_still_of_the_wrong_kind() {
    check("tasks: ${NOPE:-x}", &["belfry.yaml:1: tasks: expected a list, found a single value"]);
    check("alerts: x", &["belfry.yaml:1: alerts: expected a mapping (key: value)"]);
    check("tasks: ${NOPE", &["belfry.yaml:1: tasks: expected a list, found a single value"]);
    check(
        "task_pools: []",
        &[
            "belfry.yaml:1: task_pools: expected a mapping (name: value)",
            "belfry.yaml:1: task_pools: it has no pool",
        ],
    );
}
