//! `db_query`: one statement on a named source.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Payload, is_unrendered};

/// Longest statement, in bytes.
const MAX_SQL_BYTES: usize = 64 * 1024;
/// Most parameters.
const MAX_PARAMS: usize = 100;

/// One statement on a named source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DbQuery {
    /// Name in `sources`.
    pub source: String,
    /// The statement, with `$1…`.
    pub sql: String,
    /// Values of the parameters.
    #[serde(default)]
    pub params: Vec<Value>,
}

impl Payload for DbQuery {
    const TYPE: &'static str = "db_query";

    fn schema() -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "db_query",
            "description": "One query on a database of `sources:`, read-only unless the source says `mode: write`. Its rows are the result.",
            "type": "object",
            "required": ["source", "sql"],
            "additionalProperties": false,
            "properties": {
                "source": {"type": "string", "description": "name in sources: of belfry.yaml; payloads hold no connection strings"},
                "sql": {"type": "string", "maxLength": MAX_SQL_BYTES, "description": "one statement; values go into params, never into the text"},
                "params": {"type": "array", "maxItems": MAX_PARAMS, "description": "values of $1, $2, … in order; each takes the type that the statement gives it"},
            },
            "examples": [
                {"source": "reporting", "sql": "SELECT status, count(*) AS orders FROM orders WHERE day = $1 GROUP BY status", "params": ["{{ scheduled_date }}"]}, // sql as data
            ],
        })
    }

    fn judge(&self) -> Result<(), String> {
        if self.source.trim().is_empty() {
            return Err("source is empty; name one of sources: in belfry.yaml".to_owned());
        }
        if self.source.contains("://") {
            return Err("source is a connection string; put it under sources: in belfry.yaml and \
                        name it here"
                .to_owned());
        }
        if self.sql.trim().is_empty() {
            return Err("sql is empty".to_owned());
        }
        if self.sql.len() > MAX_SQL_BYTES {
            return Err(format!("sql is longer than {MAX_SQL_BYTES} bytes"));
        }
        // Rendered into the text, a value would be code.
        if is_unrendered(&self.sql) {
            return Err(
                "sql holds a template; write $1 and put the template into params".to_owned()
            );
        }
        if self.params.len() > MAX_PARAMS {
            return Err(format!("more than {MAX_PARAMS} params"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(payload: &Value, expected: &str) {
        let seen = DbQuery::read(payload).map_or_else(|error| error, |_| "ok".to_owned());
        assert!(seen.contains(expected), "{payload}: {seen}");
    }

    #[test]
    fn a_query_names_a_source_and_binds_its_values() {
        check(&json!({"source": "s", "sql": "SELECT 1"}), "ok"); // sql as data
        check(&json!({"source": "s"}), "missing field `sql`");
        check(&json!({"source": "postgres://u:p@h/d", "sql": "SELECT 1"}), "connection string"); // sql as data
        check(&json!({"source": "s", "sql": " "}), "sql is empty");
        check(&json!({"source": "s", "sql": "SELECT '{{ x }}'"}), "put the template into params"); // sql as data
        check(
            &json!({"source": "s", "sql": "SELECT $1", "params": {"a": 1}}), // sql as data
            "expected a sequence",
        );
    }
}
