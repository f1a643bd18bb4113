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
        TaskError::HandOver(_) => "hand over",
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

// The table of statuses and codes, each row in its provider's own words.

/// The type that several providers give to whatever is wrong with a request.
const REFUSED: &str = "invalid_request_error";

fn anthropic(message: &str) -> Value {
    json!({"type": "error", "error": {"type": REFUSED, "message": message}, "request_id": "r"})
}

#[test]
fn a_400_is_the_request_the_filter_the_budget_or_the_model() {
    // 3xx that nobody follows.
    row(304, None, &json!(""), "dead: 304");
    row(400, None, &error(REFUSED, "", "bad"), "dead: 400");
    row(400, None, &error("BadRequestError", "400", "bad"), "dead: 400");
    row(400, None, &error(REFUSED, "unsupported_parameter", "no logprobs"), "dead: 400");
    row(
        400,
        None,
        &error(REFUSED, "context_length_exceeded", "m"),
        "dead: context_length_exceeded",
    );
    let azure = json!({"error": {"message": "filtered", "type": null, "param": "prompt",
        "code": "content_filter", "status": 400, "innererror": {"code": "ResponsibleAIPolicyViolation",
        "content_filter_result": {"hate": {"filtered": true, "severity": "high"}}}}});
    row(400, None, &azure, "dead: content_filter | stand in");
    row(400, None, &anthropic("Workspace spend limit reached"), "dead: insufficient_quota");
    row(400, None, &anthropic("Your credit balance is too low"), "dead: insufficient_quota");
    let budget = "Budget has been exceeded! Current cost: 1.2, Max budget: 1.0";
    row(400, None, &error("budget_exceeded", "400", budget), "dead: insufficient_quota");
    row(400, None, &error(REFUSED, "", "Model Not Exist"), "dead: model_not_found | stand in");
    row(
        400,
        None,
        &json!({"error": {"code": 400, "message": "x/y is not a valid model ID"}}),
        "dead: model_not_found | stand in",
    );
}

#[test]
fn a_401_is_the_key() {
    row(
        401,
        None,
        &error(REFUSED, "invalid_api_key", "Incorrect API key"),
        "dead: invalid_api_key",
    );
    row(401, None, &anthropic("invalid x-api-key"), "dead: invalid_api_key");
    row(401, None, &anthropic("OAuth token has expired"), "dead: token_expired");
    row(401, None, &json!({"detail": "Unauthorized"}), "dead: invalid_api_key");
    row(401, None, &json!({"detail": "JWT expired"}), "dead: token_expired");
    row(401, None, &error("", "invalid_token", "Token is expired"), "dead: token_expired");
    let oauth = json!({"error": "invalid_token", "error_description": "The access token expired"});
    row(401, None, &oauth, "dead: token_expired");
    row(401, None, &json!("Invalid or expired token"), "dead: invalid_api_key");
    let aws = "The security token included in the request is expired";
    row(403, None, &json!({"message": aws}), "dead: token_expired");
    row(403, None, &error("", "invalid_token", "token expired"), "dead: token_expired");
    for status in [400, 403] {
        let body = json!({"__type": "com.amazon#ExpiredTokenException", "message": "m"});
        row(status, None, &body, "dead: token_expired");
    }
    row(400, None, &error(REFUSED, "", "the token of the file has expired"), "dead: 400");
}

#[test]
fn a_jwt_that_is_over_is_the_token_whatever_the_401_says() {
    let base = SecretString::from("http://h:1".to_owned());
    // {"exp":1600000000}
    let jwt = SecretString::from("a.eyJleHAiOjE2MDAwMDAwMDB9.c".to_owned());
    let endpoint = Endpoint::new(&base, Some(&jwt), Settings::default_endpoint()).expect("ok");
    let of = |status| {
        let body = ErrorBody { message: "Unauthorized".to_owned(), ..ErrorBody::default() };
        fate(error_of(&seen(&endpoint, status, None), &body))
    };
    assert_eq!(of(401), "dead: token_expired");
    assert_eq!(of(403), "dead: 403");
}

#[test]
fn a_402_is_the_account_unless_it_names_a_time() {
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
}

#[test]
fn a_403_or_404_is_the_place_the_model_or_the_filter() {
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
        &error(REFUSED, "model_not_found", "no access"),
        "dead: model_not_found | stand in",
    );
    row(404, None, &error(REFUSED, "model_not_found", "m"), "dead: model_not_found | stand in");
    row(
        404,
        None,
        &error("", "DeploymentNotFound", "The API deployment does not exist"),
        "dead: model_not_found | stand in",
    );
    row(404, None, &json!({"error": "model 'm' not found"}), "dead: model_not_found | stand in");
    row(404, None, &error("", "404", "Resource not found"), "dead: 404");
    row(404, None, &json!("404 page not found"), "dead: 404");
    row(404, None, &json!("<html><body>Not Found</body></html>"), "dead: 404");
    row(404, None, &json!({"detail": "Not Found"}), "dead: 404");
}

#[test]
fn a_408_to_425_is_asked_again_where_that_can_help() {
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
}

#[test]
fn a_429_is_a_rate_or_an_empty_account() {
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
        &error("tokens", "rate_limit_exceeded", "Request too large for gpt-4o on tokens per min"),
        "dead: context_length_exceeded",
    );
}

#[test]
fn a_5xx_is_asked_again_and_a_504_may_be_billed() {
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
    inside(&json!({"code": "model_not_found", "message": "m"}), "dead: model_not_found | stand in");
    inside(&json!("the model is down"), "retry: 502 | stand in later");
}

#[test]
fn messages_say_what_to_do() {
    let endpoint = endpoint();
    let body = |error: Value| ErrorBody::of_value(&json!({ "error": error }));
    let say = |status, error| error_of(&seen(&endpoint, status, None), &body(error)).to_string();

    assert!(say(401, json!("bad key")).contains("MODEL_API_KEY"));
    assert!(say(404, json!("404 page not found")).contains("http://h:1/v1/chat/completions"));
    assert!(say(404, json!("404 page not found")).contains("MODEL_BASE_URL"));
    let unsupported = json!({"message": "Use 'max_completion_tokens' instead.",
        "param": "max_tokens", "code": "unsupported_parameter"});
    assert!(say(400, unsupported).contains("wants max_completion_tokens"));
    let param = json!({"message": "too hot", "param": "temperature"});
    assert_eq!(say(400, param), "h:1 refused the request (400, parameter temperature): too hot");
    let filter = json!({"message": "no", "code": "content_filter", "innererror": {
        "content_filter_result": {"hate": {"filtered": true}, "violence": {"filtered": false}}}});
    assert_eq!(say(400, filter), "withheld by the provider's content filter: hate (no)");
    let tpm = json!({"message": "Request too large for gpt-4o in organization o on tokens"});
    assert!(say(429, tpm).contains("waiting will not help"));
}
