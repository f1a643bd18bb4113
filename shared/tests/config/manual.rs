//! What keeps the documentation and the examples true.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use shared::config::{Loader, keys};
use shared::domain::template;

/// The documentation, as a reader has it.
const MANUAL: &str = include_str!("../../../docs/configuration.md");

#[test]
fn the_manual_has_a_row_for_every_key_and_no_other() {
    let known: BTreeSet<String> = keys::ALL.iter().flat_map(|section| section.paths()).collect();
    let rows = MANUAL.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let described: BTreeSet<String> = rows
        .map(|(key, _)| key.to_owned())
        .filter(|key| key.starts_with(char::is_lowercase) && !key.ends_with("_pool"))
        .collect();

    // A section's own row may be missing; its keys' rows may not.
    let missing: Vec<_> = known
        .difference(&described)
        .filter(|key| *key != "scheduler" && *key != "storage" && *key != "model")
        .collect();
    assert!(missing.is_empty(), "not in docs/configuration.md: {missing:?}");
    let invented: Vec<_> = described.difference(&known).collect();
    assert!(invented.is_empty(), "no key of the reader: {invented:?}");
}

#[test]
fn the_variables_of_the_code_are_those_of_the_manual() {
    let code = concat!(
        include_str!("../../src/config/mod.rs"),
        include_str!("../../src/config/storage.rs"),
        include_str!("../../src/config/sections.rs")
    );
    let rows = |text: &'static str, prefix: &str| -> BTreeSet<&'static str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
        lines
            .filter(|line| line.starts_with("| `") && line[3..].starts_with(char::is_uppercase))
            .collect()
    };
    assert_eq!(rows(code, "//! "), rows(MANUAL, ""));

    let read = code
        .split('"')
        .filter(|word| word.len() > 3 && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'));
    for variable in read {
        assert!(
            MANUAL.contains(&format!("| `{variable}` |")),
            "{variable} is read and not described"
        );
    }
}

#[test]
fn the_examples_load() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join("examples");
    let load = |file: &str, variables: &[(&str, &str)]| {
        let table: HashMap<_, _> = variables.iter().copied().collect();
        let lookup = |name: &str| table.get(name).map(ToString::to_string);
        let loader = Loader { variables: &lookup, payload: &|_, _| Ok(()) };
        loader.file(&root.join(file)).unwrap_or_else(|problems| panic!("{problems}"))
    };

    let minimal = load("minimal.yaml", &[]);
    assert_eq!((minimal.schedules.len(), minimal.notes.len()), (1, 0), "{:?}", minimal.notes);

    let bare = load("belfry.yaml", &[]);
    assert!(bare.require_complete("tasks").is_ok(), "its schedules need no variable");
    assert!(bare.require_complete("reports.fleet").is_err(), "its report needs the broker's URL");

    let variables = [
        ("DATABASE_URL", "postgres://u:p@127.0.0.1/x"),
        ("AMQP_URL", "amqp://127.0.0.1"),
        ("MODEL_BASE_URL", "http://127.0.0.1:8081/v1"),
        ("MODEL_API_KEY", "k"),
        ("RABBITMQ_API_URL", "http://127.0.0.1:15672"),
        ("RABBITMQ_API_AUTH", "Basic dTpw"),
    ];
    let full = load("belfry.yaml", &variables);
    assert_eq!(full.notes, Vec::<String>::new());
    assert_eq!(
        full.reports["fleet"].fetches["queues"].url,
        "http://127.0.0.1:15672/api/queues/%2F"
    );
    let names: Vec<_> = full.schedules.iter().map(|schedule| schedule.name.as_str()).collect();
    assert_eq!(
        names,
        ["fleet_report", "ping_model", "count_waiting", "ask_broker", "nightly_orders"]
    );
}

#[test]
fn the_example_report_renders_with_and_without_values() {
    let text = include_str!("../../../examples/reports/fleet.md.j2");
    let render = |values: &serde_json::Value| {
        template::render(text, values).unwrap_or_else(|error| panic!("{error}"))
    };

    let empty = render(&serde_json::json!({
        "date": "2026-08-14", "workers": [], "tasks": [], "ticks": [], "attempts": [], "queues": [],
        "overview": {"rabbitmq_version": "4.0.5", "queue_totals": {}},
    }));
    assert!(empty.contains("\n| every queue is empty | 0 | 0 |\n"), "{empty}");

    let full = render(&serde_json::json!({
        "date": "2026-08-14",
        "summary": "All is well.",
        "workers": [{"label": "worker@a#1", "role": "worker", "lease_seconds": 14}],
        "tasks": [{"task_type": "http_call", "state": "completed", "tasks": 7}],
        "ticks": [{"schedule": "s", "outcome": "enqueued", "ticks": 3, "latest": "18:00:00"}],
        "attempts": [
            {"outcome": "completed", "attempts": 7, "median_ms": 12},
            {"outcome": "running", "attempts": 1, "median_ms": null},
        ],
        "queues": [{"name": "q", "messages": 3, "messages_ready": 1, "messages_unacknowledged": 2}],
        "overview": {"rabbitmq_version": "4.0.5", "queue_totals": {"messages_ready": 1}},
    }));
    for row in [
        "\n\nAll is well.\n\n",
        "\n|---|---|---:|\n| worker@a#1 | worker | 14 s |\n",
        "\n|---|---:|---:|\n| completed | 7 | 12 ms |\n| running | 1 |  |\n",
        "\n|---|---:|---:|\n| q | 1 | 2 |\n",
        "1 ready, 0 unacknowledged.\n",
    ] {
        assert!(full.contains(row), "{row:?} is not in\n{full}");
    }
}
