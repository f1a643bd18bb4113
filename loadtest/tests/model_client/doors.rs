//! Addresses, keys and redirects: which door is knocked at, and what is shown there.

use std::collections::BTreeMap;

use loadtest::stub_llm::{Fault, Stub, StubOptions};
use shared::config;
use shared::llm::{Models, Ping};

use crate::{API_KEY, PATIENCE, ask, failed, models, question};

async fn stub_with_key() -> Stub {
    let options = StubOptions { api_key: Some(API_KEY.to_owned()), ..StubOptions::default() };
    Stub::start(options).await.expect("a stub")
}

#[tokio::test]
async fn case_16_every_base_url_leads_to_one_chat_endpoint() {
    let stub = Stub::start(StubOptions::default()).await.expect("a stub");
    let place = stub.url.trim_start_matches("http://").to_owned();
    for (base, path) in [
        (stub.url.clone(), "/v1/chat/completions"),
        (format!("{}/", stub.url), "/v1/chat/completions"),
        (format!("{}/v1", stub.url), "/v1/chat/completions"),
        (format!("{}/v1/", stub.url), "/v1/chat/completions"),
        (format!("{}//v1//", stub.url), "/v1/chat/completions"),
        (format!("{}/v1/chat/completions", stub.url), "/v1/chat/completions"),
        (format!("{}/openai/v1", stub.url), "/openai/v1/chat/completions"),
        (
            format!("{}/openai/deployments/d?api-version=2024-10-21", stub.url),
            "/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        (format!("{}/v1#fragment", stub.url), "/v1/chat/completions"),
        (format!("http://user:password@{place}/v1"), "/v1/chat/completions"),
    ] {
        let before = stub.calls().len();
        ask(&models(&base, "k"), &question()).await.unwrap_or_else(|e| panic!("{base}: {e}"));
        let calls = stub.calls();
        assert_eq!((calls.len(), calls[before].path.as_str()), (before + 1, path), "{base}");
    }
}

#[tokio::test]
async fn case_16_an_ipv6_address_is_an_address() {
    let listen = "[::1]:0".parse().expect("an address");
    let Ok(stub) = Stub::start(StubOptions { listen, ..StubOptions::default() }).await else {
        // This machine has no IPv6.
        return;
    };
    ask(&models(&stub.url, "k"), &question()).await.expect("an answer");
    assert_eq!(stub.calls().len(), 1);
}

#[tokio::test]
async fn case_18_a_key_is_cleaned_or_named_and_never_shown() {
    let stub = stub_with_key().await;
    for key in [
        API_KEY.to_owned(),
        format!("{API_KEY}\n"),
        format!(" {API_KEY}\r\n"),
        format!("\"{API_KEY}\""),
        format!("\u{feff}{API_KEY}"),
    ] {
        ask(&models(&stub.url, &key), &question()).await.unwrap_or_else(|e| panic!("{key:?}: {e}"));
    }
    let asked = stub.calls().len();
    for (key, words) in
        [(format!("Bearer {API_KEY}"), "the word Bearer"), (format!("{API_KEY}ü"), "in no key")]
    {
        let (kind, said) = failed(ask(&models(&stub.url, &key), &question()).await);
        assert_eq!(kind, "configuration", "{said}");
        assert!(said.contains(words) && said.contains("MODEL_API_KEY"), "{said}");
        assert!(!said.contains("canary"), "{said}");
    }
    let broken = [("MODEL_API_KEY", format!("{API_KEY}\n{API_KEY}"))];
    let lookup =
        |name: &str| broken.iter().find(|(key, _)| *key == name).map(|(_, key)| key.clone());
    let said = config::load_str("", "b.yaml", &lookup).expect_err("a line break").to_string();
    assert!(
        said.contains("MODEL_API_KEY: holds a line break") && !said.contains("canary"),
        "{said}"
    );
    assert_eq!(stub.calls().len(), asked, "a key that cannot be one is sent nowhere");
    for key in ["", " \n", "\"\""] {
        let (kind, said) = failed(ask(&models(&stub.url, key), &question()).await);
        assert_eq!(kind, "invalid_api_key", "{said}");
    }
    let debug = format!("{:?}", models(&stub.url, API_KEY));
    assert!(!debug.contains("canary"), "{debug}");
}

#[tokio::test]
async fn a_key_that_the_provider_repeats_is_taken_out() {
    let stub = Stub::start(StubOptions::default()).await.expect("a stub");
    let echo = serde_json::json!({"error": {"message": format!("Incorrect API key provided: {API_KEY}"), "code": "invalid_api_key"}});
    stub.script("*", vec![Fault::status(401).body(echo)]);
    let (_, said) = failed(ask(&models(&stub.url, API_KEY), &question()).await);
    assert!(said.contains("Incorrect API key provided: …"), "{said}");
}

#[tokio::test]
async fn case_30_a_redirect_to_another_host_gets_neither_key_nor_question() {
    let (door, away) = (stub_with_key().await, stub_with_key().await);
    let location = format!("{}/v1/chat/completions?token=hunter2", away.url);
    let headers = BTreeMap::from([("location".to_owned(), location)]);
    for status in [301, 302, 307, 308] {
        door.script("*", vec![Fault { headers: headers.clone(), ..Fault::status(status) }]);
        let (kind, said) = failed(ask(&models(&door.url, API_KEY), &question()).await);
        assert_eq!(kind, "configuration", "{said}");
        let place = away.url.trim_start_matches("http://");
        assert!(said.contains(place) && said.contains("model.base_url"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    assert!(away.calls().is_empty());
}

/// One question is one request: whoever answers the second one may send a bill for it.
#[tokio::test]
async fn case_30_a_redirect_at_home_is_told_and_not_followed() {
    let door = stub_with_key().await;
    let models = models(&door.url, API_KEY);
    let key = format!("/v2/chat/completions?key={API_KEY}");
    for (location, words) in [
        (key.as_str(), "/v2/chat/completions, and a model is asked once: configure that address"),
        ("/v1/chat/completions", "the very address that was asked, in a circle"),
        ("/sk-canary-0123456789/chat", "/…/chat"),
    ] {
        for status in [301, 302, 303, 307, 308] {
            let headers = BTreeMap::from([("location".to_owned(), location.to_owned())]);
            door.script("*", vec![Fault { headers, ..Fault::status(status) }]);
            let before = door.calls().len();
            let (kind, said) = failed(ask(&models, &question()).await);
            assert_eq!(
                (kind.as_str(), door.calls().len() - before),
                ("configuration", 1),
                "{said}"
            );
            assert!(said.contains(words) && said.contains("model.base_url"), "{said}");
            assert!(!said.contains("canary"), "{said}");
        }
    }
}

/// Each model has its endpoint, with its own key.
#[tokio::test]
async fn a_named_endpoint_answers_for_its_models_with_its_key() {
    let (usual, other) =
        (Stub::start(StubOptions::default()).await.expect("a stub"), stub_with_key().await);
    let yaml = format!(
        "model:\n  base_url: '{}'\n  default_model: m\n  endpoints:\n    other: {{base_url: '{}/x', api_key: {API_KEY}, models: [big, bigger]}}\n    wrong: {{base_url: '{}', api_key: 'not it', models: [lost]}}\n",
        usual.url, other.url, other.url
    );
    let config = config::load_str(&yaml, "b.yaml", &|_| None).expect("a configuration");
    let models = Models::from_config(&config);

    for model in [None, Some("big"), Some("bigger")] {
        let pong = Ping::to(model.map(str::to_owned), PATIENCE).send(&models).await.expect("sent");
        pong.answer.expect("answered");
    }
    let lost = Ping::to(Some("lost".to_owned()), PATIENCE).send(&models).await.expect_err("no key");

    assert_eq!((usual.calls().len(), other.calls().len()), (1, 2));
    assert_eq!(other.calls()[0].path, "/x/chat/completions");
    assert!(lost.to_string().contains("model.endpoints.wrong.api_key"), "{lost}");
}
