//! Payloads of the built-in task types: their shape, their schema, and what is wrong with one.
//!
//! Pure, so that a producer refuses at publish, and `config check` at load, what a worker would
//! refuse at three in the morning. Texts that still hold a template (`{{ … }}`) or a variable
//! (`${…}`) are not judged: they are rendered first.

mod agent_session;
mod db_query;
mod http_call;
mod model_invoke;
mod probe;
mod report_generation;

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub use agent_session::{
    AgentSession, DEFAULT_STEPS, MAX_STEPS, NEVER_TOOLS, SessionLimits, SessionTool,
};
pub use db_query::DbQuery;
pub use http_call::{Expected, HttpCall};
pub use model_invoke::{ModelInvoke, PromptMessage};
pub use probe::{Mode, Probe};
pub use report_generation::ReportGeneration;

/// A payload of one task type.
pub trait Payload: DeserializeOwned {
    /// The task type.
    const TYPE: &'static str;

    /// JSON Schema, with descriptions and examples.
    fn schema() -> Value;

    /// What no type can say: limits, combinations, forbidden names.
    fn judge(&self) -> Result<(), String>;

    /// Reads and judges a payload; the error says what is wrong and, where it helps, shows one that
    /// is right.
    fn read(payload: &Value) -> Result<Self, String> {
        let wrong = |what: String| format!("payload of {}: {what}", Self::TYPE);
        if !payload.is_object() {
            let example = &Self::schema()["examples"][0];
            return Err(wrong(format!("it is not a JSON object; for example {example}")));
        }
        let read = Self::deserialize(payload).map_err(|error| {
            let example = &Self::schema()["examples"][0];
            wrong(format!("{error}; for example {example}"))
        })?;
        read.judge().map_err(wrong)?;
        Ok(read)
    }
}

/// Checks a payload by its task type. Types of other houses are not judged.
pub fn check(task_type: &str, payload: &Value) -> Result<(), String> {
    match task_type {
        AgentSession::TYPE => AgentSession::read(payload).map(drop),
        DbQuery::TYPE => DbQuery::read(payload).map(drop),
        HttpCall::TYPE => HttpCall::read(payload).map(drop),
        ModelInvoke::TYPE => ModelInvoke::read(payload).map(drop),
        Probe::TYPE => Probe::read(payload).map(drop),
        ReportGeneration::TYPE => ReportGeneration::read(payload).map(drop),
        _ => Ok(()),
    }
}

/// The schema of a built-in task type.
pub fn schema(task_type: &str) -> Option<Value> {
    match task_type {
        AgentSession::TYPE => Some(AgentSession::schema()),
        DbQuery::TYPE => Some(DbQuery::schema()),
        HttpCall::TYPE => Some(HttpCall::schema()),
        ModelInvoke::TYPE => Some(ModelInvoke::schema()),
        Probe::TYPE => Some(Probe::schema()),
        ReportGeneration::TYPE => Some(ReportGeneration::schema()),
        _ => None,
    }
}

/// Task types that a payload makes tools of a session and that are not among the allowed ones: an
/// error that names the setting. Other types, and payloads that are wrong in themselves, pass.
pub fn check_tools(task_type: &str, payload: &Value, allowed: &[String]) -> Result<(), String> {
    if task_type != AgentSession::TYPE {
        return Ok(());
    }
    let Ok(asked) = AgentSession::read(payload) else { return Ok(()) };
    let Some(tool) = asked.tools.iter().find(|tool| !allowed.contains(&tool.task_type)) else {
        return Ok(());
    };
    let known = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
    Err(format!(
        "payload of agent_session: the task type {} may not be a tool of a session here; allowed: \
         {known} (handlers.agent_session.tools in belfry.yaml, of the producer and of the workers)",
        tool.task_type
    ))
}

/// True for a text that is not what it will be.
fn is_unrendered(text: &str) -> bool {
    text.contains("{{") || text.contains("${")
}

/// A duration as people write it: a number of seconds, or `500ms`, `30s`, `10m`.
fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = match Value::deserialize(from)? {
        Value::Null => return Ok(None),
        Value::String(text) => text,
        other => other.to_string(),
    };
    let parsed = crate::config::parse_duration(&text);
    parsed.map(Some).map_err(|what| serde::de::Error::custom(format!("{text:?}: {what}")))
}

/// Tells a field that is null from one that is absent.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TYPES: [&str; 6] = [
        AgentSession::TYPE,
        DbQuery::TYPE,
        HttpCall::TYPE,
        ModelInvoke::TYPE,
        Probe::TYPE,
        ReportGeneration::TYPE,
    ];

    #[test]
    fn every_example_is_right_and_every_field_explains_itself() {
        for task_type in TYPES {
            let schema = schema(task_type).expect("a schema");
            let examples = schema["examples"].as_array().expect("examples");
            assert!(!examples.is_empty() && schema["description"].is_string(), "{task_type}");
            for example in examples {
                assert_eq!(check(task_type, example), Ok(()), "{task_type}");
            }
            for (name, field) in schema["properties"].as_object().expect("properties") {
                assert!(field["description"].is_string(), "{task_type}.{name}");
            }
            assert_eq!(schema["additionalProperties"], false, "{task_type}");
        }
    }

    #[test]
    fn an_unknown_field_names_the_known_ones_and_shows_an_example() {
        let error = check("http_call", &json!({"ulr": "https://a.example"})).expect_err("wrong");
        for part in ["payload of http_call", "`ulr`", "`url`", "for example {"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn types_of_other_houses_are_not_judged() {
        assert_eq!(check("send_fax", &json!(17)), Ok(()));
        assert_eq!(schema("send_fax"), None);
    }
}
