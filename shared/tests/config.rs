//! `belfry.yaml` as its author keeps it: what loads, what is refused, and how that is said.

use std::collections::HashMap;
use std::time::Duration;

use secrecy::ExposeSecret;
use shared::config::{self, Config, Problems};
use shared::domain::quota::{Limits, OverBudget, Scope};
use shared::domain::schedule::{CatchUp, Overlap};

#[path = "config/limits.rs"]
mod limits;
#[path = "config/manual.rs"]
mod manual;
#[path = "config/problems.rs"]
mod problems;
#[path = "config/timing.rs"]
mod timing;
#[path = "config/unset.rs"]
mod unset;

/// Loads with the given variables.
fn load_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, Problems> {
    let table: HashMap<_, _> = variables.iter().copied().collect();
    config::load_str(text, "belfry.yaml", &|name| table.get(name).map(ToString::to_string))
}

fn load(text: &str) -> Result<Config, Problems> {
    load_with(text, &[])
}

/// The text must load.
#[track_caller]
fn loaded(text: &str, variables: &[(&str, &str)]) -> Config {
    load_with(text, variables).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The text must have exactly these problems, each expected line being the beginning of one.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let problems = load(text).expect_err("the text is wrong").to_string();
    let lines: Vec<&str> = problems.lines().collect();
    let fits = lines.len() == expected.len()
        && lines.iter().zip(expected).all(|(line, expected)| line.starts_with(expected));
    assert!(fits, "found:\n{problems}\nexpected:\n{}", expected.join("\n"));
}

/// One schedule with these further lines.
fn task(lines: &str) -> String {
    format!("tasks:\n- name: a\n  schedule: '* * * * *'\n  task_type: http_call\n{lines}")
}

#[test]
fn only_a_file_that_says_tasks_wants_something_of_them() {
    for silent in ["", "tasks:\n", "tasks: ~\n", "scheduler: {timezone: UTC}\n"] {
        assert!(!loaded(silent, &[]).says_tasks, "{silent:?}");
    }
    for said in ["tasks: []\n", &task("")] {
        assert_eq!(loaded(said, &[]).silence(), None, "{said:?}");
    }
}

#[test]
fn overlap_has_the_words_of_kubernetes_and_temporal() {
    for (words, overlap) in [
        (["skip", "Skip", "Forbid"].as_slice(), Overlap::Skip),
        (&["queue", "BufferOne", "buffer_one"], Overlap::Queue),
        (&["queue_all", "BufferAll", "buffer_all"], Overlap::QueueAll),
        (&["replace", "Replace", "CancelOther", "TerminateOther"], Overlap::Replace),
        (&["allow", "Allow", "AllowAll", "allow_all"], Overlap::Allow),
    ] {
        for word in words {
            let config = loaded(&task(&format!("  overlap: {word}\n")), &[]);
            assert_eq!(config.schedules[0].overlap, overlap, "{word}");
        }
    }
}

#[test]
fn the_file_of_an_older_scheduler_loads_with_one_note_for_each_key_that_does_nothing() {
    let config = loaded(include_str!("data/scheduler.yaml"), &[]);

    let schedule = &config.schedules[0];
    assert_eq!(schedule.name, "nightly_stock_sync");
    assert_eq!(schedule.cron.as_str(), "0 18 * * *");
    assert_eq!(schedule.pool, "io_pool");
    assert_eq!(schedule.payload.value()["url"], "https://stock.example/sync");
    assert_eq!(schedule.execution_key_template, "stock_sync_{{ .ScheduledDate }}");
    assert_eq!(config.scheduler.heartbeat_ttl, Duration::from_mins(1));
    assert!(config.model.api_key.is_none());
    let about = |part: &str| config.notes.iter().filter(|note| note.contains(part)).count();
    assert_eq!(about("belfry.yaml:10: storage.redis: does nothing here"), 1, "{:?}", config.notes);
    assert_eq!(about("belfry.yaml:19: model.api_key: the variable TAOTOKEN_API_KEY is not set"), 1);
    assert_eq!(config.notes.len(), 2, "{:?}", config.notes);
}

#[test]
fn nothing_at_all_is_a_configuration() {
    let config = loaded("", &[]);

    assert_eq!(config.scheduler.heartbeat_interval, Duration::from_secs(5));
    assert_eq!(config.scheduler.heartbeat_ttl, Duration::from_secs(15));
    assert_eq!(config.pool_of("db_query").map(|pool| pool.max_workers), Some(20));
    assert_eq!(config.pool_of("command").map(|pool| pool.name.as_str()), Some("cpu_pool"));
    assert!(config.pool_of("http_cal").is_none());
    assert_eq!(config.rabbitmq.prefix, "belfry");
    assert_eq!(config.retention.execution_keys, Duration::from_hours(90 * 24));
    assert!(config.http_addr.is_none());
}

#[test]
fn every_key_is_read() {
    let text = r#"
scheduler: {heartbeat_interval: 500ms, heartbeat_ttl: 2, timezone: Asia/Shanghai, max_retry: 5, retry_backoff_base: 1.5, retry_backoff_max: 10m}
storage:
  postgres: {dsn: "postgres://u:p@db/x"}
  rabbitmq: {url: "amqp://mq", prefix: test-1}
model:
  base_url: https://models.example/v1
  api_key: " key "
  default_model: m1
  timeout: 60
  endpoints: {local: {base_url: "http://127.0.0.1:8000/v1", api_key: k, models: [m2, m3]}}
  fallback: {m1: [m2, m3]}
  prices: {m1: {input: 3, cached_input: 0.3, output: 15.5, reasoning: 20}}
  limits:
    m1: {requests_per_minute: 60, burst: 5, tokens_per_minute: 1000, in_flight: 7, daily_tokens: 5000, daily_cost: 2.5, timezone: UTC, over_budget: {downgrade: m2}}
    m2: {daily_tokens: 5000, over_budget: dead}
task_pools: {one: {max_workers: 3, task_types: [http_call, my_own]}}
tasks:
- name: full
  schedule: "*/5 * * * * *"
  timezone: Europe/Berlin
  task_type: my_own
  payload: {n: 12345678901234567, f: 0.1, s: "7", t: [true, ~], deep: {x: 2026-01-01}}
  execution_key_template: "k_{{ scheduled_date }}"
  overlap: Forbid
  catch_up: all
  catch_up_window: 2h
  timeout: 90s
  max_retry: 0
  retry_backoff_base: 1
  retry_backoff_max: 2
  semantics: at_most_once
  paused: true
  budget: {daily_tokens: 100, daily_cost: 0.5, over_budget: "downgrade: m3"}
- {name: short, schedule: "@hourly", task_type: http_call}
alerts: {webhook: "https://hooks.example/x", repeat: 1h}
sources: {reporting: {dsn: "host=db dbname=x", mode: write, max_rows: 5, statement_timeout: 7}}
secrets: {token: abc}
http: {allow_hosts: ["Internal.example:8080"], allow_private: true}
limits: {ack_early_above: 5m, crash_limit: 2, drain: 0s}
retention: {completed: 1d, dead: 2d, execution_keys: 3d}
reports:
  daily:
    template: "{{ rows | length }}"
    queries: {rows: {source: reporting, sql: "SELECT $1", params: [1, "x"]}}
    fetches: {page: {url: "https://x.example/", headers: {Authorization: "secret:token"}}}
    summary_prompt: "Say it: {{ rows }}"
    content_type: text/html
artifacts: {dir: out}
http_addr: "localhost:9090"
"#;
    let config = loaded(text, &[]);

    let full = &config.schedules[0];
    assert_eq!((full.overlap, full.catch_up, full.paused), (Overlap::Skip, CatchUp::All, true));
    assert_eq!((full.timeout.as_secs(), full.catch_up_window.as_secs()), (90, 7200));
    assert_eq!(
        (full.retry.max_retry, full.retry.base.as_secs(), full.retry.max.as_secs()),
        (0, 1, 2)
    );
    assert_eq!(
        full.payload.to_string(),
        r#"{"deep":{"x":"2026-01-01"},"f":0.1,"n":12345678901234567,"s":"7","t":[true,null]}"#
    );
    let short = &config.schedules[1];
    assert_eq!(short.timezone, chrono_tz::Asia::Shanghai);
    assert_eq!(short.retry.base, Duration::from_millis(1500));
    assert_eq!(short.execution_key_template, "{{ schedule }}@{{ scheduled_at }}");
    check_models(&config);
    assert_eq!(config.http.allow_hosts, ["internal.example:8080"]);
    assert_eq!((config.limits.crash_limit, config.limits.drain), (2, Duration::ZERO));
    assert!(!config.sources["reporting"].read_only);
    assert_eq!(config.reports["daily"].queries["rows"].params.len(), 2);
    assert_eq!(config.http_addr.map(|addr| addr.to_string()).as_deref(), Some("127.0.0.1:9090"));
    assert_eq!(config.notes.len(), 1, "the note on my_own alone: {:?}", config.notes);
}

/// What `every_key_is_read` says of models.
fn check_models(config: &Config) {
    assert_eq!(config.model.api_key.as_ref().map(ExposeSecret::expose_secret), Some("key"));
    assert_eq!(config.model.endpoints["local"].models, ["m2", "m3"]);
    let limits = Limits {
        requests_per_minute: Some(60),
        burst: Some(5),
        tokens_per_minute: Some(1000),
        in_flight: Some(7),
        daily_tokens: Some(5000),
        daily_cost_micro: Some(2_500_000),
        timezone: chrono_tz::UTC,
        over_budget: OverBudget::Downgrade("m2".to_owned()),
    };
    assert_eq!(config.model.limits["m1"], limits);
    let second = &config.model.limits["m2"];
    assert_eq!(
        (&second.over_budget, second.timezone),
        (&OverBudget::Dead, chrono_tz::Asia::Shanghai)
    );
    let budget = &config.budgets["full"];
    assert_eq!((budget.daily_tokens, budget.daily_cost_micro), (Some(100), Some(500_000)));
    assert_eq!(budget.over_budget, OverBudget::Downgrade("m3".to_owned()));
    assert_eq!(budget.timezone, chrono_tz::Europe::Berlin, "its schedule's");
    let quotas = config.quotas();
    let names: Vec<_> = quotas.iter().map(|quota| (quota.scope, quota.name.as_str())).collect();
    assert_eq!(names, [(Scope::Model, "m1"), (Scope::Model, "m2"), (Scope::Schedule, "full")]);
    assert_eq!(config.model.fallback["m1"], ["m2", "m3"]);
    let price = config.model.prices["m1"];
    assert_eq!((price.cached_input, price.reasoning), (Some(0.3), Some(20.0)));
}

#[test]
fn anchors_aliases_and_merge_keys_save_repetition() {
    let text = "\
tasks:
- &base {name: a, schedule: '@daily', task_type: http_call, timeout: 7}
- {<<: *base, name: b}
";
    let config = loaded(text, &[]);

    let second = &config.schedules[1];
    assert_eq!((second.name.as_str(), second.timeout.as_secs()), ("b", 7));
}

#[test]
fn schedules_are_the_same_wherever_their_list_stands() {
    let pools = "task_pools: {p: {task_types: [http_call]}}";
    let entry = |name| format!("{{name: {name}, schedule: '@daily', task_type: http_call}}");
    let entries = format!("[{}, {}]", entry("a"), entry("b"));
    for text in [
        format!("{pools}\ntasks: {entries}"),
        format!("tasks: {entries}\n{pools}"),
        format!("tasks: &all {entries}\n{pools}"),
        format!("<<: {{tasks: {entries}}}\n{pools}"),
        format!("<<: {{tasks: &all {entries}}}\ntasks: *all\n{pools}"),
    ] {
        let config = loaded(&text, &[]);

        let names: Vec<&str> = config.schedules.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a", "b"], "{text}");
        assert_eq!(config.schedules[1].pool, "p", "{text}");
    }
}

#[test]
fn a_key_in_the_file_wins_over_its_variable() {
    let variables = [
        ("DATABASE_URL", "postgres://env/x"),
        ("RABBITMQ_URL", "amqp://second"),
        ("AMQP_URL", "amqp://first"),
        ("MODEL_BASE_URL", "https://env.example/v1"),
        ("MODEL_API_KEY", "env-key\n"),
        ("MODEL_NAME", "env-model"),
        ("BELFRY_HTTP_ADDR", ":9000"),
    ];
    let url = |config: &Config| config.database_url().expect("given").expose_secret().to_owned();

    let config = loaded("", &variables);
    assert_eq!(url(&config), "postgres://env/x");
    assert_eq!(config.amqp_url().expect("given").expose_secret(), "amqp://first");
    assert_eq!(config.model.api_key.as_ref().map(ExposeSecret::expose_secret), Some("env-key"));
    let base_url = config.model.base_url.as_ref().map(ExposeSecret::expose_secret);
    assert_eq!(base_url, Some("https://env.example/v1"));
    assert_eq!(config.default_model(), Ok("env-model"));
    assert_eq!(config.http_addr.map(|addr| addr.to_string()).as_deref(), Some("0.0.0.0:9000"));

    let config = loaded(
        "storage: {postgres: {dsn: 'postgres://file/x'}}\nhttp_addr: 127.0.0.1:1",
        &variables,
    );
    assert_eq!(url(&config), "postgres://file/x");
    assert_eq!(config.http_addr.map(|addr| addr.port()), Some(1));

    // An unset variable in the file says nothing, so the conventional one is asked.
    let config = loaded("storage: {postgres: {dsn: '${OTHER_URL}'}}", &variables);
    assert_eq!(url(&config), "postgres://env/x");
    let config = loaded("", &variables[1..2]);
    assert_eq!(config.amqp_url().expect("given").expose_secret(), "amqp://second");
}

#[test]
fn any_variable_may_be_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (url, token) = (file("url", "postgres://file/x\n"), file("token", "  t0ken\n\n"));
    let variables = [("DATABASE_URL_FILE", url.as_str()), ("TOKEN_FILE", token.as_str())];

    let config = loaded("secrets: {a: '${TOKEN}'}", &variables);
    assert_eq!(config.database_url().expect("given").expose_secret(), "postgres://file/x");
    assert_eq!(config.secrets["a"].as_ref().map(ExposeSecret::expose_secret), Some("t0ken"));

    let problems = load_with("", &[("AMQP_URL_FILE", "/nowhere/url")]).expect_err("no such file");
    assert!(
        problems.to_string().starts_with("environment: AMQP_URL_FILE: /nowhere/url: "),
        "{problems}"
    );
}

#[test]
fn unset_variables_are_notes_until_their_part_is_used() {
    let text = task(
        "  payload: {url: '${BASE}/x', n: '${N:-5}'}\nsecrets: {t: '${T}'}\nalerts: {webhook: '${W:-}'}",
    );
    let config = loaded(&text, &[]);

    assert_eq!(config.schedules[0].payload.to_string(), r#"{"n":"5","url":"${BASE}/x"}"#);
    assert!(config.secrets["t"].is_none() && config.alerts.webhook.is_none());
    assert_eq!(
        config.notes,
        [
            "belfry.yaml:5: tasks[0].payload.url: the variable BASE is not set",
            "belfry.yaml:6: secrets.t: the variable T is not set",
        ]
    );
    assert_eq!(
        config.require_complete("tasks").expect_err("BASE is used").to_string(),
        "belfry.yaml:5: tasks[0].payload.url: the variable BASE is not set, and this value is used now"
    );
    assert!(config.require_complete("reports").is_ok());
    assert!(loaded(&text, &[("BASE", "b")]).require_complete("tasks").is_ok());
    check(
        "tasks: [{name: '${X}', schedule: '@daily', task_type: command}]",
        &["belfry.yaml:1: tasks[0].name: the variable X is not set, and this value is needed"],
    );
}

#[test]
fn a_missing_value_says_which_key_and_variable_to_set() {
    let config = loaded("", &[]);
    assert_eq!(
        config.database_url().expect_err("none").to_string(),
        "no PostgreSQL connection string is given: set `storage.postgres.dsn` in belfry.yaml, or the variable DATABASE_URL"
    );
    assert!(config.amqp_url().expect_err("none").to_string().contains("AMQP_URL"));
}

/// Two names that look alike must be alike.
#[test]
fn a_name_or_a_key_with_signs_that_nobody_sees_is_refused() {
    let text = "tasks:
- {name: \"a\\u202eb\", schedule: '@daily', task_type: http_call}
- {name: c, schedule: '@daily', task_type: http_call, execution_key_template: \"k\\u200b{{ schedule }}\"}
- {name: d, schedule: '@daily', task_type: http_call, timezone: NO}
";
    check(
        text,
        &[
            "belfry.yaml:2: tasks[0].name: a name has at most 128 bytes, printable",
            "belfry.yaml:3: tasks[1].execution_key_template: template: an execution key must be printable; it has \\u{200b}",
            "belfry.yaml:4: tasks[2].timezone: unknown time zone, found \"NO\"; expected an IANA name",
        ],
    );
}
