//! Reading what providers send: JSON with its usual blemishes, and error bodies of every shape.

use serde_json::Value;

use super::mending;

/// Longest quote of a foreign body in a message.
const QUOTED: usize = 200;

/// Reads JSON behind a byte order mark and keep-alive blank lines, with lone surrogates, numbers out
/// of range and nests without end; no NUL is left, since Postgres keeps none.
pub fn json(bytes: &[u8]) -> Option<Value> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii();
    let read = serde_json::from_slice(bytes).or_else(|_| {
        let text = mending::surrogates(&String::from_utf8_lossy(bytes));
        serde_json::from_str(&text).or_else(|_| serde_json::from_str(&mending::excesses(&text)))
    });
    let mut value: Value = read.ok()?;
    strip_nul(&mut value);
    Some(value)
}

fn strip_nul(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('\0') => *text = text.replace('\0', "\u{fffd}"),
        Value::Array(items) => items.iter_mut().for_each(strip_nul),
        Value::Object(map) => {
            if map.keys().any(|key| key.contains('\0')) {
                let old = std::mem::take(map);
                map.extend(
                    old.into_iter().map(|(key, item)| (key.replace('\0', "\u{fffd}"), item)),
                );
            }
            map.values_mut().for_each(strip_nul);
        }
        _ => {}
    }
}

/// What an error body says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ErrorBody {
    pub message: String,
    /// `type`, or empty.
    pub kind: String,
    /// `code` as text, or empty.
    pub code: String,
    pub param: String,
    /// Categories of a content filter that objected.
    pub filtered: Vec<String>,
}

impl ErrorBody {
    /// From any body: `{"error": {…}}`, `{"error": "…"}`, flat, `detail`, HTML, text, nothing.
    pub fn of(bytes: &[u8]) -> Self {
        match json(bytes) {
            Some(value) => Self::of_value(&value),
            None => Self { message: quote(bytes), ..Self::default() },
        }
    }

    /// From a parsed body.
    pub fn of_value(value: &Value) -> Self {
        // Some gateways wrap the object in a list.
        let value = value.get(0).unwrap_or(value);
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        if let Some(message) = error.as_str() {
            return Self { message: message.to_owned(), ..Self::default() };
        }
        let message = [&error["message"], &error["detail"], &error["error_description"]]
            .into_iter()
            .find(|message| !message.is_null());
        // LiteLLM spells a missing type as "None".
        let word = |value: &Value| text(value).filter(|text| text != "None").unwrap_or_default();
        Self {
            message: message.and_then(text).unwrap_or_else(|| cut(&error.to_string())),
            kind: word(&error["type"]),
            code: [&error["code"], &error["details"]["error_code"]]
                .into_iter()
                .map(word)
                .find(|code| !code.is_empty())
                .unwrap_or_default(),
            param: word(&error["param"]),
            filtered: filtered(error),
        }
    }

    /// True when type, code or message has one of the words.
    pub fn mentions(&self, words: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        words.iter().any(|word| self.kind == *word || self.code == *word || message.contains(word))
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(cut(&other.to_string())),
    }
}

/// Azure's categories, or OpenRouter's reasons.
fn filtered(error: &Value) -> Vec<String> {
    let result = &error["innererror"]["content_filter_result"];
    let categories = result.as_object().into_iter().flatten();
    let categories = categories.filter(|(_, it)| it["filtered"] == true).map(|(name, _)| name);
    let reasons = error["metadata"]["reasons"].as_array().into_iter().flatten();
    categories.cloned().chain(reasons.filter_map(text)).collect()
}

/// A foreign body in a few words.
pub fn quote(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    match text {
        "" => "an empty answer".to_owned(),
        _ if looks_like_html(text) => format!("an HTML page of {} bytes", bytes.len()),
        _ => cut(text),
    }
}

/// True for a page made for people.
pub(super) fn looks_like_html(text: &str) -> bool {
    let start = text.trim_start().get(..9).unwrap_or_default().to_ascii_lowercase();
    start.starts_with("<!doctype") || start.starts_with("<html")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blemished_json_is_read() {
        for text in ["\u{feff}{\"a\":1}", "\r\n\n  {\"a\":1}\r\n", "{\"a\":1}"] {
            assert_eq!(json(text.as_bytes()), Some(json!({"a": 1})), "{text:?}");
        }
        let of = |text: &str| json(text.as_bytes()).expect(text)["a"].clone();
        assert_eq!(of(r#"{"a":"x\ud800y"}"#), "x\u{fffd}y");
        assert_eq!(of(r#"{"a":"\udc00\ud800"}"#), "\u{fffd}\u{fffd}");
        assert_eq!(of(r#"{"a":"\ud83d\ude00 \ud800"}"#), "😀 \u{fffd}");
        assert_eq!(of(r#"{"a":"\\ud800 \ud800"}"#), "\\ud800 \u{fffd}");
        assert_eq!(of(r#"{"a":"n\u0000l"}"#), "n\u{fffd}l");
        assert_eq!(json(b"{\"a\0\":1}"), None);
        for broken in ["", "{", "<html>", "{\"a\":\"\\ud8\"}"] {
            assert_eq!(json(broken.as_bytes()), None, "{broken}");
        }
    }

    #[track_caller]
    fn check(body: &Value, message: &str, kind: &str, code: &str) {
        let seen = ErrorBody::of(body.to_string().as_bytes());
        assert_eq!(
            (seen.message.as_str(), seen.kind.as_str(), seen.code.as_str()),
            (message, kind, code)
        );
    }

    #[test]
    fn every_shape_of_an_error_is_read() {
        check(&json!({"error": {"message": "m", "type": "t", "code": "c"}}), "m", "t", "c");
        check(&json!({"error": {"message": "m", "type": "None", "code": 429}}), "m", "", "429");
        check(&json!({"error": {"message": "m", "code": null}}), "m", "", "");
        check(&json!({"error": "just words"}), "just words", "", "");
        check(&json!({"object": "error", "message": "m", "type": "t"}), "m", "t", "");
        check(&json!({"type": "error", "error": {"type": "t", "message": "m"}}), "m", "t", "");
        check(&json!({"detail": "m"}), "m", "", "");
        check(&json!([{"error": {"message": "m", "code": 400}}]), "m", "", "400");
        check(&json!({"detail": [{"msg": "m"}]}), r#"[{"msg":"m"}]"#, "", "");
        check(&json!({"other": 1}), r#"{"other":1}"#, "", "");
        let limit = json!({"error": {"message": "m", "details": {"error_code": "spend"}}});
        check(&limit, "m", "", "spend");
    }

    #[test]
    fn what_a_filter_objects_to_is_named() {
        let azure = json!({"error": {"message": "m", "innererror": {"content_filter_result": {
            "hate": {"filtered": true}, "violence": {"filtered": false}}}}});
        let router =
            json!({"error": {"code": 403, "message": "m", "metadata": {"reasons": ["hate"]}}});
        for body in [azure, router] {
            assert_eq!(ErrorBody::of_value(&body).filtered, ["hate"], "{body}");
        }
    }

    #[test]
    fn pages_are_named_not_quoted() {
        assert_eq!(quote(b"<!DOCTYPE html><html>"), "an HTML page of 21 bytes");
        assert_eq!(quote(b" \n"), "an empty answer");
        assert_eq!(quote(b"404 page not found\n"), "404 page not found");
        assert_eq!(quote("ü".repeat(500).as_bytes()).chars().count(), 201);
    }
}
