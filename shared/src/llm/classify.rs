//! From a status, a body and headers to an error: the whole table, pure.

mod expired;

use std::time::Duration;

use super::body::{ErrorBody, shortened};
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
    let message = shortened(&body.message);
    let (status, after) = (seen.status, seen.after);
    match status {
        // A budget or quota hides behind 400, 402, 403 and 429; 402 with a time is a wait.
        400..=499 if status != 402 && body.mentions(&OUT_OF_QUOTA) => {
            LlmError::OutOfQuota { target, message }
        }
        402 if after.is_some() => LlmError::RateLimited { target, message, after },
        402 => LlmError::OutOfQuota { target, message },
        // A wrong request is called expired by its code alone: its words may be about a file.
        400 if expired::is_code(&body.code) || expired::is_code(&body.kind) => {
            LlmError::Expired { target, setting: seen.endpoint.settings().api_key.clone(), message }
        }
        401 | 403 if expired::tells_of(body) || status == 401 && seen.endpoint.key_is_over() => {
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
        400 if limit_name(body) => LlmError::LimitName { target, message },
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
        _ if body.mentions(&["invalid_api_key", "authentication_error", "invalid_token"]) => 401,
        _ if expired::is_code(&body.code) || expired::is_code(&body.kind) => 401,
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
    let message = shortened(&body.message);
    if body.filtered.is_empty() {
        return message;
    }
    format!("{} ({message})", body.filtered.join(", "))
}

#[cfg(test)]
mod tests;
