//! The operator's day: looking, cancelling, replaying, pausing, checking.
#![expect(dead_code, reason = "the house serves several stories")]

mod house;

use serde_json::{Value, json};
use shared::domain::outcome::Outcome;
use shared::store::NewArtifact;
use shared::testing::{TestDatabase, put_in_force};

use house::{House, keys};

/// A broker that nobody runs.
const NOBODY: &str = "amqp://127.0.0.1:1";

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_shown_with_its_attempts_and_its_error() {
    let house = House::open().await;
    let (task, letter) = house.dead(json!({"url": "x\u{1b}[2J"})).await;
    let id = task.to_string();

    let shown = house.producer(&["tasks", "show", &id, "--json"]).with(0).json();

    for key in [
        "state",
        "run",
        "failures",
        "crashes",
        "progress",
        "attempts",
        "result",
        "error",
        "schedule",
        "tick",
        "execution_key",
        "trace_id",
        "steps",
        "llm_calls",
    ] {
        assert!(keys(&shown).contains(&key), "{key}");
    }
    assert_eq!(shown["error"], json!({"class": "permanent", "message": "404: no such page"}));
    assert_eq!(shown["attempts"][0]["outcome"], "dead");
    assert_eq!(shown["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    let sheet = house.producer(&["tasks", "show", &id]).with(0).out;
    assert!(sheet.contains("attempt 1: dead") && !sheet.contains('\u{1b}'), "{sheet}");
    let why = house.producer(&["tasks", "why", &id]).with(0).out;
    assert!(why.contains(&format!("`producer dead replay {letter}`")), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_by_state_and_cancelled_once() {
    let house = House::open().await;
    let queued = house.given(json!({"n": 1})).await.to_string();
    let running = house.given(json!({"n": 2})).await;
    let _attempt = house.claimed(running).await;
    let running = running.to_string();
    let listed = |state: &str| {
        let list = house.producer(&["tasks", "list", "--state", state, "--json"]).with(0).json();
        let tasks = list.as_array().expect("a list").clone();
        tasks
            .iter()
            .map(|task| task["task_id"].as_str().expect("id").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (listed("queued"), listed("running")),
        (vec![queued.clone()], vec![running.clone()])
    );

    let cancelled =
        house.producer(&["tasks", "cancel", &queued, &running, "--json"]).with(0).json();

    assert_eq!(cancelled[0]["state"], "cancelled");
    assert_eq!(cancelled[1]["state"], "running", "its handler is told first");
    house.producer(&["tasks", "cancel", &queued]).with(3).complains("is cancelled already");
    let why = house.producer(&["tasks", "why", &running]).with(0).out;
    assert!(why.contains("cancellation was asked for"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_replayed_once_and_its_message_is_back() {
    let house = House::open().await.with_broker().await;
    let (task, letter) = house.dead(json!({})).await;
    let letter = letter.to_string();

    let sent = house.producer(&["dead", "replay", &letter, "--json"]).with(0).json();

    assert_eq!(sent[0]["task_id"], task.to_string());
    assert_eq!(house.depth(&house.topology.pool_queue("io_pool")).await, 1);
    let again = house.producer(&["dead", "replay", &letter]).with(3);
    again.complains(&format!("dead letter {letter} was already replayed by ada@"));
    let open = house.producer(&["dead", "list", "--json"]).with(0).json();
    assert_eq!(open, json!([]));
    let all = house.producer(&["dead", "list", "--all", "--json"]).with(0).json();
    assert_eq!(all[0]["resolution"], "replayed");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_letters_are_replayed_after_a_look() {
    let house = House::open().await;
    house.configure(NOBODY, "");
    for n in 0..3 {
        house.dead(json!({ "n": n })).await;
    }
    let unreadable = house.store.keep_unreadable("not JSON", b"{oops").await.expect("kept");

    let look = ["dead", "replay", "--all", "--type", "http_call", "--dry-run", "--json"];
    assert_eq!(house.producer(&look).with(0).json().as_array().map(Vec::len), Some(3));
    let sent = house.producer(&["dead", "replay", "--all", "--json"]).with(0).json();
    assert_eq!(sent.as_array().map(Vec::len), Some(3));

    let unreadable = unreadable.to_string();
    let refused = house.producer(&["dead", "replay", &unreadable]).with(3);
    refused.complains("could not be read");
    let shown = house.producer(&["dead", "show", &unreadable, "--json"]).with(0).json();
    assert_eq!((&shown["body"], &shown["task"]), (&json!("{oops"), &Value::Null));
    house.producer(&["dead", "discard", &unreadable]).with(0);
    house
        .producer(&["dead", "discard", &unreadable])
        .with(3)
        .complains("already discarded by ada@");
}

const SCHEDULES: &str = "
tasks:
  - {name: nightly, schedule: '0 18 * * *', task_type: http_call, payload: {url: 'https://x.example/'}}
  - {name: resting, schedule: '*/5 * * * *', task_type: http_call, payload: {url: 'https://x.example/'}, paused: true}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_paused_and_resumed_by_name() {
    let house = House::open().await;
    house.configure(NOBODY, SCHEDULES);
    let early = house.producer(&["schedules", "pause", "nightly"]).with(3);
    early.complains("and not applied yet");
    let early = house.producer(&["schedules", "resume", "nightly"]).with(3);
    early.complains("there is no pause to lift");
    let path = house.dir.path().join("belfry.yaml");
    let config = shared::config::load(Some(&path)).expect("right");
    put_in_force(&house.store, &config.schedules).await;

    let paused = house.producer(&["schedules", "pause", "nightly", "--json"]).with(0).json();
    let resumed = house.producer(&["schedules", "resume", "nightly", "--json"]).with(0).json();

    assert!(paused["paused_by"].as_str().is_some_and(|by| by.starts_with("ada@")), "{paused}");
    assert_eq!((&resumed["paused"], &resumed["applied"]), (&json!(false), &json!(true)));
    let resume = |name| house.producer(&["schedules", "resume", name]);
    resume("resting").with(3).complains("stays paused: the entry in force says `paused: true`");
    assert_eq!(resume("nightly").with(0).out, "nightly was not paused\n");
    let pause = || house.producer(&["schedules", "pause", "nightly"]).with(0).out;
    assert_eq!(pause(), "nightly is paused\n");
    assert!(pause().starts_with("nightly was paused already, by ada@"));
    assert_eq!(resume("nightly").with(0).out, "nightly is resumed\n");
    house.producer(&["schedules", "pause", "nightli"]).with(3).complains("did you mean `nightly`?");
    let list = house.producer(&["schedules", "list", "--json"]).with(0).json();
    let names: Vec<&Value> = list.as_array().expect("a list").iter().map(|s| &s["name"]).collect();
    assert_eq!(names, ["nightly", "resting"]);
    let shown = house.producer(&["schedules", "show", "nightly", "--json"]).with(0).json();
    assert_eq!(shown["upcoming"].as_array().map(Vec::len), Some(5));
    assert_eq!(shown["spec"]["cron"], "0 18 * * *");
}

/// A slip of the environment is no wish to have no schedules.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_are_a_variable_without_a_value_are_not_put_in_force() {
    let house = House::open().await;
    house.configure(NOBODY, SCHEDULES);
    house.producer(&["schedules", "apply"]).with(0);
    house.configure(NOBODY, "tasks: ${NO_SUCH_TASKS}\n");

    let what = "tasks: the variable NO_SUCH_TASKS is not set, and this value is used now";
    for args in [&["schedules", "apply", "--dry-run"][..], &["schedules", "apply"], &["run"]] {
        house.producer(args).with(2).complains(what);
    }
    let checked = house.producer(&["config", "check"]).with(0).out;
    assert!(checked.contains("the schedules in force stay"), "{checked}");
    assert_eq!(house.store.schedules(None).await.expect("read").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_instants_need_no_database() {
    let house = House::of(TestDatabase::empty().await);
    house.configure(NOBODY, SCHEDULES);

    let next = house.producer(&["schedules", "next", "nightly", "-n", "3", "--json"]).with(0);

    let next = next.complains("from the file alone, since the database cannot say");
    let instants = next.json();
    assert_eq!(instants.as_array().map(Vec::len), Some(3));
    assert!(instants[0].as_str().is_some_and(|at| at.ends_with("T18:00:00Z")), "{instants}");

    let over =
        "- {name: over, schedule: '@daily', task_type: mine, end_at: '2020-01-01T00:00:00Z'}";
    house.configure(NOBODY, &format!("tasks:\n{over}"));
    let next = house.producer(&["schedules", "next", "over"]).with(0);
    let next = next.complains("over has no next instant: it ends at 2020-01-01T00:00:00Z");
    assert_eq!(next.out, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_names_what_is_away_and_tells_the_rest() {
    let house = House::open().await;
    house.configure(NOBODY, SCHEDULES);
    house.dead(json!({})).await;
    house.given(json!({})).await;

    let said = house.producer(&["status", "--json"]).with(4).complains("127.0.0.1:1");

    let status = said.json();
    assert_eq!((&status["dead_letters_open"], &status["tasks"]["queued"]), (&json!(1), &json!(1)));
    assert_eq!(status["alerts_unsent"], 1);
    assert_eq!(status["unreachable"][0]["service"], "rabbitmq");
    assert_eq!((&status["leader"], &status["queues"]), (&Value::Null, &Value::Null));
    assert_eq!(status["workers"][0]["label"], "worker@test#1");
    assert_eq!(status["schedules"].as_array().map(Vec::len), Some(2));
    house.producer(&["workers", "list"]).with(0);
    let alerts = house.producer(&["alerts", "list", "--json"]).with(0).json();
    assert_eq!(alerts[0]["sent_at"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_migrated_once_and_told_so_before() {
    let house = House::of(TestDatabase::empty().await);

    house.producer(&["tasks", "list"]).with(1).complains("run `producer migrate`");
    house.producer(&["migrate", "--check"]).with(1).complains("schema version 0");
    let first = house.producer(&["migrate", "--json"]).with(0).json();
    let again = house.producer(&["migrate", "--json"]).with(0).json();

    assert_eq!(first["version"], shared::store::SCHEMA_VERSION);
    assert!(first["applied"].as_array().is_some_and(|files| !files.is_empty()));
    assert_eq!(again["applied"], json!([]));
    house.producer(&["migrate", "--check"]).with(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_topology_is_compared_declared_and_exported() {
    let house = House::open().await;
    let missing = house.producer(&["topology", "diff", "--json"]).with(1).json();
    let all = house.topology.exchanges().len() + house.topology.queues().len();
    assert_eq!(missing["missing"].as_array().map(Vec::len), Some(all));
    let sick = house.producer(&["doctor"]).with(1);
    assert!(sick.out.contains("FAILED  topology"), "{sick:?}");

    // From here on the house deletes it at the end.
    let house = house.with_broker().await;
    house.producer(&["topology", "declare"]).with(0);

    house.producer(&["topology", "diff"]).with(0);
    let shown = house.producer(&["topology", "show", "--json"]).with(0).json();
    assert_eq!(shown.as_array().map(Vec::len), Some(all));
    let export = house.producer(&["topology", "export", "--vhost", "v"]).with(0).json();
    assert_eq!(export["queues"][0]["vhost"], "v");
    let well = house.producer(&["doctor", "--wait", "5s", "--json"]).with(0).json();
    assert_eq!(well["ok"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_fetched_by_number_name_or_date() {
    let house = House::open().await;
    let task = house.given(json!({})).await;
    let attempt = house.claimed(task).await;
    let report = NewArtifact {
        report: "fleet".into(),
        date: "2026-12-01".into(),
        content_type: "text/markdown".into(),
        content: b"# Fleet\n".to_vec(),
    };
    let kept = house.store.keep_artifact(task, attempt.token, &report).await.expect("kept");
    house.ended(&attempt, Outcome::Completed { result: json!({}) }).await;
    let id = kept.expect("ours").0.to_string();

    for which in [&id, "fleet", "fleet@2026-12-01"] {
        assert_eq!(
            house.producer(&["artifacts", "get", which]).with(0).out,
            "# Fleet\n",
            "{which}"
        );
    }
    let list = house.producer(&["artifacts", "list", "fleet", "--json"]).with(0).json();
    assert_eq!((&list[0]["report"], &list[0]["bytes"]), (&json!("fleet"), &json!(8)));
    house
        .producer(&["artifacts", "get", "fleet", "-o", "r.md"])
        .with(0)
        .complains("8 bytes in r.md");
    assert_eq!(std::fs::read(house.dir.path().join("r.md")).expect("there"), b"# Fleet\n");
    house.producer(&["artifacts", "get", "fleet@2026-12-02"]).with(3).complains("artifacts list");
}
