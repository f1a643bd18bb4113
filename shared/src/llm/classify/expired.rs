//! Whether a provider means that a token was good once: each says it in words of its own.
//!
//! "Invalid or expired" is said of any wrong key, and so proves nothing.

use crate::llm::body::ErrorBody;

/// What expires, as providers call it.
const SUBJECTS: [&str; 9] = [
    "token",
    "jwt",
    "credential",
    "session",
    "signature",
    "key",
    "authentication",
    "authorization",
    "login",
];
/// Beside these "expired" is one guess of several.
const GUESSES: [&str; 8] =
    ["invalid", "incorrect", "wrong", "malformed", "missing", "bad", "unknown", "not"];
/// Before it these make it a doubt, or its contrary.
const DOUBTS: [&str; 8] = ["not", "may", "might", "could", "if", "whether", "unless", "isn't"];
/// How far before it the subject stands, in words: "the security token included in the request is expired".
const BEFORE: usize = 8;
/// How far behind it: "an expired access token".
const BEHIND: usize = 3;

/// True when code, type, message or challenge say that a token has expired.
pub(super) fn tells_of(body: &ErrorBody) -> bool {
    let codes = [&body.code, &body.kind];
    codes.iter().any(|code| is_code(code))
        || [&body.message, &body.challenge].iter().any(|text| {
            let about = codes.iter().any(|code| is_subject(&code.to_ascii_lowercase()));
            sentences(text).any(|sentence| says_so(&sentence, about))
        })
}

/// `token_expired`, `ExpiredTokenException`, `API_KEY_EXPIRED`.
pub(super) fn is_code(code: &str) -> bool {
    let code = code.to_ascii_lowercase();
    code == "expired" || code.contains("expired") && is_subject(&code)
}

fn is_subject(word: &str) -> bool {
    SUBJECTS.iter().any(|subject| word.contains(subject))
}

/// Words of each sentence; codes stay one word.
fn sentences(text: &str) -> impl Iterator<Item = Vec<String>> {
    let words = |sentence: &str| {
        let words = sentence.split(|c: char| !c.is_alphanumeric() && !"_-'".contains(c));
        words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect()
    };
    text.split(['\n', ';', '!']).flat_map(|line| line.split(". ")).map(words)
}

/// `about` when a code has named the subject already.
fn says_so(words: &[String], about: bool) -> bool {
    let has = |words: &[String], list: &[&str]| words.iter().any(|word| list.contains(&&**word));
    words.iter().enumerate().any(|(at, word)| {
        if is_code(word) {
            return word != "expired" || {
                let before = &words[at.saturating_sub(BEFORE)..at];
                let behind = &words[at + 1..words.len().min(at + 1 + BEHIND)];
                let near = &before[before.len().saturating_sub(3)..];
                let or = has(near, &["or"]) || has(&behind[..behind.len().min(1)], &["or"]);
                let guess = or && (has(before, &GUESSES) || has(behind, &GUESSES));
                let named = before.iter().chain(behind).any(|word| is_subject(word));
                (about || named) && !guess && !has(near, &DOUBTS)
            };
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: &str, message: &str, expected: bool) {
        let (code, message) = (code.to_owned(), message.to_owned());
        let body = ErrorBody { message, code, ..ErrorBody::default() };
        assert_eq!(tells_of(&body), expected, "{body:?}");
    }

    #[test]
    fn every_way_to_say_that_a_token_is_over() {
        for message in [
            "OAuth token has expired",
            "Token is expired",
            "token expired",
            "JWT expired",
            "Signature has expired",
            "Your session expired. Log in again.",
            "Invalid token: expired",
            "The security token included in the request is expired",
            "An expired access token was sent",
            "Your API key has expired",
            "ExpiredTokenException: log in",
            "Bearer error=\"invalid_token\", error_description=\"The access token expired\"",
        ] {
            check("", message, true);
        }
        for code in [
            "token_expired",
            "ExpiredToken",
            "ExpiredTokenException",
            "ExpiredAuthenticationToken",
            "API_KEY_EXPIRED",
            "jwt_expired",
            "expired",
        ] {
            check(code, "no", true);
        }
        check("invalid_token", "expired at 12:00", true);
    }

    #[test]
    fn what_is_said_of_any_wrong_key_is_no_proof() {
        for message in [
            "Incorrect API key provided",
            "invalid x-api-key",
            "Invalid or expired token",
            "The token is invalid or has expired",
            "Token expired or malformed",
            "Incorrect API key. It may have expired",
            "Check that your token is not expired",
            "Your trial has expired",
            "Unauthorized. Access token is missing, invalid, audience is incorrect \
             (https://cognitiveservices.azure.com), or have expired.",
        ] {
            check("", message, false);
        }
        check("invalid_api_key", "no", false);
        check("subscription_expired", "pay", false);
        check("invalid_token", "the token is unknown", false);
    }
}
