//! `producer doctor --model`: one small question to a model, and which setting is at fault.
//!
//! It asks by the client that the workers use, so that what is well here is well there.

use std::time::Duration;

use shared::config::Config;
use shared::llm::{ChatAnswer, LlmError, Models, Part, Ping, Pong};

use super::Check;

/// What the check is called.
const NAME: &str = "model";
/// A person waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks a model; `None` is the configured default.
pub async fn ping(config: &Config, model: Option<String>) -> Check {
    let models = Models::from_config(config);
    match Ping::to(model, PATIENCE).send(&models).await {
        Ok(pong) => judge(&pong),
        Err(error) => fault(&error, None),
    }
}

fn judge(pong: &Pong) -> Check {
    match &pong.answer {
        Ok(answer) => Check::ok(NAME, said(pong, answer)),
        Err(error) => fault(error, Some(pong)),
    }
}

fn said(pong: &Pong, answer: &ChatAnswer) -> String {
    let Pong { model, target, took, .. } = pong;
    let usage = answer.usage;
    let mut said = format!(
        "{model} at {target} answered in {:.1} s ({} tokens in, {} out)",
        took.as_secs_f64(),
        usage.input_tokens,
        usage.output_tokens
    );
    let mut add = |more: String| said.push_str(&more);
    if answer.model != *model {
        add(format!(", as {}", answer.model));
    }
    if usage.estimated {
        add(", which names no usage".to_owned());
    }
    if pong.requests > 1 {
        add(", after it asked for max_completion_tokens".to_owned());
    }
    add(door(pong));
    said
}

/// How it was asked: key and proxy.
fn door(pong: &Pong) -> String {
    let key = match (&pong.key_ending, pong.with_key) {
        (Some(ending), _) => format!(", with the key {ending}"),
        (None, true) => ", with a key".to_owned(),
        (None, false) => ", without a key".to_owned(),
    };
    match &pong.proxy {
        Some(proxy) => format!("{key}, through the proxy {proxy}"),
        None => key,
    }
}

/// Which side is at fault, and what to do.
fn fault(error: &LlmError, pong: Option<&Pong>) -> Check {
    let (cause, mend) = match error {
        LlmError::Config { part: Part::Host, .. } => ("host", "install CA certificates"),
        LlmError::Config { part: Part::BaseUrl, .. } => ("base_url", "correct the address"),
        LlmError::Config { part: Part::Key, .. } => ("key", "set the key alone, on one line"),
        LlmError::Config { part: Part::Model, .. } => ("model", "name a model"),
        LlmError::Unreachable { proxy: Some(_), .. } => (
            "proxy",
            "correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, or name the host in NO_PROXY (loopback is no exception by itself)",
        ),
        LlmError::Unreachable { proxy: None, .. } => {
            ("base_url", "correct the address, or mend the network")
        }
        LlmError::NotFound { .. } | LlmError::NotAnApi { .. } => {
            ("base_url", "give the address that ends before /chat/completions, often …/v1")
        }
        LlmError::Unauthorized { .. } if pong.is_some_and(|pong| !pong.with_key) => {
            ("key", "no key is configured: set it")
        }
        LlmError::Unauthorized { .. } => ("key", "set a key that this provider knows"),
        LlmError::Expired { .. } => ("token", "log in again and set the new token"),
        LlmError::ModelNotFound { .. } => ("model", "name a model that this key may use there"),
        LlmError::OutOfQuota { .. } => ("account", "pay, or raise the account's limit"),
        LlmError::RateLimited { .. } => {
            ("rate", "address, key and model are right; try again later")
        }
        LlmError::Unknown { .. } => {
            ("timeout", "see whether the provider is up; the call may have been billed")
        }
        LlmError::Upstream { .. } => ("endpoint", "the provider is in trouble; try again later"),
        LlmError::Malformed { .. } | LlmError::TooLong { .. } | LlmError::Answer(_) => (
            "answer",
            "what answers there speaks no OpenAI-compatible chat: give the address of an endpoint that does",
        ),
        LlmError::Refused { .. }
        | LlmError::TooLarge { .. }
        | LlmError::LimitName { .. }
        | LlmError::Filtered { .. } => {
            ("request", "see what the provider says; is it a chat model?")
        }
    };
    let asked = pong.map(|pong| format!("{} at {}{}: ", pong.model, pong.url, door(pong)));
    let detail = format!("{}{error}", asked.unwrap_or_default());
    Check {
        cause: Some(cause),
        unreachable: matches!(error, LlmError::Unreachable { .. } | LlmError::Unknown { .. }),
        misconfigured: matches!(error, LlmError::Config { .. }),
        ..Check::failed(NAME, detail, mend)
    }
}
