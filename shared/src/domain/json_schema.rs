//! JSON Schema: is an answer, or an argument, what was asked for?
//!
//! Schemas come from payloads, so they load nothing from anywhere and their patterns run in linear
//! time. Texts about what is wrong name places and rules and never repeat a value.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// Most faults that are named: a person, or a model, mends some and asks again.
const MOST_NAMED: usize = 5;

/// A schema that can be used.
#[derive(Debug)]
pub struct Schema(Validator);

impl Schema {
    /// Reads a schema; the error says what is wrong with it.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        if !schema.is_object() && !schema.is_boolean() {
            return Err("a JSON Schema is an object".to_owned());
        }
        let options = jsonschema::options().offline().with_pattern_options(PatternOptions::regex());
        let compiled = options.build(schema);
        compiled.map(Self).map_err(|error| format!("the schema cannot be used: {error}"))
    }

    /// What is wrong with a value, the first few faults of it.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let faults = self.0.iter_errors(value).take(MOST_NAMED).map(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "the whole".to_owned() } else { place };
            format!("at {place}: {}", error.masked())
        });
        let faults: Vec<String> = faults.collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_is_named_by_place_and_rule_and_not_repeated() {
        let schema = Schema::compile(&json!({
            "type": "object", "required": ["n"], "additionalProperties": false,
            "properties": {"n": {"type": "integer"}, "s": {"enum": ["a", "b"]}}}))
        .expect("a schema");
        assert_eq!(schema.check(&json!({"n": 1, "s": "a"})), Ok(()));
        let said = schema.check(&json!({"n": "hunter2", "s": "hunter3"})).expect_err("wrong");
        assert!(said.contains("/n") && said.contains("/s") && said.contains("integer"), "{said}");
        assert!(!said.contains("hunter"), "{said}");
        let said = schema.check(&json!({})).expect_err("wrong");
        assert!(said.contains("the whole") && said.contains("\"n\""), "{said}");
    }

    #[test]
    fn a_schema_that_is_none_says_so_and_none_is_fetched() {
        for wrong in [
            json!("string"),
            json!({"type": "strin"}),
            json!({"$ref": "http://127.0.0.1:1/schema.json"}),
            json!({"$ref": "file:///etc/passwd"}),
            json!({"pattern": "("}),
        ] {
            assert!(Schema::compile(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_time() {
        let schema = Schema::compile(&json!({"pattern": "^(a+)+$"})).expect("a schema");
        assert!(schema.check(&json!(format!("{}b", "a".repeat(50_000)))).is_err());
    }
}
