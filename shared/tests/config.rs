//! `belfry.yaml` as its author keeps it: what loads, what is refused, and how that is said.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use secrecy::ExposeSecret;
use shared::config::{self, Config, Loader, Problems, keys};
use shared::domain::schedule::{CatchUp, Overlap};

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
fn the_file_of_an_older_scheduler_loads_with_one_note_for_each_key_that_does_nothing() {
    let config = loaded(include_str!("data/scheduler.yaml"), &[]);

    let schedule = &config.schedules[0];
    assert_eq!(schedule.name, "nightly_stock_sync");
    assert_eq!(schedule.cron.as_str(), "0 18 * * *");
    assert_eq!(schedule.pool, "io_pool");
    assert_eq!(schedule.payload["url"], "https://stock.example/sync");
    assert_eq!(schedule.execution_key_template, "stock_sync_{{ .ScheduledDate }}");
    assert_eq!(config.scheduler.heartbeat_ttl, Duration::from_secs(60));
    assert_eq!(config.model.api_key.is_some(), false);
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
    assert_eq!(config.retention.execution_keys, Duration::from_secs(90 * 86_400));
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
  prices: {m1: {input: 3, output: 15.5}}
  limits: {m1: {requests_per_minute: 60, tokens_per_minute: 1000, tokens_per_day: 5000, cost_per_day: 2.5}}
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
- {name: short, schedule: "@hourly", task_type: http_call}
alerts: {webhook: "https://hooks.example/x", repeat: 1h}
sources: {reporting: {dsn: "host=db dbname=x", mode: write, max_rows: 5, statement_timeout: 7}}
secrets: {token: abc}
http: {allow_hosts: ["Internal.example:8080"], allow_private: true}
limits: {ack_early_above: 5m, crash_limit: 2}
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
    assert_eq!(config.model.api_key.as_ref().map(|key| key.expose_secret()), Some("key"));
    assert_eq!(config.model.endpoints["local"].models, ["m2", "m3"]);
    assert_eq!(config.model.limits["m1"].tokens_per_day, Some(5000));
    assert_eq!(config.http.allow_hosts, ["internal.example:8080"]);
    assert!(!config.sources["reporting"].read_only);
    assert_eq!(config.reports["daily"].queries["rows"].params.len(), 2);
    assert_eq!(config.http_addr.map(|addr| addr.to_string()).as_deref(), Some("127.0.0.1:9090"));
    assert_eq!(config.notes.len(), 1, "the note on my_own alone: {:?}", config.notes);
}

#[test]
fn all_problems_are_listed_at_once_with_line_and_path() {
    let text = "\
schedular: {}
scheduler:
  heartbeat_interval: 30
  heartbeat_ttl: 45
  timezone: Shanghia
  max_retry: many
storage:
  postgres: {dns: x}
  rabbitmq: {url: 'http://mq'}
task_pools:
  IO: {max_workers: 0, task_types: [http_call, http_cal]}
tasks:
- name: a
  schedule: 61 * * * *
  task_type: nothing
- name: b
  name: c
  schedule: '* * * * *'
  task_type: http_call
  timezone: Berlin
  overlap: forbidden
  maxRetry: 3
  payload: {x: 1, x: 2, y: 00123}
- schedule: '* * * * *'
  task_type: http_call
";
    check(
        text,
        &[
            "belfry.yaml:1: schedular: unknown key; did you mean `scheduler`?",
            "belfry.yaml:4: scheduler.heartbeat_ttl: must be at least twice heartbeat_interval (30s)",
            "belfry.yaml:5: scheduler.timezone: unknown time zone, found \"Shanghia\"; did you mean",
            "belfry.yaml:6: scheduler.max_retry: expected a whole number from 0 to 1000, found \"many\"",
            "belfry.yaml:8: storage.postgres.dns: unknown key; did you mean `dsn`?",
            "belfry.yaml:9: storage.rabbitmq.url: expected amqp://",
            "belfry.yaml:11: task_pools.IO: a pool's name has 1 to 32 of a-z, 0-9, _ and -",
            "belfry.yaml:11: task_pools.IO.max_workers: expected a whole number from 1 to 1000",
            "belfry.yaml:11: task_pools.IO.task_types[1]: no handler is named http_cal; did you mean `http_call`?",
            "belfry.yaml:14: tasks[0].schedule: ",
            "belfry.yaml:15: tasks[0].task_type: nothing is in no pool of task_pools",
            "belfry.yaml:17: tasks[1].name: given twice (first on line 16)",
            "belfry.yaml:20: tasks[1].timezone: unknown time zone, found \"Berlin\"; did you mean Europe/Berlin?",
            "belfry.yaml:21: tasks[1].overlap: unknown value, found \"forbidden\"",
            "belfry.yaml:22: tasks[1].maxRetry: unknown key; did you mean `max_retry`?",
            "belfry.yaml:23: tasks[1].payload.x: given twice (first on line 23)",
            "belfry.yaml:23: tasks[1].payload.y: 00123 begins with 0",
            "belfry.yaml:24: tasks[2]: `name` is missing",
        ],
    );
}

#[test]
fn each_wrong_value_has_its_own_problem() {
    let one = |text: &str, expected: &str| check(text, &[expected]);
    one("- a", "belfry.yaml:1: expected a mapping (key: value), found a list");
    one("scheduler: 3", "belfry.yaml:1: scheduler: expected a mapping");
    one("tasks: {a: 1}", "belfry.yaml:1: tasks: expected a list, found a mapping");
    one("a: [", "belfry.yaml:2: not valid YAML");
    one("a: 1\n---\nb: 1", "belfry.yaml:2: a second document");
    one("? [a]\n: 1", "belfry.yaml:1: a key must be a plain word");
    one("model: {timeout: !env X}", "belfry.yaml:1: the tag !env means nothing here");
    one("model: {timeout: 0}", "belfry.yaml:1: model.timeout: must be longer than 0");
    one(
        "model: {timeout: 1w}",
        "belfry.yaml:1: model.timeout: expected seconds (30, 1.5) or 500ms",
    );
    one("model: {timeout: 11 years}", "belfry.yaml:1: model.timeout: expected seconds");
    one("model: {default_model: '${A B}'}", "belfry.yaml:1: model.default_model: `${…}` names no");
    one("model: {default_model: \"a\\0b\"}", "belfry.yaml:1: model.default_model: holds a NUL");
    one("model: {api_key: \"a\\nb\"}", "belfry.yaml:1: model.api_key: holds a line break");
    one("model: {base_url: 'https://k@x/v1'}", "belfry.yaml:1: model.base_url: holds credentials");
    one("model: {prices: {m: {input: 1}}}", "belfry.yaml:1: model.prices.m: `output` is missing");
    one(
        "model: {prices: {m: {input: -1, output: 1}}}",
        "belfry.yaml:1: model.prices.m.input: expected",
    );
    one("sources: {a: {}}", "belfry.yaml:1: sources.a: `dsn` is missing");
    one("sources: {a: {dsn: 'mysql://x'}}", "belfry.yaml:1: sources.a.dsn: expected postgres://");
    one(
        "sources: {a: {dsn: 'dbname=x', mode: raed}}",
        "belfry.yaml:1: sources.a.mode: unknown value, found \"raed\"; did you mean `read`?",
    );
    one("secrets: {a: }", "belfry.yaml:1: secrets.a: has no value");
    one("http: {allow_hosts: ['http://x']}", "belfry.yaml:1: http.allow_hosts[0]: expected a host");
    one("http: {allow_private: yes}", "belfry.yaml:1: http.allow_private: expected true or false");
    one("http_addr: 9090", "belfry.yaml:1: http_addr: expected address:port");
    one("limits: {crash_limit: 0}", "belfry.yaml:1: limits.crash_limit: expected a whole number");
    one("alerts: {webhook: 'ftp://x'}", "belfry.yaml:1: alerts.webhook: expected http://");
    one(
        "scheduler: {retry_backoff_base: 2h}",
        "belfry.yaml:1: scheduler.retry_backoff_base: retry_backoff_base (7200s) is longer",
    );
    one(
        "task_pools: {a: {task_types: [http_call]}, b: {task_types: [http_call]}}",
        "belfry.yaml:1: task_pools.b.task_types[0]: http_call is in the pool a already",
    );
    one("reports: {r: {}}", "belfry.yaml:1: reports.r: `template` or `template_file` is missing");
    one(
        "reports: {r: {template: '{% if %}'}}",
        "belfry.yaml:1: reports.r.template: not a valid template",
    );
    one(
        "reports: {r: {template_file: nowhere.j2}}",
        "belfry.yaml:1: reports.r.template_file: nowhere.j2: ",
    );
    one(
        "reports: {r: {template: x, queries: {q: {source: a, sql: S}}}}",
        "belfry.yaml:1: reports.r.queries.q.source: no source is named a",
    );
    one(
        "reports: {r: {template: x, fetches: {f: {url: 'http://x/', headers: {Authorization: Basic x}}}}}",
        "belfry.yaml:1: reports.r.fetches.f.headers.Authorization: is a secret",
    );
    one(
        "reports: {r: {template: x, fetches: {f: {url: 'file:///x'}}}}",
        "belfry.yaml:1: reports.r.fetches.f.url: expected http://",
    );
    one(&task("  catch_up: newest"), "belfry.yaml:5: tasks[0].catch_up: unknown value");
    one(&task("  name: b"), "belfry.yaml:5: tasks[0].name: given twice (first on line 2)");
    one(
        &task("- name: a\n  schedule: '@daily'\n  task_type: http_call"),
        "belfry.yaml:5: tasks[1].name: a schedule named a is there already, on line 2",
    );
    one(
        &task("  payload: {h: {k: 'secret:nope'}}"),
        "belfry.yaml:5: tasks[0].payload.h.k: `secrets` has no \"nope\"",
    );
    one(
        &task("  payload: {n: 123456789012345678901}"),
        "belfry.yaml:5: tasks[0].payload.n: 123456789012345678901 has more digits",
    );
    one(&task("  payload: {n: \"a\\0\"}"), "belfry.yaml:5: tasks[0].payload.n: holds a NUL");
    one(
        &task(&format!("  payload: {{n: {}}}", "x".repeat(300_000))),
        "belfry.yaml:5: tasks[0].payload: 300008 bytes are more",
    );
    one(
        &task("  retry_backoff_max: 5"),
        "belfry.yaml:5: tasks[0].retry_backoff_max: retry_backoff_base (60s) is longer",
    );
    one(&task("  semantics: exactly_once"), "belfry.yaml:5: tasks[0].semantics: unknown value");
    one(
        "secrets: {a: ${B}}",
        "belfry.yaml:1: not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'; inside { } and [ ], put",
    );
    one(
        "tasks:\n- schedule: */5 * * * *",
        "belfry.yaml:2: not valid YAML: while parsing node, found unknown anchor; put the value in quotes",
    );
    one(
        "tasks:\n- schedule: @daily",
        "belfry.yaml:2: not valid YAML: unexpected character: `@'; put the value in quotes",
    );
    one(
        "tasks:\n- execution_key_template: {{ x }}",
        "belfry.yaml:2: a key must be a plain word; put a template that begins with {{ in quotes",
    );
    one("a\0b", "belfry.yaml:1: holds a NUL byte");
}

#[test]
fn bombs_and_giants_are_refused_quickly() {
    let began = Instant::now();
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    check(&bomb, &["belfry.yaml:5: aliases expand to too much"]);
    check("a: &a [*a]", &["belfry.yaml:1: an alias refers to the value that it stands in"]);
    check(&"[".repeat(100_000), &["belfry.yaml:1: not valid YAML: recursion limit"]);
    let block: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    check(&block, &["belfry.yaml:65: nested deeper than 64 levels"]);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("big.yaml");
    std::fs::write(&path, "#".repeat(1024 * 1024 + 1)).expect("written");
    let problems = config::load(Some(&path)).expect_err("too large").to_string();
    assert!(
        problems
            .ends_with("big.yaml: is larger than 1 MiB; large inputs belong in files of their own"),
        "{problems}"
    );
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn a_file_that_is_not_text_or_not_there_is_one_problem() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("b.yaml");
    assert!(
        config::load(Some(&path))
            .expect_err("absent")
            .to_string()
            .contains("b.yaml: cannot be read")
    );
    std::fs::write(&path, b"a: 1\nb: \xff\n").expect("written");
    assert!(
        config::load(Some(&path))
            .expect_err("latin")
            .to_string()
            .ends_with("is not UTF-8 text (line 2)")
    );
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
    assert_eq!(config.model.api_key.as_ref().map(|key| key.expose_secret()), Some("env-key"));
    assert_eq!(config.model_base_url(), Ok("https://env.example/v1"));
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
    assert_eq!(config.secrets["a"].as_ref().map(|secret| secret.expose_secret()), Some("t0ken"));

    let problems = load_with("", &[("AMQP_URL_FILE", "/nowhere/url")]).expect_err("no such file");
    assert!(
        problems.to_string().starts_with("environment: AMQP_URL_FILE: /nowhere/url: "),
        "{problems}"
    );
}

#[test]
fn a_wrong_variable_is_a_problem_of_the_environment() {
    let variables = [
        ("DATABASE_URL", "mysql://u:hunter2@x"),
        ("MODEL_API_KEY", "hun\nter2"),
        ("BELFRY_HTTP_ADDR", "x"),
    ];
    let problems = load_with("", &variables).expect_err("wrong").to_string();
    let begins =
        problems.lines().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": "));
    assert_eq!(
        begins.collect::<Vec<_>>(),
        [
            "environment: BELFRY_HTTP_ADDR",
            "environment: DATABASE_URL",
            "environment: MODEL_API_KEY"
        ]
    );
    assert!(!problems.contains("ter2"), "{problems}");
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

#[test]
fn secrets_appear_neither_in_debug_nor_in_problems() {
    let right = "\
storage: {postgres: {dsn: 'postgres://u:hunter2@db/x'}, rabbitmq: {url: 'amqp://u:hunter2@mq'}}
model: {api_key: hunter2, endpoints: {a: {base_url: 'http://x', api_key: hunter2}}}
secrets: {t: hunter2}
sources: {s: {dsn: 'postgres://u:hunter2@db/x'}}
alerts: {webhook: 'https://x/hunter2'}
";
    assert!(!format!("{:?}", loaded(right, &[])).contains("hunter2"));

    let wrong = "\
storage: {postgres: {dsn: 'mysql://u:hunter2@db/x'}, rabbitmq: {url: 'http://u:hunter2@mq'}}
model: {api_key: \"hun\\nhunter2\", base_url: 'https://hunter2@x', timeout: '${P}', prices: {m: {input: '${P}', output: 1}}}
scheduler: {timezone: '${P}', max_retry: '${P}'}
secrets: {t: [hunter2], u: '${hunter2'}
sources: {s: {dsn: 'hunter2', mode: '${P}'}}
alerts: {webhook: 'hunter2'}
http: {allow_private: '${P}'}
reports: {r: {template: x, fetches: {f: {url: 'http://x/', headers: {Authorization: hunter2}}}}}
";
    let problems = load_with(wrong, &[("P", "hunter2")]).expect_err("wrong").to_string();
    assert_eq!(problems.lines().count(), 15, "{problems}");
    assert!(!problems.contains("hunter2"), "{problems}");
}

#[test]
fn payloads_are_judged_by_the_handlers_hook() {
    let refuse = |task_type: &str, payload: &serde_json::Value| match payload.get("url") {
        Some(_) => Ok(()),
        None => Err(format!("{task_type} needs `url`")),
    };
    let judged = |lines: &str| {
        Loader { variables: &|_| None, payload: &refuse }.text(&task(lines), "b.yaml")
    };

    assert!(judged("  payload: {url: x}").is_ok());
    let problems = judged("  payload: {uri: x}").expect_err("no url").to_string();
    assert_eq!(problems, "b.yaml:5: tasks[0].payload: http_call needs `url`");
    let problems = judged("").expect_err("no payload").to_string();
    assert_eq!(problems, "b.yaml:2: tasks[0]: `payload` is missing: http_call needs `url`");
}

/// The documentation, as a reader has it.
const MANUAL: &str = include_str!("../../docs/configuration.md");

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
        include_str!("../src/config/mod.rs"),
        include_str!("../src/config/storage.rs"),
        include_str!("../src/config/sections.rs")
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
        ("RABBITMQ_MANAGEMENT_URL", "http://127.0.0.1:15672"),
        ("RABBITMQ_MANAGEMENT_AUTH", "Basic dTpw"),
    ];
    let full = load("belfry.yaml", &variables);
    assert_eq!(full.notes, Vec::<String>::new());
    assert_eq!(full.reports["fleet"].fetches["queues"].url, "http://127.0.0.1:15672/api/queues");
    let names: Vec<_> = full.schedules.iter().map(|schedule| schedule.name.as_str()).collect();
    assert_eq!(names, ["fleet_report", "ping_model", "nightly_orders"]);
}

#[test]
fn the_example_report_renders_with_and_without_values() {
    let mut environment = minijinja::Environment::new();
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    let template = include_str!("../../examples/reports/fleet.md.j2");
    let render = |values: serde_json::Value| {
        environment
            .render_str(template, minijinja::value::Serde(values))
            .unwrap_or_else(|error| panic!("{error:#}"))
    };

    let empty = render(serde_json::json!({
        "date": "2026-08-14", "workers": [], "tasks": [], "ticks": [], "attempts": [], "queues": [],
        "overview": {"rabbitmq_version": "4.0.5", "queue_totals": {}},
    }));
    assert!(empty.contains("\n| every queue is empty | 0 | 0 |\n"), "{empty}");

    let full = render(serde_json::json!({
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
