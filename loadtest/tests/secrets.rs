//! Canaries in the key, in headers, in payloads and in addresses: after work that succeeds and work
//! that fails, at the most talkative level, none of them sings in a log, a span, a metric, an alert,
//! an error, a command's output, or a row where it has no business.

#[path = "fleet/programs.rs"]
mod programs;

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;

use loadtest::database;
use loadtest::fleet::{Door, Ground, Member, Role};
use loadtest::stub_llm::{Fault, Stub, StubOptions};
use serde_json::{Value, json};
use shared::config;
use shared::domain::retry::RetryPolicy;
use shared::domain::task::NewTask;
use shared::telemetry::receiver::Receiver;
use shared::testing::{needed, within};
use tokio::process::Command;
use tokio_postgres::Client;

const PATIENCE: Duration = Duration::from_secs(60);

/// The model's key; the endpoint repeats it in its errors and in its answers.
const KEY: &str = "canary-key-7f3a91d0c4";
/// A second endpoint's: user, password and query of its address.
const USER: &str = "canary-user-1b7";
const PASSWORD: &str = "canary-password-52e8";
const QUERY: &str = "canary-query-90ab77";
/// A secret that payloads name, for a header; the other side repeats it.
const TOKEN: &str = "canary-token-c0ffee11";
/// Another secret begins as the model's key does: the end of it must not be left over.
const TAIL: &str = "-canary-tail-5ca1ab1e";
/// Of the webhook's address.
const HOOK: &str = "canary-hook-3d3d3d";
/// In the address that a payload calls: it is in the payload's row, and in the result of an echo.
const CALLED: &str = "canary-called-66aa";
/// In a prompt: it is in the payload's row and in the model's stored answer, which repeats it.
const PROMPT: &str = "canary-prompt-b00b1e5";

const ALL: [&str; 9] = [KEY, USER, PASSWORD, QUERY, TOKEN, TAIL, HOOK, CALLED, PROMPT];

/// Commands that show a payload and a result: they are somebody's own.
const PAGES: [&str; 2] = ["producer dead show", "producer tasks show"];

/// Tables in which a canary of a payload may be, and which: inputs, and what was made of them.
const AT_HOME: [(&str, &[&str]); 3] = [
    ("task_inputs", &[CALLED, PROMPT]),
    ("llm_calls", &[PROMPT]),
    ("task_results", &[CALLED, PROMPT]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_canary_sings() {
    programs::are_fresh();
    shared::http::install_crypto();
    let receiver = Receiver::start().await.expect("a receiver");
    let options = StubOptions { api_key: Some(KEY.to_owned()), ..StubOptions::default() };
    let stub = Stub::start(options).await.expect("a stub");
    let private = Stub::start(StubOptions::default()).await.expect("another");
    let mut ground = prepare(&stub, &private).await;
    for (name, value) in [
        ("MODEL_API_KEY", KEY.to_owned()),
        ("TOKEN", TOKEN.to_owned()),
        ("LONGER", format!("{KEY}{TAIL}")),
        ("HOOK", format!("{}/alerts?token={HOOK}", stub.url)),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", receiver.http)),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf".to_owned()),
        ("OTEL_METRIC_EXPORT_INTERVAL", "500".to_owned()),
        ("RUST_LOG", "trace".to_owned()),
    ] {
        ground.tell(name, value);
    }
    let mut fleet = Vec::new();
    for role in [Role::Producer, Role::Worker] {
        let mut member = Member::start(&ground, role).expect("started");
        member.ready(PATIENCE).await.expect("ready");
        fleet.push(member);
    }
    let dsn = ground.config().database_url().expect("an address");
    let client = database::connect(dsn).await.expect("the database");
    let door = Door::open(&ground).await.expect("a door");

    let tasks = work(&stub, &private);
    door.accept(&tasks).await.expect("published");
    within(PATIENCE, "everything ends and is told", async || {
        let sql = "SELECT (SELECT count(*) FROM tasks WHERE finished_at IS NULL) = 0
            AND (SELECT count(*) FROM alerts WHERE sent_at IS NULL) = 0";
        client.query_one(sql, &[]).await.expect("counts").get::<_, bool>(0).then_some(())
    })
    .await;

    let mut seen =
        vec![("alerts at the webhook".to_owned(), get(&format!("{}/alerts", stub.url)).await)];
    for member in &fleet {
        let page = format!("http://{}/metrics", member.address());
        seen.push((format!("/metrics of the {}", member.role.program()), get(&page).await));
    }
    seen.extend(commands(&ground, &client).await);
    let states = count_states(&client).await;
    door.close().await;
    for member in fleet {
        let (name, log) = (member.role.program(), member.log());
        member.stop(PATIENCE).await.expect("stopped");
        assert!(log.contains("TRACE"), "it is not at the most talkative level");
        seen.push((format!("log of the {name}"), log));
    }
    let received = receiver.received();
    seen.push(("spans".to_owned(), format!("{:?}", received.spans)));
    seen.push(("metrics".to_owned(), format!("{:?}", received.metrics)));
    seen.push(("log lines over OTLP".to_owned(), format!("{:?}", received.logs)));
    let rows = rows(&client).await;
    drop(client);
    ground.clear().await.expect("nothing left behind");

    // What was told is worth looking at.
    assert_eq!(states, ["completed 6", "dead 4"], "the story has gone another way");
    assert!(received.spans.iter().any(|span| span.name.starts_with("chat ")));
    assert!(!received.metrics.is_empty() && !received.logs.is_empty());
    let mut sung = String::new();
    for (place, text) in &seen {
        assert!(!text.is_empty(), "nothing was seen of {place}");
        let own = PAGES.iter().any(|page| place.starts_with(page));
        let at_home: &[&str] = if own { &[CALLED, PROMPT] } else { &[] };
        let strays = ALL.iter().filter(|canary| !at_home.contains(canary));
        for canary in strays.filter(|canary| text.contains(*canary)) {
            let at = text.find(canary).unwrap_or_default();
            let around: String = text[..at].chars().rev().take(200).collect();
            let around: String = around.chars().rev().collect();
            let _ = writeln!(sung, "{canary} in {place}: …{around}");
        }
    }
    for (table, text) in &rows {
        let home = AT_HOME.iter().find(|(name, _)| *name == table.as_str());
        let at_home = home.map_or(&[][..], |(_, canaries)| *canaries);
        for canary in ALL.iter().filter(|canary| !at_home.contains(canary)) {
            if let Some(row) = text.lines().find(|row| row.contains(canary)) {
                let _ = writeln!(sung, "{canary} in the table {table}: {row}");
            }
        }
    }
    assert!(sung.is_empty(), "{sung}");
    let kept = |table: &str, canary: &str| {
        rows.iter().any(|(name, text)| name == table && text.contains(canary))
    };
    assert!(kept("task_inputs", PROMPT) && kept("llm_calls", PROMPT), "the search finds nothing");
}

async fn prepare(stub: &Stub, private: &Stub) -> Ground {
    let place = private.url.trim_start_matches("http://");
    let yaml = format!(
        "scheduler: {{heartbeat_interval: 1, heartbeat_ttl: 3}}\n\
         model:\n  base_url: '{}'\n  api_key: '${{MODEL_API_KEY}}'\n  default_model: m\n  endpoints:\n    \
         private: {{base_url: 'http://{USER}:{PASSWORD}@{place}/v1?signature={QUERY}', models: [private]}}\n\
         secrets: {{token: '${{TOKEN}}', longer: '${{LONGER}}'}}\nalerts: {{webhook: '${{HOOK}}'}}\n\
         http: {{allow_hosts: [127.0.0.1]}}\n\
         task_pools:\n  io_pool: {{max_workers: 4, task_types: [model_invoke, http_call]}}\n",
        stub.url
    );
    let lookup = |name: &str| match name {
        "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
        _ => None,
    };
    let base = config::load_str("", "environment", &lookup).expect("addresses");
    Ground::prepare(&base, "canaries", &yaml).await.expect("ground")
}

/// Six tasks that complete and four that die, each with canaries on its way.
fn work(stub: &Stub, private: &Stub) -> Vec<NewTask> {
    // Both repeat what they were shown.
    let refusal = |what: String| json!({"error": {"message": what, "code": "invalid_api_key"}});
    let shown =
        refusal(format!("Incorrect API key provided: {KEY}, and who is {TOKEN}, {KEY}{TAIL}?"));
    stub.script("echo", vec![Fault::status(401).body(shown)]);
    let shown = refusal(format!("who is that with {PASSWORD} and {QUERY}?"));
    private.script("private", vec![Fault::status(401).body(shown)]);
    // So does one that answers, whole and in pieces, wherever it says anything.
    let parrot = Fault {
        content: Some(format!("you sent Authorization: Bearer {KEY}, {TOKEN}, {KEY}{TAIL}").into()),
        reasoning: Some(format!("they sent {KEY}{TAIL}, or a part of {PASSWORD}")),
        model: Some(format!("parrot-{KEY}")),
        usage: Some(KEY.into()),
        times: Some(2),
        ..Fault::default()
    };
    stub.script("parrot", vec![parrot]);
    let ask = |model: &str, more: Value| {
        let mut payload = json!({"prompt": format!("say {PROMPT}"), "model": model});
        payload
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        ("model_invoke", payload)
    };
    let call = |path: &str| {
        let url = format!("{}/{path}?key={CALLED}", stub.url);
        let headers = json!({"Authorization": "Bearer secret:token"});
        let body = json!({"a": "secret:token"});
        ("http_call", json!({"url": url, "method": "POST", "headers": headers, "body": body}))
    };
    let retry = RetryPolicy { max_retry: 0, ..RetryPolicy::default() };
    [
        ask("m", json!({})),
        ask("m", json!({"stream": true, "temperature": 0.5})),
        ask("stub-404", json!({"fallback": ["m"]})),
        ask("parrot", json!({})),
        ask("parrot", json!({"stream": true})),
        call("echo"),
        ask("echo", json!({})),
        ask("private", json!({})),
        ask("m", json!({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "array"}}}})),
        call("status/500"),
    ]
    .into_iter()
    .map(|(task_type, payload)| NewTask { retry, ..NewTask::ad_hoc(task_type, "io_pool", payload) })
    .collect()
}

/// How many tasks are in each state.
async fn count_states(client: &Client) -> Vec<String> {
    let sql = "SELECT state || ' ' || count(*) FROM tasks GROUP BY state ORDER BY state";
    client.query(sql, &[]).await.expect("states").iter().map(|row| row.get(0)).collect()
}

/// Every row of every table, as text.
async fn rows(client: &Client) -> Vec<(String, String)> {
    let sql = "SELECT table_name::text FROM information_schema.tables
        WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'";
    let tables = client.query(sql, &[]).await.expect("tables");
    assert!(tables.len() > 10, "these are not all tables");
    let mut all = Vec::new();
    for table in tables {
        let table: String = table.get(0);
        let sql = format!("SELECT to_jsonb(t)::text FROM \"{table}\" t");
        let rows = client.query(&sql, &[]).await.expect("rows");
        let text: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        all.push((table, text.join("\n")));
    }
    all
}

/// What an operator's commands say.
async fn commands(ground: &Ground, client: &Client) -> Vec<(String, String)> {
    let mut said = Vec::new();
    let dead = "SELECT id::text, task_id::text FROM dead_letters";
    let dead = client.query(dead, &[]).await.expect("letters");
    let mut asked: Vec<Vec<String>> = [
        "tasks list --json",
        "dead list --json",
        "alerts list --json",
        "status --json",
        "workers list --json",
        "config check",
        "doctor --json",
        "doctor --model --json",
        "doctor --model private --json",
        "quota list",
        "usage --json",
        "tasks list",
        "dead list",
    ]
    .iter()
    .map(|line| line.split(' ').map(str::to_owned).collect())
    .collect();
    for row in &dead {
        asked.push(vec!["dead".into(), "show".into(), row.get(0)]);
        asked.push(vec!["tasks".into(), "show".into(), row.get(1)]);
        asked.push(vec!["tasks".into(), "why".into(), row.get(1)]);
    }
    for arguments in asked {
        let line = arguments.join(" ");
        let output = Command::new(Role::Producer.path().expect("built"))
            .arg("--config")
            .arg(ground.file())
            .args(&arguments)
            .envs(ground.environment())
            .stdin(Stdio::null())
            .output()
            .await
            .expect("run");
        let text =
            [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        said.push((format!("producer {line}"), text.concat()));
    }
    said
}

async fn get(url: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "the outsider asks its own stub and pages")]
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    client.get(url).send().await.expect("an answer").text().await.expect("a text")
}
