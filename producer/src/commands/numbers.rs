//! Numbers of a payload arrive as written, or are refused.
//!
//! A parser turns 12345678901234567890123 into the nearest double without a word; the handler
//! would then work on another order than the caller's.

use shared::config::exact_number;

/// Looks at every number of a JSON text that has been parsed already.
pub fn check(json: &[u8]) -> Result<(), String> {
    let mut at = 0;
    while at < json.len() {
        at = match json[at] {
            b'"' => string_end(json, at + 1),
            b'-' | b'0'..=b'9' => {
                let end = number_end(json, at);
                exact_number(&String::from_utf8_lossy(&json[at..end]))?;
                end
            }
            _ => at + 1,
        };
    }
    Ok(())
}

fn string_end(json: &[u8], mut at: usize) -> usize {
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

fn number_end(json: &[u8], at: usize) -> usize {
    let inside = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    json[at..].iter().position(|byte| !inside(byte)).map_or(json.len(), |length| at + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_text(text: &str, is_exact: bool) {
        let _: serde_json::Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(check(text.as_bytes()).is_ok(), is_exact, "{text}");
    }

    #[test]
    fn a_number_that_would_be_rounded_is_refused() {
        check_text("[1, -2, 0.1, 1.50, 1e3, 18446744073709551615]", true);
        check_text(r#"{"a": "12345678901234567890123", "b\"": "\\"}"#, true);
        check_text(r#"{"a": "\\", "b": 12345678901234567890123}"#, false);
        check_text("0.1234567890123456789", false);
        check_text("-123456789012345678901", false);
    }
}
