//! A key, as people really write it into files and variables, and the header that carries it.
//!
//! It is shown to nobody but the endpoint.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
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

    /// What must not be repeated of it, where it is long enough to be taken out of texts.
    pub fn secret(&self) -> Option<&SecretString> {
        Some(&self.secret).filter(|secret| secret.expose_secret().len() >= SHORTEST_REDACTED)
    }

    /// True for what is only a word in the place of a key.
    pub fn is_word(&self) -> bool {
        let secret = self.secret.expose_secret();
        secret.len() <= LONGEST_WORD && !secret.bytes().any(|byte| byte.is_ascii_digit())
    }

    /// True for a JWT whose `exp` is past: it says itself why it is refused.
    pub fn is_over(&self, now: DateTime<Utc>) -> bool {
        let mut parts = self.secret.expose_secret().split('.');
        let (Some(_), Some(claims), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return false;
        };
        let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok();
        let claims = claims.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let until = claims.and_then(|claims: Value| claims["exp"].as_f64());
        until.is_some_and(|until| until <= now.timestamp() as f64)
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
    fn words_that_stand_for_no_key_are_told_from_keys() {
        let key = |secret: &str| key(secret, "openai").expect(secret).expect("a key");
        for secret in ["sk-1234567890abcdef", "pass42word", "correct-horse-battery"] {
            assert!(!key(secret).is_word() && key(secret).secret().is_some(), "{secret}");
        }
        for word in ["ollama", "EMPTY", "not-needed"] {
            assert!(key(word).is_word() && key(word).secret().is_some(), "{word}");
        }
        assert!(key("k42").secret().is_none());
    }

    #[test]
    fn a_jwt_says_itself_when_it_is_over() {
        let now = DateTime::from_timestamp(1_700_000_000, 0).expect("a time");
        let of = |text: &str| key(text, "openai").expect(text).expect("a key").is_over(now);
        // {"sub":"ü?>","exp":1600000000} and {"exp":1800000000}.
        assert!(of("eyJhbGciOiJub25lIn0.eyJzdWIiOiLDvD8-IiwiZXhwIjoxNjAwMDAwMDAwfQ.c2ln"));
        assert!(!of("eyJhbGciOiJub25lIn0.eyJleHAiOjE4MDAwMDAwMDB9.c2ln"));
        for other in ["sk-1234567890", "a.b.c", "a.b", "a.eyJleHAiOjE2MDAwMDAwMDB9.c.d", "a.!.c"] {
            assert!(!of(other), "{other}");
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
        assert_eq!(user.secret().map(ExposeSecret::expose_secret), Some("hunter@2"));
        assert!(Key::of_user(&url("https://h")).is_none());
    }
}
