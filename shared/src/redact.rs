//! Taking secrets out of what is stored and shown: of texts, of values, and of JSON inside of texts.
//!
//! All of them in one pass over what was said: two, one after the other, leave the rest of a secret that
//! another one is a part of.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// Shortest secret that is looked for everywhere: shorter ones would blot out ordinary words.
pub const SHORTEST: usize = 6;
/// What stands in the place of a secret.
const HIDDEN: &str = "…";

/// What must not be repeated. Its Debug shows none of it.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Vec<SecretString>);

impl Secrets {
    /// Those of them that are no shorter than [`SHORTEST`].
    pub fn of(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        let long = |secret: &SecretString| secret.expose_secret().len() >= SHORTEST;
        Self::default().and(secrets.into_iter().filter(long))
    }

    /// The same and some more, however short they are.
    #[must_use]
    pub fn and(&self, more: impl IntoIterator<Item = SecretString>) -> Self {
        let mut known = BTreeSet::new();
        let mut all: Vec<SecretString> = self.0.iter().cloned().chain(more).collect();
        all.retain(|secret| {
            let secret = secret.expose_secret();
            !secret.is_empty() && known.insert(secret.to_owned())
        });
        Self(all)
    }

    /// A text without them. Where it is JSON, its escapes may spell a secret that no search of the text
    /// finds (`\u0073k-…`, a `"` or `/` with a backslash); then it is written anew.
    pub fn out_of(&self, text: &str) -> String {
        let plain = self.hide(text);
        if !plain.contains('\\') {
            return plain;
        }
        let (start, end) = (plain.find(['{', '[', '"']), plain.rfind(['}', ']', '"']));
        let (Some(start), Some(end)) = (start, end.map(|end| end + 1)) else { return plain };
        // Around it may be a fence or words; they stay.
        let Some(Ok(inside)) = plain.get(start..end).map(serde_json::from_str::<Value>) else {
            return plain;
        };
        let clean = self.out_of_value(inside.clone());
        if clean == inside {
            return plain;
        }
        format!("{}{clean}{}", &plain[..start], &plain[end..])
    }

    /// A value without them, in texts and in names of fields.
    pub fn out_of_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.out_of(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.out_of_value(item)).collect(),
            Value::Object(fields) => {
                let clean = |(name, item): (String, _)| (self.hide(&name), self.out_of_value(item));
                Value::Object(fields.into_iter().map(clean).collect())
            }
            other => other,
        }
    }

    /// The text as it stands, each stretch that one or several of them cover hidden.
    fn hide(&self, text: &str) -> String {
        let mut found: Vec<(usize, usize)> =
            self.0.iter().flat_map(|secret| places(secret.expose_secret(), text)).collect();
        found.sort_unstable();
        let mut left = String::with_capacity(text.len());
        let mut over = 0;
        for (start, end) in found {
            // One that touches the last stretch lengthens it.
            if start >= over {
                left.push_str(&text[over..start]);
                left.push_str(HIDDEN);
            }
            over = over.max(end);
        }
        left.push_str(&text[over..]);
        left
    }
}

/// Where it stands, also where it overlaps itself.
fn places(secret: &str, text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut from = 0;
    let step = secret.chars().next().map_or(1, char::len_utf8);
    std::iter::from_fn(move || {
        let start = from + text.get(from..)?.find(secret)?;
        from = start + step;
        Some((start, start + secret.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(all: &[&str]) -> Secrets {
        Secrets::default().and(all.iter().map(|secret| SecretString::from(*secret)))
    }

    #[test]
    fn a_secret_is_found_however_json_spells_it() {
        let secrets = secrets(&["pa/\"ss", "sk-1"]);
        for (written, left) in [
            ("key sk-1.", "key …."),
            (r#"{"k":"\u0073k-1"}"#, r#"{"k":"…"}"#),
            (r#"{"k":["pa\/\"ss"],"sk-1":1}"#, r#"{"k":["…"],"…":1}"#),
            (r#"{"k":"{\"in\":\"\\u0073k-1\"}"}"#, r#"{"k":"{\"in\":\"…\"}"}"#),
            ("```json\n[\"\\u0073k-1\"]\n```", "```json\n[\"…\"]\n```"),
            (r#"{"a": "\u00e4", "b": 1.50}"#, r#"{"a": "\u00e4", "b": 1.50}"#),
            (r"a \ that is no {JSON}", r"a \ that is no {JSON}"),
        ] {
            assert_eq!(secrets.out_of(written), left);
        }
    }

    #[test]
    fn one_that_is_a_part_of_another_leaves_nothing_of_it() {
        for all in [["sk-1234", "sk-1234-longer"], ["sk-1234-longer", "sk-1234"]] {
            assert_eq!(secrets(&all).out_of("a sk-1234-longer b sk-1234."), "a … b ….");
        }
        // They overlap, one overlaps itself, and two stand side by side.
        let secrets = secrets(&["abcdef", "defghi", "xyxy", "größer"]);
        assert_eq!(secrets.out_of("-abcdefghi-xyxyxy-größer"), "-…-…-…");
        assert_eq!(secrets.out_of("abcdefabcdef"), "……");
        assert_eq!(secrets.out_of("abcde"), "abcde");
    }

    #[test]
    fn short_words_are_no_secrets_unless_somebody_says_so() {
        let text = "an ant and a secret";
        let all = Secrets::of(["an", "", "secret"].map(SecretString::from));
        assert_eq!(all.out_of(text), "an ant and a …");
        assert_eq!(all.and(["ant".into(), "".into()]).out_of(text), "an … and a …");
        assert!(!format!("{all:?}").contains("secret\""), "{all:?}");
    }
}
