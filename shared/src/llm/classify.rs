//! From a status, a body and headers to an error: the whole table, pure.

use std::time::Duration;

use super::body::ErrorBody;
use super::endpoint::Endpoint;
use super::error::LlmError;

/// Words for "pay first": the account's limit, not a rate.
const OUT_OF_QUOTA: [&str; 12] = [
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
    "reached your specified api usage limits",
    "credit balance is too low",
];
/// Words for "larger than anything I ever take".
const TOO_LARGE: [&str; 4] = [
    "context_length_exceeded",
    "request too large for",
    "request_too_large",
    "maximum context length",
];
/// Words of content filters.
const FILTERED: [&str; 5] = [
    "content_filter",
    "responsibleaipolicyviolation",
    "content_policy_violation",
    "moderation",
    "flagged",
];
/// Codes for "no such model".
const NO_MODEL: [&str; 2] = ["model_not_found", "DeploymentNotFound"];
/// Words about a model, or Azure's deployment, that is not there.
const ABSENT: [&str; 7] = [
    "not found",
    "not exist",
    "not a valid model",
    "invalid model",
    "unknown model",
    "no such model",
    "not have access to model",
];
/// Words for a token that was good once.
const EXPIRED: [&str; 4] =
    ["token_expired", "ExpiredAuthenticationToken", "expired token", "has expired"];
/// Words of a gateway that gave up on the model behind it.
const GAVE_UP: [&str; 3] = ["Timeout", "timeout_error", "litellm.timeout"];

/// What is known of an answer that is none.
#[derive(Clone, Debug)]
pub(super) struct Seen<'a> {
    pub endpoint: &'a Endpoint,
    /// Asked for.
    pub model: &'a str,
    pub status: u16,
    pub after: Option<Duration>,
}

/// The error of a status of 300 and above.
pub(super) fn error_of(seen: &Seen<'_>, body: &ErrorBody) -> LlmError {
    let target = seen.endpoint.target();
    let message = body.message.clone();
    let (status, after) = (seen.status, seen.after);
    match status {
        // A budget or quota hides behind 400, 402, 403 and 429; 402 with a time is a wait.
        400..=499 if status != 402 && body.mentions(&OUT_OF_QUOTA) => {
            LlmError::OutOfQuota { target, message }
        }
        402 if after.is_some() => LlmError::RateLimited { target, message, after },
        402 => LlmError::OutOfQuota { target, message },
        401 | 403 if body.mentions(&EXPIRED) => {
            LlmError::Expired { target, setting: seen.endpoint.settings().api_key.clone(), message }
        }
        401 => {
            let setting = seen.endpoint.settings().api_key.clone();
            LlmError::Unauthorized { target, setting, message }
        }
        400 | 403 | 404 if no_model(body) => {
            LlmError::ModelNotFound { target, model: seen.model.to_owned(), message }
        }
        404 => LlmError::NotFound {
            url: seen.endpoint.shown(),
            status,
            setting: seen.endpoint.settings().base_url.clone(),
            message,
        },
        400 | 403 if !body.filtered.is_empty() || body.mentions(&FILTERED) => {
            LlmError::Filtered { message: filter_message(body) }
        }
        400 if limit_name(body) => LlmError::LimitName { message },
        413 => LlmError::TooLarge { message },
        400 | 429 if body.mentions(&TOO_LARGE) => LlmError::TooLarge { message },
        429 => LlmError::RateLimited { target, message, after },
        // A gateway that gave up waiting: the model behind it may have gone on.
        504 => LlmError::Unknown { cause: format!("{target} answered 504: {message}") },
        408 if body.mentions(&GAVE_UP) => {
            LlmError::Unknown { cause: format!("{target} answered 408: {message}") }
        }
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
        _ if body.mentions(&NO_MODEL) => 404,
        _ if body.mentions(&["content_filter"]) => 400,
        _ if body.mentions(&["invalid_request_error", "context_length_exceeded"]) => 400,
        _ if body.mentions(&["overloaded_error", "server_is_overloaded"]) => 503,
        _ => 502,
    };
    error_of(&Seen { status, ..seen.clone() }, body)
}

/// A 200 that cannot be read as an answer.
pub(super) fn unreadable(seen: &Seen<'_>, is_html: bool, message: String) -> LlmError {
    if is_html {
        let setting = seen.endpoint.settings().base_url.clone();
        return LlmError::NotAnApi { url: seen.endpoint.shown(), setting, message };
    }
    LlmError::Malformed { target: seen.endpoint.target(), message }
}

fn no_model(body: &ErrorBody) -> bool {
    let message = body.message.to_ascii_lowercase();
    let about = message.contains("model") || message.contains("deployment");
    NO_MODEL.iter().any(|code| body.code == *code || body.kind == *code)
        || about && ABSENT.iter().any(|word| message.contains(word))
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
    use secrecy::SecretString;
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::outcome::TaskError;
    use crate::llm::endpoint::Settings;
    use crate::llm::error::StandIn;

    fn endpoint() -> Endpoint {
        let base = SecretString::from("http://h:1".to_owned());
        Endpoint::new(&base, None, Settings::default_endpoint()).expect("an endpoint")
    }

    /// What becomes of the task (`U` behind it where the call may be billed), the error's type, and
    /// when another model may stand in.
    fn fate(error: LlmError) -> String {
        let kind = error.error_type();
        let stand_in = match error.stand_in() {
            StandIn::Never => "",
            StandIn::AtOnce => " | stand in",
            StandIn::AfterRetries => " | stand in later",
        };
        let unknown = if error.outcome_unknown() { " U" } else { "" };
        let once = if error.again_at_most().is_some() { " once" } else { "" };
        let fate = match TaskError::from(error) {
            TaskError::Retry { after: Some(_), .. } => "retry after",
            TaskError::Retry { .. } => "retry",
            TaskError::Permanent(_) => "dead",
            TaskError::Snooze { .. } => "snooze",
            TaskError::Cancelled => "cancelled",
        };
        format!("{fate}{once}{unknown}: {kind}{stand_in}")
    }

    fn seen(endpoint: &Endpoint, status: u16, after: Option<u64>) -> Seen<'_> {
        Seen { endpoint, model: "m", status, after: after.map(Duration::from_secs) }
    }

    #[track_caller]
    fn row(status: u16, after: Option<u64>, body: &Value, expected: &str) {
        let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        let error = error_of(&seen(&endpoint(), status, after), &ErrorBody::of(text.as_bytes()));
        assert_eq!(fate(error), expected, "{status} {body}");
    }

    fn error(kind: &str, code: &str, message: &str) -> Value {
        json!({"error": {"type": kind, "code": code, "message": message, "param": null}})
    }

    /// The table of statuses and codes, each row in its provider's own words.
    #[test]
    fn every_status_and_code_has_its_fate() {
        let refused = "invalid_request_error";
        // 3xx that nobody follows, 400.
        row(304, None, &json!(""), "dead: 304");
        row(400, None, &error(refused, "", "bad"), "dead: 400");
        row(400, None, &error("BadRequestError", "400", "bad"), "dead: 400");
        row(400, None, &error(refused, "unsupported_parameter", "no logprobs"), "dead: 400");
        row(
            400,
            None,
            &error(refused, "context_length_exceeded", "m"),
            "dead: context_length_exceeded",
        );
        let azure = json!({"error": {"message": "filtered", "type": null, "param": "prompt",
            "code": "content_filter", "status": 400, "innererror": {"code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {"hate": {"filtered": true, "severity": "high"}}}}});
        row(400, None, &azure, "dead: content_filter | stand in");
        let anthropic = |message: &str| json!({"type": "error", "error": {"type": refused, "message": message}, "request_id": "r"});
        row(400, None, &anthropic("Workspace spend limit reached"), "dead: insufficient_quota");
        row(400, None, &anthropic("Your credit balance is too low"), "dead: insufficient_quota");
        let budget = "Budget has been exceeded! Current cost: 1.2, Max budget: 1.0";
        row(400, None, &error("budget_exceeded", "400", budget), "dead: insufficient_quota");
        row(400, None, &error(refused, "", "Model Not Exist"), "dead: model_not_found | stand in");
        row(
            400,
            None,
            &json!({"error": {"code": 400, "message": "x/y is not a valid model ID"}}),
            "dead: model_not_found | stand in",
        );
        // 401.
        row(
            401,
            None,
            &error(refused, "invalid_api_key", "Incorrect API key"),
            "dead: invalid_api_key",
        );
        row(401, None, &anthropic("invalid x-api-key"), "dead: invalid_api_key");
        row(401, None, &anthropic("OAuth token has expired"), "dead: token_expired");
        row(401, None, &json!({"detail": "Unauthorized"}), "dead: invalid_api_key");
        // 402.
        row(
            402,
            None,
            &error("unknown_error", "invalid_request_error", "Insufficient Balance"),
            "dead: insufficient_quota",
        );
        row(
            402,
            None,
            &json!({"error": {"code": 402, "message": "weight_exceeds_budget"}}),
            "dead: insufficient_quota",
        );
        let in_flight = json!({"error": {"code": 402, "message": "in_flight_budget_exhausted",
            "metadata": {"limit_source": "openrouter_in_flight_budget"}}});
        row(402, Some(5), &in_flight, "snooze: rate_limit_exceeded");
        row(402, None, &in_flight, "dead: insufficient_quota");
        // 403.
        row(
            403,
            None,
            &error("", "unsupported_country_region_territory", "Country not supported"),
            "dead: 403",
        );
        row(
            403,
            None,
            &json!({"error": {"code": 403, "message": "your input was flagged"}}),
            "dead: content_filter | stand in",
        );
        row(
            403,
            None,
            &error(refused, "model_not_found", "no access"),
            "dead: model_not_found | stand in",
        );
        // 404.
        row(404, None, &error(refused, "model_not_found", "m"), "dead: model_not_found | stand in");
        row(
            404,
            None,
            &error("", "DeploymentNotFound", "The API deployment does not exist"),
            "dead: model_not_found | stand in",
        );
        row(
            404,
            None,
            &json!({"error": "model 'm' not found"}),
            "dead: model_not_found | stand in",
        );
        row(404, None, &error("", "404", "Resource not found"), "dead: 404");
        row(404, None, &json!("404 page not found"), "dead: 404");
        row(404, None, &json!("<html><body>Not Found</body></html>"), "dead: 404");
        row(404, None, &json!({"detail": "Not Found"}), "dead: 404");
        // 408 to 425.
        row(408, None, &json!(""), "retry: 408 | stand in later");
        row(
            408,
            None,
            &error("Timeout", "408", "litellm.Timeout: APITimeoutError"),
            "retry U: unknown_outcome",
        );
        row(409, None, &error("", "conflict", "locked"), "retry: 409 | stand in later");
        row(413, None, &error("request_too_large", "", "m"), "dead: context_length_exceeded");
        row(422, None, &error("UnprocessableEntityError", "422", "m"), "dead: 422");
        row(424, None, &json!(""), "retry once: 424 | stand in later");
        row(425, None, &json!(""), "retry once: 425 | stand in later");
        // 429.
        row(
            429,
            Some(3),
            &error("requests", "rate_limit_exceeded", "m"),
            "snooze: rate_limit_exceeded",
        );
        row(429, None, &anthropic("slow").clone(), "snooze: rate_limit_exceeded");
        row(
            429,
            Some(3),
            &error("", "429", "Rate limit is exceeded. Try again in 3 seconds."),
            "snooze: rate_limit_exceeded",
        );
        row(429, Some(3600), &error("", "", "tokens per day"), "snooze: rate_limit_exceeded");
        for code in [
            "credit_balance_exhausted",
            "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded",
            "organization_usage_limit_exceeded",
        ] {
            row(429, Some(3), &error("insufficient_quota", code, "m"), "dead: insufficient_quota");
        }
        let enforced = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "m",
            "details": {"error_code": "enforced_spend_limit_reached"}}});
        row(429, None, &enforced, "dead: insufficient_quota");
        row(
            429,
            None,
            &error(
                "tokens",
                "rate_limit_exceeded",
                "Request too large for gpt-4o on tokens per min",
            ),
            "dead: context_length_exceeded",
        );
        // 5xx.
        row(500, None, &error("server_error", "", "m"), "retry: 500 | stand in later");
        row(502, None, &json!("<html>Bad Gateway</html>"), "retry: 502 | stand in later");
        row(
            502,
            Some(2),
            &json!({"error": {"code": 502, "message": "model down"}}),
            "retry after: 502 | stand in later",
        );
        row(503, None, &error("", "server_is_overloaded", "m"), "retry: 503 | stand in later");
        row(
            503,
            Some(2),
            &json!({"error": "server busy, please try again.  maximum pending requests exceeded"}),
            "retry after: 503 | stand in later",
        );
        row(504, None, &json!("<html>Gateway Timeout</html>"), "retry U: unknown_outcome");
        row(
            529,
            None,
            &json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
            "retry: 529 | stand in later",
        );
    }

    #[track_caller]
    fn inside(error: &Value, expected: &str) {
        let body = ErrorBody::of_value(&json!({ "error": error, "choices": null }));
        let endpoint = endpoint();
        assert_eq!(fate(error_in_200(&seen(&endpoint, 200, None), &body)), expected, "{body:?}");
    }

    #[test]
    fn case_07_an_error_inside_a_200_has_the_fate_of_its_code() {
        inside(&json!({"code": 429, "message": "m"}), "snooze: rate_limit_exceeded");
        inside(&json!({"code": "402", "message": "m"}), "dead: insufficient_quota");
        inside(&json!({"type": "rate_limit_error", "message": "m"}), "snooze: rate_limit_exceeded");
        inside(&json!({"code": "invalid_api_key", "message": "m"}), "dead: invalid_api_key");
        inside(
            &json!({"code": "model_not_found", "message": "m"}),
            "dead: model_not_found | stand in",
        );
        inside(&json!("the model is down"), "retry: 502 | stand in later");
    }

    #[test]
    fn messages_say_what_to_do() {
        let endpoint = endpoint();
        let body = |error: Value| ErrorBody::of_value(&json!({ "error": error }));
        let say =
            |status, error| error_of(&seen(&endpoint, status, None), &body(error)).to_string();

        assert!(say(401, json!("bad key")).contains("MODEL_API_KEY"));
        assert!(say(404, json!("404 page not found")).contains("http://h:1/v1/chat/completions"));
        assert!(say(404, json!("404 page not found")).contains("MODEL_BASE_URL"));
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
