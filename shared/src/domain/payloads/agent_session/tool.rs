//! A tool of a session: a task type, what of its payload is fixed, and what the model may say.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::domain::json_schema::Schema;
use crate::domain::payloads;
use crate::domain::tools::{MAX_TOOL_NAME, Tool};

/// Types that no configuration can make a tool: a session would nest, a report completes the task
/// that it runs in.
pub const NEVER_TOOLS: [&str; 2] = ["agent_session", "report_generation"];

/// A task type as a tool. JSON: its name, or an object with these fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionTool {
    /// What the model calls it; the task type unless the payload says otherwise.
    pub name: String,
    /// Which handler runs it.
    pub task_type: String,
    /// For the model; without it that of the task type.
    pub description: Option<String>,
    /// Fields of the payload that the model neither sees nor changes.
    pub payload: Map<String, Value>,
    /// JSON Schema of what the model may say; without it that of the task type without what is fixed.
    pub parameters: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    name: Option<String>,
    task_type: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    payload: Map<String, Value>,
    #[serde(default)]
    parameters: Option<Value>,
}

impl<'de> Deserialize<'de> for SessionTool {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = match Value::deserialize(from)? {
            Value::String(name) => {
                return Ok(Self { task_type: name.clone(), name, ..Self::default() });
            }
            object @ Value::Object(_) => object,
            _ => {
                return Err(serde::de::Error::custom(
                    "a tool is the name of a task type, or an object with task_type",
                ));
            }
        };
        let written: Written = serde_json::from_value(written)
            .map_err(|error| serde::de::Error::custom(format!("a tool: {error}")))?;
        Ok(Self {
            name: written.name.unwrap_or_else(|| written.task_type.clone()),
            task_type: written.task_type,
            description: written.description,
            payload: written.payload,
            parameters: written.parameters,
        })
    }
}

impl SessionTool {
    pub(super) fn schema() -> Value {
        json!({
            "type": "object", "required": ["task_type"], "additionalProperties": false,
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": MAX_TOOL_NAME, "description": "what the model calls it; the task type unless given"},
                "task_type": {"type": "string", "description": "whose handler runs it"},
                "description": {"type": "string", "description": "for the model: what it does and when to use it"},
                "payload": {"type": "object", "description": "fields that the model neither sees nor changes; only here secret:NAME stands for a secret"},
                "parameters": {"type": "object", "description": "JSON Schema of what the model may say, an object; without it all fields of the task type that are not fixed"},
            },
        })
    }

    pub(super) fn judge_all(tools: &[Self]) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for tool in tools {
            tool.judge().map_err(|what| format!("tool {}: {what}", tool.name))?;
            if !names.insert(&tool.name) {
                return Err(format!(
                    "two tools are called {}; give one of them another name",
                    tool.name
                ));
            }
        }
        // Their number, names and schemas, as every provider wants them.
        let offered = tools.iter().map(|tool| {
            let own = payloads::schema(&tool.task_type).unwrap_or(json!({"type": "object"}));
            tool.offered(&own)
        });
        Tool::judge_all(&offered.collect::<Vec<_>>())
    }

    fn judge(&self) -> Result<(), String> {
        if NEVER_TOOLS.contains(&self.task_type.as_str()) {
            return Err(format!("the task type {} cannot be a tool", self.task_type));
        }
        if let Some(parameters) = &self.parameters {
            if parameters["type"] != "object" {
                return Err("parameters is no schema of an object; say \"type\": \"object\"".into());
            }
            Schema::compile(parameters).map_err(|what| format!("parameters: {what}"))?;
            let properties = parameters["properties"].as_object();
            let both = self
                .payload
                .keys()
                .find(|field| properties.is_some_and(|properties| properties.contains_key(*field)));
            if let Some(field) = both {
                return Err(format!(
                    "{field} is fixed by payload and asked of the model by parameters; keep one"
                ));
            }
        }
        match payloads::schema(&self.task_type) {
            Some(own) => self.judge_payload(&own),
            None => Ok(()),
        }
    }

    /// What is fixed, as far as it can be judged without the rest.
    fn judge_payload(&self, own: &Value) -> Result<(), String> {
        for (field, value) in &self.payload {
            let Some(schema) = own["properties"].get(field) else {
                let known = own["properties"].as_object().into_iter().flat_map(Map::keys);
                let known: Vec<&str> = known.map(String::as_str).collect();
                return Err(format!(
                    "payload has {field}, which {} does not know; it knows {}",
                    self.task_type,
                    known.join(", ")
                ));
            };
            let schema = Schema::compile(schema).map_err(|what| format!("{field}: {what}"))?;
            schema.check(value).map_err(|what| format!("payload.{field}: {what}"))?;
        }
        let required = own["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let is_whole = required.into_iter().all(|field| self.payload.contains_key(field));
        if is_whole && !self.payload.is_empty() && own.get("oneOf").is_none() {
            return payloads::check(&self.task_type, &Value::Object(self.payload.clone()));
        }
        Ok(())
    }

    /// As it is offered to the model, by the schema of its task type's payload.
    pub fn offered(&self, own: &Value) -> Tool {
        let described = || own["description"].as_str().unwrap_or_default().to_owned();
        let mut parameters = self.parameters.clone().unwrap_or_else(|| self.unfixed(own));
        if let Some(schema) = parameters.as_object_mut() {
            // What it does not name is not the model's to say.
            schema.entry("additionalProperties").or_insert(Value::Bool(false));
            schema.entry("properties").or_insert_with(|| json!({}));
        }
        Tool {
            name: self.name.clone(),
            description: self.description.clone().unwrap_or_else(described),
            parameters,
            strict: None,
        }
    }

    /// The task type's schema without what is fixed, and without what only people read.
    fn unfixed(&self, own: &Value) -> Value {
        let mut schema = own.as_object().cloned().unwrap_or_default();
        for word in ["$schema", "title", "description", "examples"] {
            schema.remove(word);
        }
        if !self.payload.is_empty() {
            // It may ask for a field that is fixed; the handler's own check knows better.
            schema.remove("oneOf");
        }
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|field, _| !self.payload.contains_key(field));
        }
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            let is_fixed = |field: &Value| {
                field.as_str().is_some_and(|field| self.payload.contains_key(field))
            };
            required.retain(|field| !is_fixed(field));
        }
        schema.entry("type").or_insert_with(|| "object".into());
        Value::Object(schema)
    }

    /// The payload of one call: what the model says and what is fixed, which wins.
    pub fn payload_of(&self, said: &Value) -> Value {
        let mut payload = said.as_object().cloned().unwrap_or_default();
        payload.extend(self.payload.clone());
        Value::Object(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AgentSession, Payload as _};
    use super::*;

    #[track_caller]
    fn check(tools: &Value, expected: &str) {
        let payload = json!({"goal": "a", "tools": tools});
        let seen = AgentSession::read(&payload).map_or_else(|error| error, |_| "ok".to_owned());
        assert!(seen.contains(expected), "{payload}: {seen}");
    }

    fn tool(written: Value) -> SessionTool {
        serde_json::from_value(written).expect("a tool")
    }

    #[test]
    fn a_tool_is_a_type_with_what_is_fixed_and_what_is_asked() {
        check(&json!(["http_call", "db_query"]), "ok");
        check(&json!(["http_call", "http_call"]), "two tools are called http_call");
        check(&json!([3]), "a tool is the name of a task type");
        check(&json!([{"name": "a"}]), "missing field `task_type`");
        check(&json!([{"task_type": "http_call", "name": "a b"}]), "letters, digits");
        check(&json!([{"task_type": "http_call", "uses": 3}]), "unknown field `uses`");
        check(&json!(["agent_session"]), "cannot be a tool");
        check(&json!(["report_generation"]), "cannot be a tool");
        check(&json!(["send_fax"]), "ok");
        let fixed = |payload: Value| json!([{"task_type": "http_call", "payload": payload}]);
        check(&fixed(json!({"ulr": "x"})), "payload has ulr, which http_call does not know");
        check(&fixed(json!({"method": 3})), "payload.method");
        check(&fixed(json!({"url": "nowhere"})), "is no URL");
        check(&fixed(json!({"method": "POST"})), "ok");
        let asked = |parameters: Value| json!([{"task_type": "http_call", "payload": {"url": "https://a.example"}, "parameters": parameters}]);
        check(&asked(json!({"type": "string"})), "no schema of an object");
        check(&asked(json!({"type": "object", "properties": {"url": {}}})), "keep one");
        check(
            &asked(json!({"type": "object", "properties": {"query": {"type": "objekt"}}})),
            "parameters:",
        );
    }

    #[test]
    fn the_model_sees_nothing_of_what_is_fixed() {
        let own = payloads::schema("http_call").expect("a schema");
        let fixed = tool(json!({"task_type": "http_call", "payload": {
            "url": "https://a.example", "headers": {"Authorization": "secret:token"}}}));
        let offered = fixed.offered(&own);
        let text = json!(offered).to_string();
        assert!(!text.contains("a.example") && !text.contains("Authorization"), "{text}");
        assert!(offered.parameters["properties"].get("url").is_none());
        assert_eq!(offered.parameters["required"], json!([]));
        assert_eq!(offered.parameters["additionalProperties"], false);
        assert!(offered.parameters["properties"]["query"].is_object());
        assert!(!offered.description.is_empty() && offered.judge() == Ok(()));

        let narrowed = tool(json!({"task_type": "http_call", "description": "d",
            "parameters": {"type": "object", "properties": {"query": {"type": "object"}}}}));
        let offered = narrowed.offered(&own);
        assert_eq!(
            (offered.description.as_str(), &offered.parameters["additionalProperties"]),
            ("d", &json!(false))
        );
    }

    #[test]
    fn what_is_fixed_wins() {
        let fixed =
            tool(json!({"task_type": "http_call", "payload": {"url": "https://a.example"}}));
        let payload = fixed.payload_of(&json!({"url": "https://evil.example", "query": {"a": 1}}));
        assert_eq!(payload, json!({"url": "https://a.example", "query": {"a": 1}}));
    }
}
