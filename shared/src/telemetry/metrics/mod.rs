//! Every measurement, one function each; `/metrics` and OTLP read the same instruments.
//!
//! The Prometheus page comes from the SDK's own exporter crate rather than from a second registry,
//! so a measurement is named and counted once. Attributes are words of small sets: never a task id,
//! and a task type or a model only if it is configured ([`known_task_types`], [`known_models`]),
//! because payloads and forged messages must not create series. GenAI metrics go out under both generations of names.

mod instruments;
mod labels;

use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::TextEncoder;

use instruments::Instruments;

pub use labels::{known_models, known_task_types};
use labels::{of_answerer, of_method, of_model, of_type, with_error};

use super::names::{self, belfry, db, gen_ai, messaging};
use super::spans::{ChatAnswer, Server};

static REGISTRY: LazyLock<prometheus::Registry> = LazyLock::new(prometheus::Registry::new);
static INSTRUMENTS: OnceLock<Instruments> = OnceLock::new();

/// Where the meter provider puts what `/metrics` shows.
pub(super) fn registry() -> &'static prometheus::Registry {
    &REGISTRY
}

/// Makes the instruments of the process.
pub(super) fn start(provider: &SdkMeterProvider) {
    let _ = INSTRUMENTS.set(Instruments::new(&provider.meter(super::SCOPE)));
}

/// The instruments; before [`start`], some that nobody reads.
fn instruments() -> &'static Instruments {
    static UNREAD: LazyLock<Instruments> =
        LazyLock::new(|| Instruments::new(&SdkMeterProvider::default().meter(super::SCOPE)));
    INSTRUMENTS.get().unwrap_or_else(|| &UNREAD)
}

/// The page `/metrics`, in Prometheus's text format.
pub fn render() -> Result<String, prometheus::Error> {
    TextEncoder::new().encode_to_string(&REGISTRY.gather())
}

/// How an attempt ended: `outcome` is completed, retry, snooze, dead, cancelled or fenced.
pub fn attempt_ended(task_type: &str, outcome: &'static str, error_class: Option<&str>) {
    let attributes = with_error(vec![of_type(task_type), outcome_is(outcome)], error_class);
    instruments().attempts.add(1, &attributes);
}

/// From due to claimed.
pub fn queue_wait(task_type: &str, waited: Duration) {
    instruments().queue_wait.record(waited.as_secs_f64(), &[of_type(task_type)]);
}

/// Slots of a pool that are at work, and how many there are.
pub fn slots(pool: &str, busy: u64, all: u64) {
    let pool = KeyValue::new(belfry::POOL, pool.to_owned());
    instruments().slots_busy.record(busy, std::slice::from_ref(&pool));
    instruments().slots.record(all, &[pool]);
}

/// Slots whose handler was stopped and does not end.
pub fn slots_lost(pool: &str, lost: u64) {
    instruments().slots_lost.record(lost, &[KeyValue::new(belfry::POOL, pool.to_owned())]);
}

/// A message published, or not: `error_type` as on the span.
pub fn message_sent(destination: &str, took: Duration, error_type: Option<&str>) {
    let attributes = with_error(of_destination(destination, "publish"), error_type);
    instruments().sent.add(1, &attributes);
    instruments().operation_duration.record(took.as_secs_f64(), &attributes);
}

/// A delivery received.
pub fn message_consumed(queue: &str) {
    instruments().consumed.add(1, &of_destination(queue, "process"));
}

/// A delivery handled, from receipt to settlement.
pub fn message_processed(queue: &str, took: Duration, error_type: Option<&str>) {
    let attributes = with_error(of_destination(queue, "process"), error_type);
    instruments().process_duration.record(took.as_secs_f64(), &attributes);
}

/// A message that points to nothing we run: `reason` is a word of a small set.
pub fn message_rejected(reason: &'static str) {
    instruments().rejected.add(1, &[KeyValue::new("reason", reason)]);
}

/// A tick decided: `outcome` as in its row; `lag` is how late it was.
pub fn ticked(schedule: &str, outcome: &'static str, lag: Duration) {
    let schedule = KeyValue::new(belfry::SCHEDULE, schedule.to_owned());
    instruments().tick_lag.record(lag.as_secs_f64(), std::slice::from_ref(&schedule));
    instruments().ticks.add(1, &[schedule, KeyValue::new(belfry::TICK_OUTCOME, outcome)]);
}

/// 1 on the producer that ticks.
pub fn leading(leads: bool) {
    instruments().leader.record(u64::from(leads), &[]);
}

/// Tasks given back: `reason` is rescue, deadline, audit or lost_message.
pub fn given_back(reason: &'static str, tasks: u64) {
    instruments().given_back.add(tasks, &[KeyValue::new("reason", reason)]);
}

/// A write that came too late and was refused.
pub fn fenced(task_type: &str) {
    instruments().fenced.add(1, &[of_type(task_type)]);
}

/// Dead letters that nobody has claimed.
pub fn dead_letters(unclaimed: u64) {
    instruments().dead_letters.record(unclaimed, &[]);
}

/// One physical HTTP request.
pub fn http_request(method: &str, took: Duration, error_type: Option<&str>) {
    let attributes = with_error(vec![of_method(method)], error_type);
    instruments().http_duration.record(took.as_secs_f64(), &attributes);
}

/// One query of a named source.
pub fn db_query(source: &str, took: Duration, error_type: Option<&str>) {
    let attributes = vec![
        KeyValue::new(db::SYSTEM, db::POSTGRESQL),
        KeyValue::new(db::NAMESPACE, source.to_owned()),
    ];
    instruments().db_duration.record(took.as_secs_f64(), &with_error(attributes, error_type));
}

/// A wait for a model's quota.
pub fn quota_wait(model: &str, waited: Duration) {
    instruments().quota_wait.record(waited.as_secs_f64(), &[of_model(model)]);
}

/// A call that a quota or budget refused.
pub fn quota_denied(model: &str, reason: &'static str) {
    let reason = KeyValue::new(belfry::QUOTA_REASON, reason);
    instruments().quota_denied.add(1, &[of_model(model), reason]);
}

/// An answer taken from the store instead of being paid again.
pub fn chat_reused(model: &str) {
    instruments().chat_reused.add(1, &[of_model(model)]);
}

/// A finished model call, answered or not.
#[derive(Clone, Copy, Debug)]
pub struct ChatMeasures<'a> {
    /// Model asked for.
    pub model: &'a str,
    /// As on the span.
    pub provider: &'a str,
    /// Where.
    pub server: Option<Server<'a>>,
    /// With its repeats.
    pub took: Duration,
    /// What came back, if anything: its tokens count even when the call failed.
    pub answer: Option<&'a ChatAnswer>,
    /// As on the span.
    pub error_type: Option<&'a str>,
}

/// A model call ended. Tokens that no provider reported count as 0, so that failures keep a series.
pub fn chat_ended(call: &ChatMeasures<'_>) {
    let all = instruments();
    let empty = ChatAnswer::default();
    let answer = call.answer.unwrap_or(&empty);
    let mut base = vec![
        KeyValue::new(gen_ai::OPERATION, "chat"),
        KeyValue::new(gen_ai::PROVIDER, call.provider.to_owned()),
        of_model(call.model),
    ];
    if let Some(model) = &answer.model {
        base.push(of_answerer(call.model, model));
    }
    if let Some(server) = call.server {
        base.push(KeyValue::new(names::SERVER_ADDRESS, server.host.to_owned()));
        base.push(KeyValue::new(names::SERVER_PORT, i64::from(server.port)));
    }
    let base = with_error(base, call.error_type);

    for duration in &all.chat_duration {
        duration.record(call.took.as_secs_f64(), &base);
    }
    if let Some(first) = answer.first_chunk {
        all.first_chunk.record(first.as_secs_f64(), &base);
        for gap in &answer.chunk_gaps {
            all.chunk_gap.record(gap.as_secs_f64(), &base);
        }
    }
    let with = |extra: KeyValue| base.iter().cloned().chain([extra]).collect::<Vec<_>>();
    let known = answer.input_tokens.is_some() || answer.output_tokens.is_some();
    let modality = KeyValue::new(gen_ai::TOKEN_MODALITY, if known { "text" } else { "unknown" });
    let counted = [
        (&all.input_tokens, Some(answer.input_tokens.unwrap_or(0))),
        (&all.output_tokens, Some(answer.output_tokens.unwrap_or(0))),
        (&all.cache_read_tokens, answer.cache_read_tokens),
        (&all.cache_write_tokens, answer.cache_write_tokens),
        (&all.reasoning_tokens, answer.reasoning_tokens),
    ];
    for (counter, tokens) in counted {
        if let Some(tokens) = tokens {
            counter.add(tokens, &with(modality.clone()));
        }
    }
    for (kind, tokens) in [("input", answer.input_tokens), ("output", answer.output_tokens)] {
        if let Some(tokens) = tokens {
            all.token_usage.record(tokens, &with(KeyValue::new(gen_ai::TOKEN_TYPE, kind)));
        }
    }
    if let Some(cost) = answer.cost_usd {
        all.cost.add(cost, &base);
    }
}

fn outcome_is(outcome: &'static str) -> KeyValue {
    KeyValue::new(belfry::OUTCOME, outcome)
}

fn of_destination(destination: &str, operation: &'static str) -> Vec<KeyValue> {
    vec![
        KeyValue::new(messaging::SYSTEM, messaging::RABBITMQ),
        KeyValue::new(messaging::OPERATION_NAME, operation),
        KeyValue::new(messaging::DESTINATION, destination.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the instruments belong to the process.
    #[test]
    fn the_page_shows_what_was_measured_under_known_types_only() {
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry().clone())
            .scope_info_enabled(false)
            .build()
            .expect("reader");
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        start(&provider);
        known_task_types(["http_call".to_owned()]);
        known_models(["m".to_owned()]);

        attempt_ended("http_call", "completed", None);
        for n in 0..1000 {
            attempt_ended(&format!("forged_{n}"), "dead", Some("invalid"));
        }
        queue_wait("http_call", Duration::from_millis(20));
        dead_letters(3);
        let answer = ChatAnswer {
            input_tokens: Some(5),
            output_tokens: Some(7),
            cost_usd: Some(0.25),
            ..ChatAnswer::default()
        };
        let call = ChatMeasures {
            model: "m",
            provider: "openai",
            server: None,
            took: Duration::from_secs(100),
            answer: Some(&answer),
            error_type: None,
        };
        chat_ended(&call);
        chat_ended(&ChatMeasures { answer: None, error_type: Some("timeout"), ..call });

        forge(&call, &answer);

        let page = render().expect("page");
        let value = |start: &str, parts: &[&str]| {
            let mut lines = page.lines().filter(|line| line.starts_with(start));
            lines
                .find(|line| parts.iter().all(|part| line.contains(part)))
                .and_then(|line| line.rsplit(' ').next())
                .map(str::to_owned)
        };
        assert_eq!(page.matches("belfry_task_attempts_total{").count(), 2, "{page}");
        assert_eq!(
            value("belfry_task_attempts_total", &["other", "invalid"]).as_deref(),
            Some("1000")
        );
        assert_eq!(
            value("belfry_task_queue_wait_seconds_count", &["http_call"]).as_deref(),
            Some("1")
        );
        assert_eq!(value("belfry_dead_letters", &[]).as_deref(), Some("3"));
        let cost = value("belfry_llm_cost_total", &["request_model=\"m\""]);
        assert!(cost.is_some_and(|cost| cost.parse::<f64>().is_ok_and(|it| it >= 0.25)));
        for generation in ["inference", "operation"] {
            let name = format!("gen_ai_client_{generation}_duration_seconds_bucket");
            assert_eq!(value(&name, &["163.84"]).as_deref(), Some("1"), "{name} {page}");
        }
        let tokens = "gen_ai_client_inference_usage_input_tokens";
        assert_eq!(value(tokens, &["text"]).as_deref(), Some("5"), "{page}");
        assert_eq!(value(tokens, &["timeout", "unknown"]).as_deref(), Some("0"), "{page}");
        // One of each histogram's series; other words are counted, and together.
        let series = |name: &str| {
            page.lines().filter(|line| line.starts_with(name) && !line.contains("_bucket{")).count()
        };
        for (name, most) in [
            ("gen_ai_client_inference_duration_seconds_count{", 70),
            ("gen_ai_client_inference_usage_input_tokens", 70),
            ("belfry_quota_wait_seconds_count{", 1),
            ("http_client_request_duration_seconds_count{", 50),
            ("db_client_operation_duration_seconds_count{", 50),
        ] {
            assert!((1..=most).contains(&series(name)), "{name} {}", series(name));
        }
        let forged = ["quota_denied_total", "reused_total"];
        for name in forged {
            let lines = page.lines().filter(|line| line.contains(name) && !line.starts_with('#'));
            let lines: Vec<&str> = lines.collect();
            assert!(lines.len() == 1 && lines[0].contains("\"other\""), "{name}: {lines:?}");
        }
        assert!(!page.contains("rand-"), "a payload's model is a label");
    }

    /// Names as payloads and servers make them up.
    fn forge(call: &ChatMeasures<'_>, answer: &ChatAnswer) {
        for n in 0..1000 {
            let name = format!("rand-{n}");
            let status = n.to_string();
            let answer = ChatAnswer { model: Some(name.clone()), ..answer.clone() };
            chat_ended(&ChatMeasures { model: &name, answer: Some(&answer), ..*call });
            let dated = ChatAnswer { model: Some(format!("m-{n}")), ..answer.clone() };
            chat_ended(&ChatMeasures { answer: Some(&dated), ..*call });
            chat_ended(&ChatMeasures { answer: None, error_type: Some(&status), ..*call });
            quota_wait(&name, Duration::ZERO);
            quota_denied(&name, "daily_cost");
            chat_reused(&name);
            http_request(&name, Duration::ZERO, Some(&status));
            db_query("s", Duration::ZERO, Some(&status));
        }
    }
}
