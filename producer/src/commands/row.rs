//! A request as JSON: a line of a batch file, or the body of a message to the inbox.
//!
//! It only reads what was said; [`Request::task`] judges it, as it judges a command line.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use shared::config::parse_duration;
use shared::domain::task::Due;

use super::numbers;
use super::request::Request;

/// Some editors begin a file of UTF-8 with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// `{"type", "payload"?, "key"?, "name"?, "delay"?, "timeout"?, "max_retry"?}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    #[serde(rename = "type")]
    task_type: String,
    #[serde(default = "empty")]
    payload: Value,
    key: Option<String>,
    name: Option<String>,
    delay: Option<Span>,
    timeout: Option<Span>,
    max_retry: Option<u32>,
}

/// Seconds, or a text such as `10m`.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a number of seconds is wanted, or a text such as \"10m\"")]
enum Span {
    Seconds(serde_json::Number),
    Text(String),
}

impl Span {
    fn duration(&self, what: &str) -> Result<Duration, String> {
        let text = match self {
            Self::Seconds(number) => &number.to_string(),
            Self::Text(text) => text,
        };
        parse_duration(text).map_err(|error| format!("{what}: {error}"))
    }
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

impl Row {
    /// Reads a JSON text. The error is one sentence for a person.
    pub fn read(json: &[u8]) -> Result<Self, String> {
        let json = json.strip_prefix(BYTE_ORDER_MARK).unwrap_or(json);
        // serde would take an array for the object's values in their order.
        if json.trim_ascii_start().first() != Some(&b'{') {
            return Err("one JSON object is wanted, such as {\"type\": \"http_call\"}".to_owned());
        }
        let reader = &mut serde_json::Deserializer::from_slice(json);
        let row = serde_path_to_error::deserialize(&mut *reader).map_err(|error| told(&error))?;
        reader.end().map_err(|error| one_line(&error))?;
        numbers::check(json)?;
        Ok(row)
    }

    /// The request; `key` makes one where the row has none, unless it answers `None` too.
    pub fn request(self, key: impl FnOnce() -> Option<String>) -> Result<Request, String> {
        let due = self.delay.map(|delay| delay.duration("delay")).transpose()?.map(Due::In);
        Ok(Request {
            task_type: self.task_type,
            payload: self.payload,
            key: self.key.or_else(key),
            name: self.name,
            due: due.unwrap_or_default(),
            timeout: self.timeout.map(|timeout| timeout.duration("timeout")).transpose()?,
            max_retry: self.max_retry,
        })
    }
}

/// With the field that is wrong, where serde does not name it itself.
fn told(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let (path, what) = (error.path().to_string(), one_line(error.inner()));
    // A value too deep to be read has a path as long as that.
    let field = path.split(['.', '[']).next().unwrap_or_default();
    let is_named = matches!(field, "" | "?") || what.contains(&format!("`{field}`"));
    if is_named { what } else { format!("{field}: {what}") }
}

/// serde's words without its own line number, which is 1 for whoever wrote one line.
fn one_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}
