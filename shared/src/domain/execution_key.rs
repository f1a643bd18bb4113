//! The execution key: business identity of a piece of work, unique within a name.
//!
//! It never hashes or rewrites what the user wrote: an operator must recognise it in the UI.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Longest key, in bytes; fits an index entry and a table column of the UI.
pub const MAX_KEY_BYTES: usize = 255;

/// A checked key: 1 to 255 bytes, printable, no surrounding white space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExecutionKey(String);

/// Why a text is no execution key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing, or only white space.
    #[error("an execution key must not be empty")]
    Empty,
    /// Too long for the index.
    #[error("an execution key has at most {MAX_KEY_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// One that is [unseen](is_unseen), such as NUL, a line break or a change of direction.
    #[error("an execution key must be printable; it has {shown} at byte {1}", shown = .0.escape_unicode())]
    Unprintable(char, usize),
    /// White space at an end is a copy-paste accident that would make a second key.
    #[error("an execution key must not begin or end with white space")]
    Padded,
}

/// True for what is not seen where it stands and changes what is: control and format characters, ends of
/// lines, and those that turn the direction of a text. Two names that look alike must be alike.
pub fn is_unseen(c: char) -> bool {
    const UNSEEN: [RangeInclusive<char>; 13] = [
        '\u{ad}'..='\u{ad}',
        '\u{600}'..='\u{605}',
        '\u{61c}'..='\u{61c}',
        '\u{6dd}'..='\u{6dd}',
        '\u{70f}'..='\u{70f}',
        '\u{180e}'..='\u{180e}',
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{feff}'..='\u{feff}',
        '\u{fff9}'..='\u{fffb}',
        '\u{1d173}'..='\u{1d17a}',
        '\u{e0000}'..='\u{e007f}',
    ];
    c.is_control() || UNSEEN.iter().any(|range| range.contains(&c))
}

impl ExecutionKey {
    /// Checks and takes a text.
    pub fn new(text: impl Into<String>) -> Result<Self, KeyError> {
        let text = text.into();
        if text.trim().is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLong(text.len()));
        }
        if let Some((at, c)) = text.char_indices().find(|(_, c)| is_unseen(*c)) {
            return Err(KeyError::Unprintable(c, at));
        }
        if text.trim() != text {
            return Err(KeyError::Padded);
        }
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExecutionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ExecutionKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl TryFrom<String> for ExecutionKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(text)
    }
}

impl From<ExecutionKey> for String {
    fn from(key: ExecutionKey) -> Self {
        key.0
    }
}

/// SHA-256 of a payload with object keys sorted, so that key order makes no other payload.
pub fn payload_hash(payload: &serde_json::Value) -> Vec<u8> {
    let mut hasher = Sha256::new();
    // serde_json's map is a BTreeMap here (feature `preserve_order` stays off): keys come sorted.
    hasher.update(payload.to_string().as_bytes());
    hasher.finalize().to_vec()
}

/// Bytes as lower-case hexadecimal digits: how hashes are shown.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let error = ExecutionKey::new(text).err().map(|e| e.to_string());
        match expected {
            None => assert_eq!(error, None),
            Some(part) => {
                assert!(error.as_deref().unwrap_or("accepted").contains(part), "{error:?}");
            }
        }
    }

    #[test]
    fn keys_are_printable_and_short() {
        check("order_sync_2026-11-30", None);
        check("订单同步 2026", None);
        check("", Some("empty"));
        check("  ", Some("empty"));
        check(" a", Some("white space"));
        check("a\0b", Some("printable; it has \\u{0} at byte 1"));
        check("a\u{202e}b", Some("printable; it has \\u{202e} at byte 1"));
        check("a\u{200b}b", Some("\\u{200b}"));
        check(&"x".repeat(255), None);
        check(&"x".repeat(256), Some("256"));
    }

    #[test]
    fn the_order_of_keys_makes_no_other_payload() {
        let one = serde_json::json!({"a": 1, "b": {"c": 2, "d": 3}});
        let two: serde_json::Value =
            serde_json::from_str(r#"{"b":{"d":3,"c":2},"a":1}"#).expect("valid");
        assert_eq!(payload_hash(&one), payload_hash(&two));
    }
}
