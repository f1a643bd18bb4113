//! The stub as its users meet it: a process, a port, and an answer for each kind of trouble.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use loadtest::stub_llm::{Fault, Stub, StubOptions};
use reqwest::StatusCode;
use serde_json::{Value, json};

#[expect(clippy::disallowed_methods, reason = "the outsider needs no guard against its own stub")]
fn client() -> reqwest::Client {
    shared::http::install_crypto();
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

async fn stub() -> Stub {
    Stub::start(StubOptions::default()).await.expect("a free port")
}

fn question(model: &str, text: &str) -> Value {
    json!({"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": text}]})
}

async fn ask(stub: &Stub, path: &str, model: &str, text: &str) -> reqwest::Response {
    let request = client().post(format!("{}{path}", stub.url)).json(&question(model, text));
    request.send().await.expect("an answer")
}

async fn status_of(stub: &Stub, path: &str) -> StatusCode {
    client().get(format!("{}{path}", stub.url)).send().await.expect("an answer").status()
}

#[tokio::test]
async fn a_question_is_answered_and_counted_the_same_each_time() {
    let stub = stub().await;

    let mut answers = Vec::new();
    for path in [
        "/v1/chat/completions",
        "/chat/completions",
        "/openai/deployments/d/chat/completions?api-version=1",
    ] {
        answers.push(
            ask(&stub, path, "m", "how many orders").await.json::<Value>().await.expect("JSON"),
        );
    }

    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    let text = answers[0]["choices"][0]["message"]["content"].as_str().expect("a text");
    assert!(text.contains("how many orders"), "{text}");
    let usage = stub.usage();
    assert_eq!((usage.total.calls, usage.total.answered, usage.distinct_questions), (3, 3, 1));
    let tokens = answers[0]["usage"]["prompt_tokens"].as_u64().expect("a count");
    assert_eq!(usage.total.input_tokens, 3 * tokens);
    assert!(stub.calls()[2].path.contains("api-version=1"));
}

#[tokio::test]
async fn a_script_is_followed_step_by_step() {
    let stub = stub().await;
    let script =
        json!([{"status": 429, "retry_after": 3}, {"body": "<html>", "content_type": "text/html"}]);
    let request = client().post(format!("{}/script", stub.url)).body(script.to_string());
    assert!(request.send().await.expect("an answer").status().is_success());

    let limited = ask(&stub, "/v1/chat/completions", "m", "q").await;
    let html = ask(&stub, "/v1/chat/completions", "m", "q").await;
    let proper = ask(&stub, "/v1/chat/completions", "m", "q").await;

    assert_eq!(limited.status(), 429);
    assert_eq!(limited.headers()["retry-after"], "3");
    assert_eq!(
        (html.status().as_u16(), &html.headers()["content-type"]),
        (200, &"text/html".parse().expect("a value"))
    );
    assert_eq!(proper.status(), 200);
    let seen: Vec<_> = stub.calls().iter().map(|call| call.status).collect();
    assert_eq!(seen, [Some(429), Some(200), Some(200)]);
    assert_eq!(stub.usage().total.answered, 1);
}

#[tokio::test]
async fn a_cut_answer_breaks_the_connection_and_a_hanging_one_is_in_the_log() {
    let stub = stub().await;
    stub.script("cut", vec![Fault { cut_after: Some(10), ..Fault::default() }]);
    stub.script("hang", vec![Fault { hang_ms: 600_000, ..Fault::default() }]);

    let cut = ask(&stub, "/v1/chat/completions", "cut", "q").await;
    assert_eq!(cut.status(), 200);
    assert!(cut.bytes().await.is_err());

    let url = format!("{}/v1/chat/completions", stub.url);
    let request =
        client().post(url).json(&question("hang", "q")).timeout(Duration::from_millis(200));
    assert!(request.send().await.expect_err("no answer").is_timeout());
    let last = stub.calls().pop().expect("a call");
    assert_eq!((last.model.as_str(), last.status), ("hang", None));
}

#[tokio::test]
async fn the_demo_endpoints_do_what_their_names_say() {
    let stub = stub().await;

    let flaky = "/flaky?key=a&fail=2";
    let mut seen = Vec::new();
    for path in
        ["/healthz", "/always/500", "/status/404", flaky, flaky, flaky, "/slow?ms=1", "/nothing"]
    {
        seen.push(status_of(&stub, path).await.as_u16());
    }
    assert_eq!(seen, [200, 500, 404, 503, 503, 200, 200, 404]);

    let alert = client().post(format!("{}/alerts", stub.url)).json(&json!({"text": "dead"}));
    alert.send().await.expect("an answer");
    for _ in 0..2 {
        let effect = client().post(format!("{}/effects", stub.url)).header("idempotency-key", "k");
        effect.send().await.expect("an answer");
    }
    let get = |path: &'static str| client().get(format!("{}{path}", stub.url)).send();
    let alerts: Value = get("/alerts").await.expect("an answer").json().await.expect("JSON");
    let effects: Value = get("/effects").await.expect("an answer").json().await.expect("JSON");
    assert_eq!(alerts[0]["body"]["text"], "dead");
    assert_eq!((&effects["effects"], &effects["requests"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn a_wrong_key_is_refused_when_one_is_wanted() {
    let options = StubOptions { api_key: Some("right".to_owned()), ..StubOptions::default() };
    let stub = Stub::start(options).await.expect("a free port");

    let url = format!("{}/v1/chat/completions", stub.url);
    let with =
        |key: &'static str| client().post(&url).bearer_auth(key).json(&question("m", "q")).send();

    assert_eq!(with("wrong").await.expect("an answer").status(), 401);
    assert_eq!(with("right").await.expect("an answer").status(), 200);
}

/// A child that is killed if the test fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_program_says_where_it_listens_and_ends_on_sigterm() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
    command
        .args(["stub-llm", "--listen", "127.0.0.1:0", "--latency", "10ms"])
        .stdout(Stdio::piped());
    let mut process = Process(command.spawn().expect("the program"));
    let mut line = String::new();
    let stdout = process.0.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let url = line.trim().strip_prefix("listening on ").expect("where").to_owned();

    let started = Instant::now();
    let request = client().post(format!("{url}/v1/chat/completions")).json(&question("m", "q"));
    assert_eq!(request.send().await.expect("an answer").status(), 200);
    assert!(started.elapsed() >= Duration::from_millis(10));

    let kill = Command::new("kill").arg(process.0.id().to_string()).status().expect("kill");
    assert!(kill.success());
    assert!(process.0.wait().expect("its end").success());
}
