//! What is refused, and how that is said.

use std::fmt::Write;
use std::time::{Duration, Instant};

use shared::config::{self, Loader};

use super::{check, load_with, loaded, task};

/// A whole file to damage.
const EXAMPLE: &str = include_str!("../../../examples/belfry.yaml");

#[test]
fn a_lease_must_have_time_for_its_renewal() {
    check(
        "scheduler: {heartbeat_interval: 1ms, heartbeat_ttl: 2ms}\n",
        &["belfry.yaml:1: scheduler.heartbeat_interval: must be at least 250ms"],
    );
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
fn what_is_no_document_is_said_with_its_cure() {
    for (text, expected) in [
        ("- a", "belfry.yaml:1: expected a mapping (key: value), found a list"),
        ("scheduler: 3", "belfry.yaml:1: scheduler: expected a mapping"),
        ("tasks: {a: 1}", "belfry.yaml:1: tasks: expected a list, found a mapping"),
        ("a: [", "belfry.yaml:1: not valid YAML"),
        ("a: 1\n---\nb: 1", "belfry.yaml:2: a second document"),
        ("? [a]\n: 1", "belfry.yaml:1: a key must be a plain word"),
        ("model: {timeout: !env X}", "belfry.yaml:1: the tag !env means nothing here"),
        (
            "secrets: {a: ${B}}",
            "belfry.yaml:1: not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'; inside { } and [ ], put",
        ),
        (
            "tasks:\n- schedule: */5 * * * *",
            "belfry.yaml:2: not valid YAML: while parsing node, found unknown anchor; put the value in quotes",
        ),
        (
            "tasks:\n- schedule: @daily",
            "belfry.yaml:2: not valid YAML: unexpected character: `@'; put the value in quotes",
        ),
        (
            "tasks:\n- execution_key_template: {{ x }}",
            "belfry.yaml:2: a key must be a plain word; put a template that begins with {{ in quotes",
        ),
        ("a\0b", "belfry.yaml:1: holds a NUL byte"),
    ] {
        check(text, &[expected]);
    }
}

#[test]
fn each_wrong_value_of_a_section_is_a_problem() {
    for (text, expected) in [
        ("model: {timeout: 0}", "belfry.yaml:1: model.timeout: must be longer than 0"),
        (
            "model: {timeout: 1w}",
            "belfry.yaml:1: model.timeout: expected seconds (30, 1.5) or 500ms",
        ),
        ("model: {timeout: 11 years}", "belfry.yaml:1: model.timeout: expected seconds"),
        ("model: {default_model: '${A B}'}", "belfry.yaml:1: model.default_model: `${…}` names no"),
        ("model: {default_model: \"a\\0b\"}", "belfry.yaml:1: model.default_model: holds a NUL"),
        ("model: {api_key: \"a\\nb\"}", "belfry.yaml:1: model.api_key: holds a line break"),
        ("model: {base_url: 'x.example/v1'}", "belfry.yaml:1: model.base_url: expected http://"),
        (
            "model: {fallback: {m: [a, b, c, d, e, f]}}",
            "belfry.yaml:1: model.fallback.m: names more than 5 models",
        ),
        ("model: {fallback: {m: [m]}}", "belfry.yaml:1: model.fallback.m: m cannot stand in for"),
        ("model: {prices: {m: {input: 1}}}", "belfry.yaml:1: model.prices.m: `output` is missing"),
        (
            "model: {prices: {m: {input: -1, output: 1}}}",
            "belfry.yaml:1: model.prices.m.input: expected",
        ),
        ("sources: {a: {}}", "belfry.yaml:1: sources.a: `dsn` is missing"),
        ("sources: {a: {dsn: 'mysql://x'}}", "belfry.yaml:1: sources.a.dsn: expected postgres://"),
        (
            "sources: {a: {dsn: 'dbname=x', mode: raed}}",
            "belfry.yaml:1: sources.a.mode: unknown value, found \"raed\"; did you mean `read`?",
        ),
        ("secrets: {a: }", "belfry.yaml:1: secrets.a: has no value"),
        (
            "http: {allow_hosts: ['http://x']}",
            "belfry.yaml:1: http.allow_hosts[0]: expected a host",
        ),
        ("http: {allow_private: yes}", "belfry.yaml:1: http.allow_private: expected true or false"),
        ("http_addr: 9090", "belfry.yaml:1: http_addr: expected address:port"),
        ("limits: {crash_limit: 0}", "belfry.yaml:1: limits.crash_limit: expected a whole number"),
        ("alerts: {webhook: 'ftp://x'}", "belfry.yaml:1: alerts.webhook: expected http://"),
        (
            "scheduler: {retry_backoff_base: 2h}",
            "belfry.yaml:1: scheduler.retry_backoff_base: retry_backoff_base (7200s) is longer",
        ),
        (
            "task_pools: {a: {task_types: [http_call]}, b: {task_types: [http_call]}}",
            "belfry.yaml:1: task_pools.b.task_types[0]: http_call is in the pool a already",
        ),
    ] {
        check(text, &[expected]);
    }
}

#[test]
fn each_wrong_value_of_a_report_is_a_problem() {
    for (text, expected) in [
        ("reports: {r: {}}", "belfry.yaml:1: reports.r: `template` or `template_file` is missing"),
        (
            "reports: {r: {template: '{% if %}'}}",
            "belfry.yaml:1: reports.r.template: not a valid template",
        ),
        (
            "reports: {r: {template_file: nowhere.j2}}",
            "belfry.yaml:1: reports.r.template_file: nowhere.j2: ",
        ),
        (
            "reports: {r: {template: x, queries: {q: {source: a, sql: S}}}}",
            "belfry.yaml:1: reports.r.queries.q.source: no source is named a",
        ),
        (
            "reports: {r: {template: x, fetches: {f: {url: 'http://x/', headers: {Authorization: Basic x}}}}}",
            "belfry.yaml:1: reports.r.fetches.f.headers.Authorization: is a secret",
        ),
        (
            "reports: {r: {template: x, fetches: {f: {url: 'file:///x'}}}}",
            "belfry.yaml:1: reports.r.fetches.f.url: expected http://",
        ),
    ] {
        check(text, &[expected]);
    }
}

#[test]
fn each_wrong_value_of_a_schedule_is_a_problem() {
    for (text, expected) in [
        ("  catch_up: newest", "belfry.yaml:5: tasks[0].catch_up: unknown value"),
        ("  name: b", "belfry.yaml:5: tasks[0].name: given twice (first on line 2)"),
        (
            "- name: a\n  schedule: '@daily'\n  task_type: http_call",
            "belfry.yaml:5: tasks[1].name: a schedule named a is there already, on line 2",
        ),
        (
            "  payload: {h: {k: 'secret:nope'}}",
            "belfry.yaml:5: tasks[0].payload.h.k: `secrets` has no \"nope\"",
        ),
        (
            "  payload: {n: 123456789012345678901}",
            "belfry.yaml:5: tasks[0].payload.n: 123456789012345678901 has more digits",
        ),
        ("  payload: {n: \"a\\0\"}", "belfry.yaml:5: tasks[0].payload.n: holds a NUL"),
        (
            "  retry_backoff_max: 5",
            "belfry.yaml:5: tasks[0].retry_backoff_max: retry_backoff_base (60s) is longer",
        ),
        (
            "  execution_key_template: '{{ scheduled_dat }}'",
            "belfry.yaml:5: tasks[0].execution_key_template: template: unknown variable \"scheduled_dat\"; did you mean scheduled_date?",
        ),
        (
            "  execution_key_template: '{{ x'",
            "belfry.yaml:5: tasks[0].execution_key_template: template",
        ),
        (
            "  payload: {a: [ok, '{{ nope }}']}",
            "belfry.yaml:5: tasks[0].payload.a[1]: template: unknown variable \"nope\"",
        ),
        ("  semantics: exactly_once", "belfry.yaml:5: tasks[0].semantics: unknown value"),
    ] {
        check(&task(text), &[expected]);
    }
}

#[test]
fn a_payload_has_a_bound() {
    let text = task(&format!("  payload: {{n: {}}}", "x".repeat(300_000)));
    check(&text, &["belfry.yaml:5: tasks[0].payload: 300008 bytes are more"]);
}

#[test]
fn bombs_and_giants_are_refused_quickly() {
    let began = Instant::now();
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{items}]").expect("a string takes it");
    }
    check(&bomb, &["belfry.yaml:5: aliases expand to too much"]);
    check("a: &a [*a]", &["belfry.yaml:1: an alias refers to the value that it stands in"]);
    check(&"[".repeat(100_000), &["belfry.yaml:1: not valid YAML: recursion limit"]);
    let block = (0..200).fold(String::new(), |text, depth| text + &" ".repeat(depth) + "a:\n");
    check(&block, &["belfry.yaml:65: nested deeper than 64 levels"]);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("big.yaml");
    let giant = std::fs::File::create(&path).expect("created");
    giant.set_len(config::MAX_FILE_BYTES + 1).expect("sparse");
    let problems = config::load(Some(&path)).expect_err("too large").to_string();
    assert!(
        problems.ends_with(
            "big.yaml: is larger than 64 MiB; large inputs belong in files of their own"
        ),
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
fn secrets_appear_neither_in_debug_nor_in_problems() {
    let right = "\
storage: {postgres: {dsn: 'postgres://u:hunter2@db/x'}, rabbitmq: {url: 'amqp://u:hunter2@mq'}}
model: {base_url: 'https://u:hunter2@x', api_key: hunter2, endpoints: {a: {base_url: 'http://hunter2@x?k=hunter2', api_key: hunter2}}}
secrets: {t: hunter2}
sources: {s: {dsn: 'postgres://u:hunter2@db/x'}}
alerts: {webhook: 'https://x/hunter2'}
";
    assert!(!format!("{:?}", loaded(right, &[])).contains("hunter2"));

    let wrong = "\
storage: {postgres: {dsn: 'mysql://u:hunter2@db/x'}, rabbitmq: {url: 'http://u:hunter2@mq'}}
model: {api_key: \"hun\\nhunter2\", base_url: 'ftp://hunter2@x', timeout: '${P}', prices: {m: {input: '${P}', output: 1}}}
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

#[test]
fn what_may_be_a_tool_of_a_session_is_said_once_and_held_to() {
    let never = "handlers: {agent_session: {tools: [agent_session]}}";
    check(
        never,
        &["belfry.yaml:1: handlers.agent_session.tools[0]: agent_session cannot be a tool"],
    );
    let schedule = "tasks:\n  - {name: s, schedule: '@daily', task_type: agent_session, payload: {goal: a, tools: [model_invoke]}}\n";
    check(
        schedule,
        &[
            "belfry.yaml:2: tasks[0].payload: payload of agent_session: the task type model_invoke may not be a tool",
        ],
    );
}

#[test]
fn line_numbers_are_those_of_an_editor_whatever_ends_the_lines() {
    let text = "scheduler:\n  timezone: UTC\nsecrets:\n  a: |-\n    two\n    lines\n  b: [x]\n";
    let expected = [
        "belfry.yaml:4: secrets.a: holds a line break",
        "belfry.yaml:7: secrets.b: expected a text, found a list",
    ];
    check(text, &expected);
    check(&text.replace('\n', "\r\n"), &expected);
    check(&format!("\u{feff}{text}"), &expected);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

    /// An editor's slip anywhere in the file ends in a configuration or in problems.
    #[test]
    fn a_damaged_file_is_never_a_panic(
        at in 0..EXAMPLE.len(),
        gone in 0_usize..40,
        put in "[-:{}\\[\\]&*!|>'\"%@#, \n\t\\$a0<]{0,6}",
    ) {
        let chars: Vec<char> = EXAMPLE.chars().collect();
        let at = at.min(chars.len());
        let end = (at + gone).min(chars.len());
        let text: String = chars[..at].iter().copied().chain(put.chars()).chain(chars[end..].iter().copied()).collect();
        let lines = text.matches('\n').count() + 1;

        if let Err(problems) = load_with(&text, &[]) {
            let placed = problems.iter().all(|problem| problem.line.is_none_or(|line| (1..=lines).contains(&line)));
            proptest::prop_assert!(placed, "{problems}");
        }
    }
}
