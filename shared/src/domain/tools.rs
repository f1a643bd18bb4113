//! Tools that a model may ask for, and what it asks: names, arguments, and what is wrong with them.
//!
//! It runs no tool. Every text of a fault is written for the model, which may try again.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::json_schema::Schema;

/// Longest name of a tool: more is refused by providers.
pub const MAX_TOOL_NAME: usize = 64;
/// Most tools that one question may offer: more is refused by providers.
pub const MAX_TOOLS: usize = 128;

/// A tool that is offered. JSON: `{"type": "function", "function": {"name", "description",
/// "parameters"}}`, as on the wire; `strict` is taken too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tool {
    /// Letters, digits, `_` and `-`.
    pub name: String,
    /// For the model: what it does and when to use it.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub parameters: Value,
    /// Asks the provider to keep to the schema; it is validated here all the same.
    pub strict: Option<bool>,
}

impl Tool {
    /// What is wrong with it.
    pub fn judge(&self) -> Result<(), String> {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let length = self.name.len();
        if !(1..=MAX_TOOL_NAME).contains(&length) || !self.name.chars().all(is_known) {
            return Err(format!(
                "a tool's name has 1 to {MAX_TOOL_NAME} letters, digits, _ or -; {:?} has not",
                self.name
            ));
        }
        let schema = Schema::compile(&self.parameters);
        schema.map(drop).map_err(|what| format!("parameters of the tool {}: {what}", self.name))
    }

    /// What is wrong with a set of them.
    pub fn judge_all(tools: &[Self]) -> Result<(), String> {
        if tools.len() > MAX_TOOLS {
            return Err(format!("more than {MAX_TOOLS} tools"));
        }
        let mut names = BTreeSet::new();
        for tool in tools {
            tool.judge()?;
            if !names.insert(&tool.name) {
                return Err(format!("two tools are called {}", tool.name));
            }
        }
        Ok(())
    }
}

/// The shape on the wire.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTool {
    r#type: String,
    function: WireFunction,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFunction {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default = "no_arguments")]
    parameters: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

fn no_arguments() -> Value {
    json!({"type": "object", "properties": {}})
}

impl Serialize for Tool {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let function = WireFunction {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
            strict: self.strict,
        };
        WireTool { r#type: "function".to_owned(), function }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let WireTool { r#type, function } = WireTool::deserialize(from)?;
        if r#type != "function" {
            return Err(serde::de::Error::custom("a tool's type is function"));
        }
        let WireFunction { name, description, parameters, strict } = function;
        Ok(Self { name, description, parameters, strict })
    }
}

/// Whether the model must ask for a tool. JSON as on the wire: `"auto"`, `"none"`, `"required"`, or
/// `{"type": "function", "function": {"name": N}}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// It must not.
    None,
    /// It must ask for some.
    Required,
    /// It must ask for this one.
    Named(String),
}

impl Serialize for ToolChoice {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => to.serialize_str("auto"),
            Self::None => to.serialize_str("none"),
            Self::Required => to.serialize_str("required"),
            Self::Named(name) => {
                json!({"type": "function", "function": {"name": name}}).serialize(to)
            }
        }
    }
}

impl<'de> Deserialize<'de> for ToolChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        match (value.as_str(), value["function"]["name"].as_str()) {
            (Some("auto"), _) => Ok(Self::Auto),
            (Some("none"), _) => Ok(Self::None),
            (Some("required"), _) => Ok(Self::Required),
            (None, Some(name)) => Ok(Self::Named(name.to_owned())),
            _ => Err(serde::de::Error::custom(
                "tool_choice is auto, none, required or {\"type\": \"function\", \"function\": {\"name\": …}}",
            )),
        }
    }
}

/// A tool that the model asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique in its answer: a missing or repeated one of the provider's is replaced.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as the model wrote them: meant to be a JSON object, not always so.
    pub arguments: String,
}

impl ToolCall {
    /// The arguments, if the tool is offered and they are what it takes. No text at all means `{}`.
    pub fn input(&self, tools: &[Tool]) -> Result<Value, ToolFault> {
        let Some(tool) = tools.iter().find(|tool| tool.name == self.name) else {
            let known = tools.iter().map(|tool| tool.name.clone()).collect();
            return Err(ToolFault::Unknown { name: self.name.clone(), known });
        };
        let input = self.object().map_err(ToolFault::Arguments)?;
        let schema = Schema::compile(&tool.parameters).map_err(ToolFault::Arguments)?;
        schema.check(&input).map_err(ToolFault::Arguments)?;
        Ok(input)
    }

    /// The call as a message of the conversation repeats it. Some servers parse the arguments, so
    /// that unreadable ones are wrapped.
    pub fn wire(&self) -> Value {
        let arguments = match self.object() {
            Ok(_) if !self.arguments.trim().is_empty() => self.arguments.clone(),
            Ok(_) => "{}".to_owned(),
            Err(_) => json!({"unreadable": self.arguments}).to_string(),
        };
        let function = json!({"name": self.name, "arguments": arguments});
        json!({"id": self.id, "type": "function", "function": function})
    }

    fn object(&self) -> Result<Value, String> {
        if self.arguments.trim().is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(map)) => Ok(Value::Object(map)),
            Ok(_) => Err("they are JSON, but no object".to_owned()),
            Err(error) => Err(format!("they are not JSON: {error}")),
        }
    }
}

/// Gives each call of an answer an id of its own.
pub fn with_own_ids(mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
    let mut seen = BTreeSet::new();
    for (at, call) in calls.iter_mut().enumerate() {
        if call.id.trim().is_empty() {
            call.id = format!("call_{at}");
        }
        while !seen.insert(call.id.clone()) {
            call.id = format!("{}_{at}", call.id);
        }
    }
    calls
}

/// Why a tool that the model asks for cannot be run; for the model to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolFault {
    /// It was not offered.
    Unknown {
        /// The name it was asked by.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Its arguments are not what it takes.
    Arguments(String),
}

impl fmt::Display for ToolFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } if known.is_empty() => {
                write!(f, "there is no tool {name:?}, and no other")
            }
            Self::Unknown { name, known } => {
                write!(f, "there is no tool {name:?}; there are: {}", known.join(", "))
            }
            Self::Arguments(what) => write!(f, "the arguments cannot be used: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weather() -> Tool {
        serde_json::from_value(json!({"type": "function", "function": {
            "name": "weather", "description": "of a city",
            "parameters": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}}))
        .expect("a tool")
    }

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: "1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    #[track_caller]
    fn refused(name: &str, arguments: &str, words: &str) {
        let fault = call(name, arguments).input(&[weather()]).expect_err("unusable").to_string();
        assert!(fault.contains(words), "{fault}");
    }

    #[test]
    fn only_an_offered_tool_with_its_arguments_can_be_run() {
        let asked = call("weather", r#"{"city": "Bern"}"#).input(&[weather()]);
        assert_eq!(asked, Ok(json!({"city": "Bern"})));
        refused("wether", "{}", "there are: weather");
        refused("weather", r#"{"city": "#, "not JSON");
        refused("weather", "[1]", "no object");
        refused("weather", r#"{"city": 3}"#, "/city");
        refused("weather", "", "city");
        let clock =
            Tool { parameters: no_arguments(), name: "clock".to_owned(), ..Tool::default() };
        assert_eq!(call("clock", " ").input(&[clock]), Ok(json!({})));
    }

    #[test]
    fn a_tool_is_written_as_it_is_read_and_names_are_judged() {
        let tool = weather();
        assert_eq!(serde_json::from_value::<Tool>(json!(tool)).expect("a tool"), tool);
        assert_eq!(Tool::judge_all(std::slice::from_ref(&tool)), Ok(()));
        assert!(Tool::judge_all(&[tool.clone(), tool.clone()]).is_err());
        for name in ["", "a b", &"x".repeat(65)] {
            assert!(Tool { name: name.to_owned(), ..tool.clone() }.judge().is_err(), "{name}");
        }
        let broken = Tool { parameters: json!({"type": "objekt"}), ..tool };
        assert!(broken.judge().expect_err("no schema").contains("the tool weather"));
    }

    #[test]
    fn a_choice_is_written_as_it_is_read() {
        for choice in [
            ToolChoice::Auto,
            ToolChoice::None,
            ToolChoice::Required,
            ToolChoice::Named("weather".to_owned()),
        ] {
            assert_eq!(serde_json::from_value::<ToolChoice>(json!(choice)).expect("ok"), choice);
        }
        assert!(serde_json::from_value::<ToolChoice>(json!("maybe")).is_err());
    }

    #[test]
    fn each_call_gets_an_id_of_its_own() {
        let of = |id: &str| ToolCall { id: id.to_owned(), ..call("f", "{}") };
        let ids = with_own_ids(vec![of("a"), of(""), of("a"), of("a")]);
        let ids: Vec<&str> = ids.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["a", "call_1", "a_2", "a_3"]);
    }

    #[test]
    fn arguments_that_nobody_can_read_go_back_wrapped() {
        let text = |arguments| call("f", arguments).wire()["function"]["arguments"].clone();
        assert_eq!(text(r#"{"a":1}"#), r#"{"a":1}"#);
        assert_eq!(text(""), "{}");
        assert_eq!(text("{oops"), r#"{"unreadable":"{oops"}"#);
    }
}
