//! Taking secrets out of what is stored and shown: of values, and of JSON inside of texts.
//!
//! Which secrets there are, the caller's function knows.

use serde_json::Value;

/// A copy of a value whose texts, names of fields included, are as `redact` gives them.
pub fn value(value: Value, redact: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(held) => Value::String(text(&held, redact)),
        Value::Array(items) => items.into_iter().map(|item| self::value(item, redact)).collect(),
        Value::Object(fields) => {
            let redacted = |(name, item): (String, _)| (redact(&name), self::value(item, redact));
            Value::Object(fields.into_iter().map(redacted).collect())
        }
        other => other,
    }
}

/// A text as `redact` gives it. Where it is JSON, its escapes may spell a secret that no search of
/// the text finds (`\u0073k-…`, a `"` or `/` with a backslash); then it is written anew.
pub fn text(text: &str, redact: &dyn Fn(&str) -> String) -> String {
    let plain = redact(text);
    if !plain.contains('\\') {
        return plain;
    }
    let (start, end) = (plain.find(['{', '[', '"']), plain.rfind(['}', ']', '"']));
    let (Some(start), Some(end)) = (start, end.map(|end| end + 1)) else { return plain };
    // Around it may be a fence or words; they stay.
    let Some(Ok(inside)) = plain.get(start..end).map(serde_json::from_str::<Value>) else {
        return plain;
    };
    let clean = value(inside.clone(), redact);
    if clean == inside {
        return plain;
    }
    format!("{}{clean}{}", &plain[..start], &plain[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_however_json_spells_it() {
        let redact = |text: &str| text.replace("pa/\"ss", "…").replace("sk-1", "…");
        for (written, left) in [
            ("key sk-1.", "key …."),
            (r#"{"k":"\u0073k-1"}"#, r#"{"k":"…"}"#),
            (r#"{"k":["pa\/\"ss"],"sk-1":1}"#, r#"{"k":["…"],"…":1}"#),
            (r#"{"k":"{\"in\":\"\\u0073k-1\"}"}"#, r#"{"k":"{\"in\":\"…\"}"}"#),
            ("```json\n[\"\\u0073k-1\"]\n```", "```json\n[\"…\"]\n```"),
            (r#"{"a": "\u00e4", "b": 1.50}"#, r#"{"a": "\u00e4", "b": 1.50}"#),
            (r"a \ that is no {JSON}", r"a \ that is no {JSON}"),
        ] {
            assert_eq!(text(written, &redact), left);
        }
    }
}
