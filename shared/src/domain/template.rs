//! Templates of execution keys, payloads, prompts and reports.
//!
//! A misspelt variable is an error at load, never an empty place in a key; every rendering has a
//! budget of work and of bytes. Nothing here reads a clock: the instant comes with the tick.

mod go;

use std::io;
use std::sync::LazyLock;

use chrono::{DateTime, SecondsFormat, Utc};
use chrono_tz::Tz;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};
use serde_json::{Map, Value, json};

use super::execution_key::{ExecutionKey, KeyError, MAX_KEY_BYTES};
use super::task::MAX_PAYLOAD_BYTES;

/// Key of a schedule that names none: one task per planned instant.
pub const DEFAULT_KEY_TEMPLATE: &str = "{{ schedule }}@{{ scheduled_at }}";

/// Variables of key and payload templates.
pub const TICK_VARIABLES: [&str; 4] = ["schedule", "scheduled_date", "scheduled_at", "previous_at"];

/// Largest text of [`render`], in bytes: a report or a prompt, not an archive.
pub const MAX_RENDERED_BYTES: usize = 1024 * 1024;

/// Work that a key or a payload string may cost (minijinja's units, an instruction or 64 bytes).
const TICK_FUEL: u64 = 50_000;

/// Work that a report may cost: some hundred thousand table cells.
const REPORT_FUEL: u64 = 5_000_000;

/// Why a template cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// Broken syntax, an unknown filter, a value of the wrong kind.
    #[error("template: {0}")]
    Invalid(String),
    /// A variable that ticks do not have.
    #[error("template: unknown variable {name:?}; {hint}")]
    UnknownVariable {
        /// As written.
        name: String,
        /// The nearest known one, or all.
        hint: String,
    },
    /// The rendered text is above its limit.
    #[error("template: the result is longer than {limit} bytes")]
    TooLong {
        /// Limit in bytes.
        limit: usize,
    },
    /// The budget of work is spent.
    #[error("template: it takes too much work; a loop may be too long")]
    TooMuchWork,
    /// The rendered text is no execution key.
    #[error("template: {0}")]
    Key(#[from] KeyError),
}

/// What a key or payload template knows of its tick.
#[derive(Clone, Copy, Debug)]
pub struct TickContext<'a> {
    /// Name of the schedule.
    pub schedule: &'a str,
    /// Planned instant.
    pub at: DateTime<Utc>,
    /// Zone of the schedule: date and offset are told in it.
    pub timezone: Tz,
    /// The planned instant before it, if any.
    pub previous: Option<DateTime<Utc>>,
}

impl TickContext<'_> {
    fn variables(&self) -> Value {
        let told = |at: DateTime<Utc>| {
            // The offset is written out, so that both 02:30 of an autumn night differ.
            at.with_timezone(&self.timezone).to_rfc3339_opts(SecondsFormat::Secs, false)
        };
        json!({
            "schedule": self.schedule,
            "scheduled_date": self.at.with_timezone(&self.timezone).date_naive().to_string(),
            "scheduled_at": told(self.at),
            "previous_at": self.previous.map(told).unwrap_or_default(),
        })
    }
}

/// Checks a key template at load, by rendering a first and a later tick.
pub fn check(template: &str) -> Result<(), TemplateError> {
    samples().iter().try_for_each(|sample| render_key(template, sample).map(drop))
}

/// Checks every template in a payload at load.
pub fn check_payload(payload: &Value) -> Result<(), TemplateError> {
    samples().iter().try_for_each(|sample| render_payload(payload, sample).map(drop))
}

fn samples() -> [TickContext<'static>; 2] {
    let at = DateTime::UNIX_EPOCH;
    let first = TickContext { schedule: "schedule", at, timezone: Tz::UTC, previous: None };
    [first, TickContext { previous: Some(at), ..first }]
}

/// The execution key of a tick's task.
pub fn render_key(template: &str, tick: &TickContext) -> Result<ExecutionKey, TemplateError> {
    let text = render_tick(template, &tick.variables(), MAX_KEY_BYTES)?;
    Ok(ExecutionKey::new(text)?)
}

/// The payload of a tick's task: strings with `{{` are rendered, names of fields stay as they are.
pub fn render_payload(payload: &Value, tick: &TickContext) -> Result<Value, TemplateError> {
    let rendered = render_value(payload, &tick.variables())?;
    // Many strings below the limit can exceed it together.
    if rendered.to_string().len() > MAX_PAYLOAD_BYTES {
        return Err(TemplateError::TooLong { limit: MAX_PAYLOAD_BYTES });
    }
    Ok(rendered)
}

fn render_value(value: &Value, variables: &Value) -> Result<Value, TemplateError> {
    Ok(match value {
        Value::String(text) if text.contains("{{") => {
            Value::String(render_tick(text, variables, MAX_PAYLOAD_BYTES)?)
        }
        Value::Array(items) => {
            let items: Result<_, _> = items.iter().map(|v| render_value(v, variables)).collect();
            Value::Array(items?)
        }
        Value::Object(fields) => {
            let fields: Result<Map<_, _>, TemplateError> = fields
                .iter()
                .map(|(name, v)| Ok((name.clone(), render_value(v, variables)?)))
                .collect();
            Value::Object(fields?)
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

fn render_tick(template: &str, variables: &Value, limit: usize) -> Result<String, TemplateError> {
    /// Made once: it costs more than most templates.
    static TICKS: LazyLock<Environment<'static>> = LazyLock::new(|| environment(TICK_FUEL));

    let template = go::rewrite(template)?;
    let environment = &*TICKS;
    let parsed = environment.template_from_str(&template).map_err(|e| invalid(&e, limit))?;
    // Asked before rendering, because the engine's own error does not name the variable.
    let mut names: Vec<_> = parsed.undeclared_variables(false).into_iter().collect();
    names.sort_unstable();
    let functions: Vec<_> = environment.globals().map(|(name, _)| name.to_owned()).collect();
    let unknown = names
        .into_iter()
        .find(|name| !TICK_VARIABLES.contains(&name.as_str()) && !functions.contains(name));
    match unknown {
        Some(name) => Err(unknown_variable(name)),
        None => write(&parsed, variables, limit),
    }
}

fn unknown_variable(name: String) -> TemplateError {
    let near =
        TICK_VARIABLES.into_iter().find(|known| strsim::damerau_levenshtein(known, &name) < 4);
    let hint = match near {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known are {}", TICK_VARIABLES.join(", ")),
    };
    TemplateError::UnknownVariable { name, hint }
}

/// Renders a report or a prompt with the fields of an object as variables.
///
/// Nothing is escaped; `tojson` and the engine's other filters are at hand, and an undefined
/// variable is an error unless `default` catches it.
pub fn render(template: &str, context: &Value) -> Result<String, TemplateError> {
    let environment = environment(REPORT_FUEL);
    let limit = MAX_RENDERED_BYTES;
    let parsed = environment.template_from_str(template).map_err(|e| invalid(&e, limit))?;
    write(&parsed, context, limit)
}

fn environment<'a>(fuel: u64) -> Environment<'a> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    let mut syntax = SyntaxConfig::builder();
    syntax.keep_trailing_newline(true);
    environment.set_syntax(syntax.build().unwrap_or_default());
    environment.set_fuel(Some(fuel));
    environment
}

fn write(
    template: &minijinja::Template,
    variables: &Value,
    limit: usize,
) -> Result<String, TemplateError> {
    let mut bounded = Bounded { text: Vec::new(), limit };
    template.render_captured_to(Serde(variables), &mut bounded).map_err(|e| invalid(&e, limit))?;
    String::from_utf8(bounded.text).map_err(|error| TemplateError::Invalid(error.to_string()))
}

fn invalid(error: &minijinja::Error, limit: usize) -> TemplateError {
    match error.kind() {
        ErrorKind::OutOfFuel => TemplateError::TooMuchWork,
        ErrorKind::WriteFailure => TemplateError::TooLong { limit },
        kind => {
            let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
            TemplateError::Invalid(format!("{kind}{detail}{line}"))
        }
    }
}

/// Takes output up to a limit, so that no template can fill the memory.
struct Bounded {
    text: Vec<u8>,
    limit: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.limit {
            return Err(io::Error::other("the limit is reached"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
