//! `producer doctor --model`, the program: one question to the stub or to nobody, and the setting
//! that it names.

#[path = "fleet/programs.rs"]
mod programs;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;

use loadtest::fleet::Role;
use loadtest::stub_llm::{Fault, Stub, StubOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

/// The key that must never be seen.
const API_KEY: &str = "sk-canary-0123456789";

/// What the program said.
struct Said {
    code: i32,
    /// Of `--json`: the one check.
    check: Value,
    everything: String,
}

/// Runs it with these variables and no others, in a directory without a file.
async fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> Said {
    programs::are_fresh();
    let nowhere = TempDir::new().expect("a directory");
    let output = Command::new(Role::Producer.path().expect("built"))
        .args(["doctor", "--json", "--model"])
        .args(arguments)
        .current_dir(nowhere.path())
        .env_clear()
        .env("RUST_LOG", "trace")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .await
        .expect("run");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let everything = format!("{stdout}{stderr}");
    assert!(!everything.contains("canary"), "{everything}");
    // Nothing where the configuration itself cannot be used.
    let answer: Value = serde_json::from_str(&stdout).unwrap_or_default();
    Said {
        code: output.status.code().expect("a code"),
        check: answer["checks"][0].clone(),
        everything,
    }
}

/// Against the stub, which wants the key.
async fn at(stub: &Stub, arguments: &[&str], more: &[(&str, &str)]) -> Said {
    let mut variables = BTreeMap::from([
        ("MODEL_BASE_URL", stub.url.as_str()),
        ("MODEL_API_KEY", API_KEY),
        ("MODEL_NAME", "m"),
        ("NO_PROXY", "127.0.0.1"),
    ]);
    variables.extend(more.iter().copied());
    let variables: Vec<_> = variables.into_iter().collect();
    doctor(arguments, &variables).await
}

async fn stub() -> Stub {
    let options = StubOptions { api_key: Some(API_KEY.to_owned()), ..StubOptions::default() };
    Stub::start(options).await.expect("a stub")
}

#[track_caller]
fn check(said: &Said, code: i32, cause: &str, words: &[&str]) {
    assert_eq!((said.code, &said.check["cause"]), (code, &json!(cause)), "{}", said.everything);
    let text = format!("{}; {}", said.check["detail"], said.check["mend"]);
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

#[tokio::test]
async fn one_question_tells_that_a_model_is_well() {
    let stub = stub().await;

    let usual = at(&stub, &[], &[]).await;
    let other = at(&stub, &["another"], &[]).await;

    assert_eq!((usual.code, other.code), (0, 0), "{}{}", usual.everything, other.everything);
    let asked: Vec<_> = stub.calls().into_iter().map(|call| call.model).collect();
    assert_eq!(asked, ["m", "another"]);
    let detail = usual.check["detail"].as_str().expect("a detail");
    assert!(detail.contains("m at 127.0.0.1:") && detail.contains("tokens in"), "{detail}");
    assert!(detail.contains("with the key …6789"), "{detail}");
    assert_eq!(usual.check.get("cause"), None);
}

#[tokio::test]
async fn each_wrong_setting_is_named_with_what_to_do() {
    let stub = stub().await;
    let wrong = at(&stub, &[], &[("MODEL_API_KEY", "sk-wrong-0123456789")]).await;
    check(&wrong, 1, "key", &["rejected the API key", "MODEL_API_KEY", "…6789"]);
    let none = at(&stub, &[], &[("MODEL_API_KEY", "")]).await;
    check(&none, 1, "key", &["without a key", "no key is configured"]);
    let broken = at(&stub, &[], &[("MODEL_API_KEY", "sk-one\nsk-canary-two")]).await;
    assert_eq!(broken.code, 2, "{}", broken.everything);
    assert!(
        broken.everything.contains("MODEL_API_KEY: holds a line break"),
        "{}",
        broken.everything
    );

    let place = format!("{}/v1/v1", stub.url);
    let doubled = at(&stub, &[], &[("MODEL_BASE_URL", &place)]).await;
    check(&doubled, 1, "base_url", &["/v1/v1/chat/completions", "is /v1 missing or doubled"]);
    let page = at(&stub, &["stub-html"], &[]).await;
    check(&page, 1, "base_url", &["an HTML page", "login page"]);
    let nowhere = at(&stub, &[], &[("MODEL_BASE_URL", "")]).await;
    check(&nowhere, 2, "base_url", &["MODEL_BASE_URL"]);

    let absent = at(&stub, &["stub-404"], &[]).await;
    check(&absent, 1, "model", &["has no model", "stub-404", "name a model"]);
    let nameless = at(&stub, &[], &[("MODEL_NAME", "")]).await;
    check(&nameless, 2, "model", &["MODEL_NAME"]);

    let expired = json!({"type": "error", "error": {"type": "authentication_error", "message": "OAuth token has expired"}});
    stub.script("old", vec![Fault::status(401).body(expired)]);
    check(&at(&stub, &["old"], &[]).await, 1, "token", &["has expired", "log in again"]);
    for (status, body) in [
        (401, json!({"detail": "JWT expired"})),
        (401, json!({"error": {"message": "Token is expired", "code": "invalid_token"}})),
        (403, json!({"__type": "ExpiredTokenException", "message": "no"})),
    ] {
        stub.script("over", vec![Fault::status(status).body(body)]);
        check(&at(&stub, &["over"], &[]).await, 1, "token", &["has expired", "log in again"]);
    }

    check(
        &at(&stub, &["stub-nochoices"], &[]).await,
        1,
        "answer",
        &["no choices", "OpenAI-compatible"],
    );
    check(&at(&stub, &["stub-quota"], &[]).await, 1, "account", &["waiting will not help"]);
    check(&at(&stub, &["stub-429"], &[]).await, 1, "rate", &["are right"]);
    check(&at(&stub, &["stub-503"], &[]).await, 1, "endpoint", &["503"]);
    check(&at(&stub, &["stub-400"], &[]).await, 1, "request", &["refused the request"]);
}

/// Nobody listens at the port.
fn dead_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("bound").port()
}

#[tokio::test]
async fn case_19_a_dead_proxy_is_named_and_no_proxy_leads_around_it() {
    let stub = stub().await;
    let proxy = format!("http://user:canary@127.0.0.1:{}", dead_port());
    let named = proxy.rsplit('@').next().expect("an address");

    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        // Loopback is no exception by itself.
        let said = at(&stub, &[], &[(variable, &proxy), ("NO_PROXY", "")]).await;
        check(&said, 4, "proxy", &[&format!("through the proxy {named}"), "NO_PROXY"]);
    }
    let tls = ("MODEL_BASE_URL", "https://model.invalid/v1");
    let said = at(&stub, &[], &[tls, ("HTTPS_PROXY", &proxy)]).await;
    check(&said, 4, "proxy", &["model.invalid:443", named]);
    assert!(stub.calls().is_empty());

    let around = at(&stub, &[], &[("HTTP_PROXY", &proxy)]).await;
    assert_eq!((around.code, stub.calls().len()), (0, 1), "{}", around.everything);
}

#[tokio::test]
async fn nobody_at_the_address_is_told_apart_from_a_silent_one() {
    let stub = stub().await;
    let nobody = format!("http://127.0.0.1:{}", dead_port());
    let said = at(&stub, &[], &[("MODEL_BASE_URL", &nobody)]).await;
    check(&said, 4, "base_url", &["cannot connect", "the model was not asked"]);
}
