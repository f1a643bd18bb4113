//! `probe`: does what its payload says; for drills and load, where a pool lists it.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Payload, given};

/// Longest name of a table that PostgreSQL does not cut, in bytes.
const LONGEST_TABLE: usize = 63;

/// What a probe does once it has slept and spun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Completes.
    #[default]
    Ok,
    /// Fails, worth a retry.
    Retry,
    /// Fails for good.
    Permanent,
    /// Asks to be run again later.
    Snooze,
    /// Panics.
    Panic,
    /// Never ends.
    Hang,
    /// Takes its process with it.
    Die,
}

/// What a probe does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// How it ends.
    #[serde(default)]
    pub mode: Mode,
    /// The mode holds for the first so many attempts; later ones complete.
    #[serde(default)]
    pub fail_times: Option<u32>,
    /// Waits.
    #[serde(default)]
    pub sleep_ms: u64,
    /// Computes, and blocks its thread.
    #[serde(default)]
    pub spin_ms: u64,
    /// Delay of a snooze.
    #[serde(default = "one_second")]
    pub snooze_ms: u64,
    /// Table that gets a row in the transaction that completes the task.
    #[serde(default)]
    pub effect: Option<String>,
    /// Comes back in the result.
    #[serde(default, deserialize_with = "given")]
    pub echo: Option<Value>,
}

fn one_second() -> u64 {
    1000
}

impl Payload for Probe {
    const TYPE: &'static str = "probe";

    fn schema() -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "probe",
            "description": "Does what its payload says. For drills and load tests; there only where a pool of belfry.yaml lists it.",
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "mode": {"enum": ["ok", "retry", "permanent", "snooze", "panic", "hang", "die"], "default": "ok", "description": "how the attempt ends"},
                "fail_times": {"type": "integer", "minimum": 0, "description": "the mode holds for the first so many attempts; later ones complete"},
                "sleep_ms": {"type": "integer", "minimum": 0, "description": "milliseconds to wait first"},
                "spin_ms": {"type": "integer", "minimum": 0, "description": "milliseconds to compute first, blocking the thread"},
                "snooze_ms": {"type": "integer", "minimum": 0, "default": 1000, "description": "delay of a snooze"},
                "effect": {"type": "string", "pattern": "^[a-z_][a-z0-9_]{0,62}$", "description": "table with (task_id uuid, run integer, token uuid, execution_key text) that gets a row in the transaction that completes the task"},
                "echo": {"description": "comes back in the result"},
            },
            "examples": [{}, {"mode": "retry", "fail_times": 2, "sleep_ms": 50}],
        })
    }

    fn judge(&self) -> Result<(), String> {
        match &self.effect {
            Some(table) if !is_plain(table) => Err(format!(
                "effect {table:?} is no plain name of a table: at most {LONGEST_TABLE} of a-z, \
                 0-9 and _, and no digit first"
            )),
            _ => Ok(()),
        }
    }
}

/// True for a name that means nothing but a table, wherever it stands in a statement.
fn is_plain(table: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c == '_';
    table.starts_with(letter)
        && table.chars().all(|c| letter(c) || c.is_ascii_digit())
        && table.len() <= LONGEST_TABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(table: &str, good: bool) {
        let read = Probe::read(&json!({"effect": table}));
        assert_eq!(read.is_ok(), good, "{table:?}: {read:?}");
    }

    #[test]
    fn an_effects_table_is_a_plain_name_and_never_a_statement() {
        check("drill_effects", true);
        check(&"t".repeat(63), true);
        check(&"t".repeat(64), false);
        for other in ["", "1st", "Effects", "a b", "public.effects", "a;drop", "\"a\"", "a-b", "é"]
        {
            check(other, false);
        }
    }
}
