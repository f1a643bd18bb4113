//! A key, as people really write it into files and variables, and the header that carries it.
//!
//! It is shown to nobody but the endpoint.

use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::endpoint::AZURE;
use crate::http::{HeaderName, HeaderValue, RequestBuilder, header};

/// Shorter keys are not taken out of texts: they would blot out ordinary words.
const SHORTEST_REDACTED: usize = 4;
/// A shorter one without a digit is a word in the place of a key (`ollama`, `EMPTY`), where none is
/// wanted: answers may well hold it.
const LONGEST_WORD: usize = 11;
/// The end of a key is told only of longer ones.
const SHORTEST_TOLD: usize = 16;
/// How much of its end.
const TOLD: usize = 4;

/// What is shown at the door.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// What must not be repeated: the bare key, the password, or the user where there is none.
    secret: SecretString,
    shown: Shown,
}

/// How it is shown.
#[derive(Clone, Debug)]
enum Shown {
    Header(HeaderName, HeaderValue),
    /// User and password.
    Basic(SecretString, SecretString),
}

impl Key {
    /// From a configured key; `None` for one without content. The error says what is wrong with it,
    /// and never what it is.
    pub fn of(key: &SecretString, provider: &str) -> Result<Option<Self>, String> {
        let bare = bare(key.expose_secret());
        if bare.is_empty() {
            return Ok(None);
        }
        if bare.contains(['\n', '\r']) {
            return Err("contains a line break; set it to the key alone".to_owned());
        }
        if bare.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(
                "contains a blank or a control character; set it to the key alone, without \
                        the word Bearer"
                    .to_owned(),
            );
        }
        // ASCII only: a header may hold more, and no provider's key does.
        if !bare.is_ascii() {
            return Err("contains characters that are in no key; was it copied whole?".to_owned());
        }
        let (name, value) = match provider {
            AZURE => (HeaderName::from_static("api-key"), HeaderValue::from_str(bare)),
            _ => (header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {bare}"))),
        };
        let mut value = value.map_err(|_| "fits into no header".to_owned())?;
        value.set_sensitive(true);
        let secret = SecretString::from(bare.to_owned());
        Ok(Some(Self { secret, shown: Shown::Header(name, value) }))
    }

    /// User and password of an address.
    pub fn of_user(url: &Url) -> Option<Self> {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = decoded(url.username());
        let password = url.password().map(decoded).unwrap_or_default();
        let secret = if password.is_empty() { &user } else { &password };
        if secret.is_empty() {
            return None;
        }
        let secret = SecretString::from(secret.clone());
        Some(Self { secret, shown: Shown::Basic(user.into(), password.into()) })
    }

    /// A request that shows it.
    pub fn on(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.shown {
            Shown::Header(name, value) => request.header(name, value),
            Shown::Basic(user, password) => {
                request.basic_auth(user.expose_secret(), Some(password.expose_secret()))
            }
        }
    }

    /// A text without it.
    pub fn redact(&self, text: &str) -> String {
        let secret = self.secret.expose_secret();
        if secret.len() < SHORTEST_REDACTED { text.to_owned() } else { text.replace(secret, "…") }
    }

    /// An answer without it. What is only a word in the place of a key stays.
    pub fn redact_answer(&self, text: &str) -> String {
        let secret = self.secret.expose_secret();
        let is_word =
            secret.len() <= LONGEST_WORD && !secret.bytes().any(|byte| byte.is_ascii_digit());
        if is_word { text.to_owned() } else { self.redact(text) }
    }

    /// Its last characters, if it is long enough.
    pub fn ending(&self) -> Option<String> {
        let secret = self.secret.expose_secret();
        let at = secret.len().checked_sub(TOLD).filter(|_| secret.len() >= SHORTEST_TOLD)?;
        secret.get(at..).map(|end| format!("…{end}"))
    }
}

/// A key without what files and shells put around it: blanks, line ends, a byte order mark, quotes.
fn bare(text: &str) -> &str {
    let mut text = text.trim_start_matches('\u{feff}').trim();
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            text = inner.trim();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str, provider: &str) -> Result<Option<Key>, String> {
        Key::of(&SecretString::from(text.to_owned()), provider)
    }

    #[track_caller]
    fn shown(key: &Key) -> (String, String) {
        match &key.shown {
            Shown::Header(name, value) => {
                (name.to_string(), value.to_str().expect("text").to_owned())
            }
            Shown::Basic(user, _) => ("basic".to_owned(), user.expose_secret().to_owned()),
        }
    }

    #[test]
    fn case_18_a_key_is_taken_out_of_what_files_put_around_it() {
        for text in [
            "sk-1234567890abcdef",
            " sk-1234567890abcdef\n",
            "sk-1234567890abcdef\r\n",
            "\u{feff}sk-1234567890abcdef",
            "\"sk-1234567890abcdef\"",
            "'sk-1234567890abcdef'\n",
        ] {
            let key = key(text, "openai").expect(text).expect("a key");
            let bearer = "Bearer sk-1234567890abcdef".to_owned();
            assert_eq!(shown(&key), ("authorization".to_owned(), bearer));
            assert!(!format!("{key:?}").contains("1234567890"), "{key:?}");
            assert_eq!(key.ending().as_deref(), Some("…cdef"));
        }
        for nothing in ["", "  \n", "\"\"", "\u{feff}"] {
            assert!(key(nothing, "openai").expect("nothing").is_none(), "{nothing:?}");
        }
    }

    #[test]
    fn case_18_a_key_that_cannot_be_one_says_why_and_not_what_it_is() {
        for (text, why) in [
            ("hunter2\nhunter2", "line break"),
            ("Bearer hunter2", "the word Bearer"),
            ("hunter\u{7}2", "control"),
            ("hünter2hunter2", "in no key"),
        ] {
            let said = key(text, "openai").expect_err(text);
            assert!(said.contains(why) && !said.contains("nter2"), "{said}");
        }
    }

    #[test]
    fn an_answer_loses_the_key_and_keeps_the_words_that_stand_for_none() {
        let left = |secret: &str| {
            let key = key(secret, "openai").expect(secret).expect("a key");
            key.redact_answer(&format!("Bearer {secret}."))
        };
        for secret in ["sk-1234567890abcdef", "pass42word", "correct-horse-battery"] {
            assert_eq!(left(secret), "Bearer ….");
        }
        for word in ["ollama", "EMPTY", "not-needed"] {
            assert_eq!(left(word), format!("Bearer {word}."));
        }
    }

    #[test]
    fn azure_has_a_header_of_its_own_and_an_address_its_user() {
        let azure = key("k", AZURE).expect("ok").expect("a key");
        assert_eq!(shown(&azure), ("api-key".to_owned(), "k".to_owned()));
        assert_eq!(key("short", "openai").expect("ok").expect("a key").ending(), None);

        let url = |text| Url::parse(text).expect("a URL");
        let user = Key::of_user(&url("https://me:hunter%402@h")).expect("a user");
        assert_eq!(shown(&user).1, "me");
        assert_eq!(user.redact("hunter@2!"), "…!");
        assert!(Key::of_user(&url("https://h")).is_none());
    }
}
