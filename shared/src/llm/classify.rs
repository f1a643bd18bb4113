//! From a status, a body and headers to an error: the whole table, pure.

use std::time::Duration;

use super::body::ErrorBody;
use super::error::LlmError;

/// Words for "pay first": the account's limit, not a rate.
const OUT_OF_QUOTA: [&str; 10] = [
    "insufficient_quota",
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "enforced_spend_limit_reached",
    "billing_error",
    "budget_exceeded",
    "budget has been exceeded",
    "spend limit reached",
];
/// Words for "larger than anything I ever take".
const TOO_LARGE: [&str; 4] = [
    "context_length_exceeded",
    "request too large for",
    "request_too_large",
    "maximum context length",
];
/// Words of content filters.
const FILTERED: [&str; 3] =
    ["content_filter", "responsibleaipolicyviolation", "content_policy_violation"];

/// What is known of an answer that is none.
#[derive(Clone, Debug)]
pub(super) struct Seen<'a> {
    /// host:port.
    pub target: &'a str,
    /// Address without query.
    pub url: &'a str,
    pub status: u16,
    pub after: Option<Duration>,
}

/// The error of a status of 300 and above.
pub(super) fn error_of(seen: &Seen<'_>, body: &ErrorBody) -> LlmError {
    let target = seen.target.to_owned();
    let message = body.message.clone();
    let (status, after) = (seen.status, seen.after);
    match status {
        // A budget or quota hides behind 400, 402, 403 and 429; 402 with a time is a wait.
        400..=499 if status != 402 && body.mentions(&OUT_OF_QUOTA) => {
            LlmError::OutOfQuota { target, message }
        }
        402 if after.is_some() => LlmError::RateLimited { target, message, after },
        402 => LlmError::OutOfQuota { target, message },
        401 => LlmError::Unauthorized { target, message },
        404 => LlmError::NotFound { url: seen.url.to_owned(), status, message },
        400 | 403 if !body.filtered.is_empty() || body.mentions(&FILTERED) => {
            LlmError::Filtered { message: filter_message(body) }
        }
        400 if limit_name(body) => LlmError::LimitName { message },
        413 => LlmError::TooLarge { message },
        400 | 429 if body.mentions(&TOO_LARGE) => LlmError::TooLarge { message },
        429 => LlmError::RateLimited { target, message, after },
        // A gateway that gave up waiting: the model behind it may have gone on.
        504 => LlmError::Unknown { cause: format!("{target} answered 504: {message}") },
        408 | 409 | 424 | 425 | 500.. => LlmError::Upstream { target, status, message, after },
        _ => {
            let param = match body.param.as_str() {
                "" => String::new(),
                param => format!(", parameter {param}"),
            };
            LlmError::Refused { target, status, param, message }
        }
    }
}

/// The error inside a 200: its own code, read as if it were the status.
pub(super) fn error_in_200(seen: &Seen<'_>, body: &ErrorBody) -> LlmError {
    let status = match body.code.parse::<u16>() {
        Ok(status @ 400..=599) => status,
        _ if body.mentions(&OUT_OF_QUOTA) => 429,
        _ if body.mentions(&["rate_limit_exceeded", "rate_limit_error"]) => 429,
        _ if body.mentions(&["invalid_api_key", "authentication_error"]) => 401,
        _ if body.mentions(&["model_not_found"]) => 404,
        _ if body.mentions(&["invalid_request_error", "context_length_exceeded"]) => 400,
        _ => 502,
    };
    error_of(&Seen { status, ..seen.clone() }, body)
}

/// A 200 that cannot be read as an answer.
pub(super) fn unreadable(seen: &Seen<'_>, is_html: bool, message: String) -> LlmError {
    if is_html {
        return LlmError::NotAnApi { url: seen.url.to_owned(), message };
    }
    LlmError::Malformed { target: seen.target.to_owned(), message }
}

fn limit_name(body: &ErrorBody) -> bool {
    let named = body.param == "max_tokens" || body.message.contains("'max_tokens'");
    named
        && (body.code == "unsupported_parameter" || body.message.contains("max_completion_tokens"))
}

fn filter_message(body: &ErrorBody) -> String {
    if body.filtered.is_empty() {
        return body.message.clone();
    }
    format!("{} ({})", body.filtered.join(", "), body.message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use crate::domain::outcome::TaskError;

    use super::*;

    /// What becomes of the task, and the error's type.
    fn fate(error: LlmError) -> String {
        let kind = error.error_type();
        let fate = match TaskError::from(error) {
            TaskError::Retry { after: Some(_), .. } => "retry later",
            TaskError::Retry { .. } => "retry",
            TaskError::Permanent(_) => "dead",
            TaskError::Snooze { .. } => "snooze",
            TaskError::Cancelled => "cancelled",
        };
        format!("{fate}: {kind}")
    }

    fn seen(status: u16, after: Option<u64>) -> Seen<'static> {
        let after = after.map(Duration::from_secs);
        Seen { target: "h:1", url: "http://h:1/v1/chat/completions", status, after }
    }

    #[track_caller]
    fn check(status: u16, after: Option<u64>, code: &str, expected: &str) {
        let body = ErrorBody::of_value(&json!({"error": {"message": "m", "code": code}}));
        assert_eq!(fate(error_of(&seen(status, after), &body)), expected, "{status} {code}");
    }

    #[test]
    fn every_status_has_its_fate() {
        check(307, None, "", "dead: 307");
        check(400, None, "invalid_request_error", "dead: 400");
        check(400, None, "context_length_exceeded", "dead: context_length_exceeded");
        check(400, None, "content_filter", "dead: content_filter");
        check(400, None, "budget_exceeded", "dead: insufficient_quota");
        check(401, None, "invalid_api_key", "dead: invalid_api_key");
        check(402, None, "payment_required", "dead: insufficient_quota");
        check(402, Some(5), "in_flight_budget_exhausted", "snooze: rate_limit_exceeded");
        check(403, None, "unsupported_country", "dead: 403");
        check(404, None, "model_not_found", "dead: 404");
        check(408, None, "", "retry: 408");
        check(409, None, "", "retry: 409");
        check(413, None, "", "dead: context_length_exceeded");
        check(422, None, "", "dead: 422");
        check(425, None, "", "retry: 425");
        check(429, Some(3), "rate_limit_exceeded", "snooze: rate_limit_exceeded");
        check(429, None, "", "snooze: rate_limit_exceeded");
        check(429, Some(3), "insufficient_quota", "dead: insufficient_quota");
        check(429, None, "enforced_spend_limit_reached", "dead: insufficient_quota");
        check(500, None, "server_error", "retry: 500");
        check(502, Some(2), "", "retry later: 502");
        check(503, None, "server_is_overloaded", "retry: 503");
        check(504, None, "", "retry: unknown_outcome");
        check(529, None, "overloaded_error", "retry: 529");
    }

    #[track_caller]
    fn inside(error: &Value, expected: &str) {
        let body = ErrorBody::of_value(&json!({ "error": error, "choices": null }));
        assert_eq!(fate(error_in_200(&seen(200, None), &body)), expected, "{body:?}");
    }

    #[test]
    fn an_error_inside_a_200_has_the_fate_of_its_code() {
        inside(&json!({"code": 429, "message": "m"}), "snooze: rate_limit_exceeded");
        inside(&json!({"code": "402", "message": "m"}), "dead: insufficient_quota");
        inside(&json!({"type": "rate_limit_error", "message": "m"}), "snooze: rate_limit_exceeded");
        inside(&json!({"code": "invalid_api_key", "message": "m"}), "dead: invalid_api_key");
        inside(&json!("the model is down"), "retry: 502");
    }

    #[test]
    fn messages_say_what_to_do() {
        let body = |error: Value| ErrorBody::of_value(&json!({ "error": error }));
        let say = |status, error| error_of(&seen(status, None), &body(error)).to_string();

        assert!(say(401, json!("bad key")).contains("MODEL_API_KEY"));
        assert!(say(404, json!("404 page not found")).contains("http://h:1/v1/chat/completions"));
        let unsupported = json!({"message": "Use 'max_completion_tokens' instead.",
            "param": "max_tokens", "code": "unsupported_parameter"});
        assert!(say(400, unsupported).contains("wants max_completion_tokens"));
        let param = json!({"message": "too hot", "param": "temperature"});
        assert_eq!(
            say(400, param),
            "h:1 refused the request (400, parameter temperature): too hot"
        );
        let filter = json!({"message": "no", "code": "content_filter", "innererror": {
            "content_filter_result": {"hate": {"filtered": true}, "violence": {"filtered": false}}}});
        assert_eq!(say(400, filter), "withheld by the provider's content filter: hate (no)");
        let tpm = json!({"message": "Request too large for gpt-4o in organization o on tokens"});
        assert!(say(429, tpm).contains("waiting will not help"));
    }
}
