//! A message's properties and headers, written so that a person can read them in the UI.
//!
//! The table is always a fresh one and flat. No `x-*` header of a delivery is ever copied:
//! RabbitMQ 3.10 takes a republished `x-death` for a cycle and drops the message silently.

use std::fmt;

use chrono::{DateTime, Utc};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};

use super::declare::short;
use super::error::Error;
use crate::domain::clock;
use crate::domain::message::Message;
use crate::domain::task::Priority;

/// Longest error message in a header, in characters; the whole one is in Postgres.
pub const MAX_ERROR_CHARS: usize = 500;

/// Longest text of any header, in bytes: all of them must fit one frame of 128 KiB.
pub const MAX_HEADER_BYTES: usize = 4096;

const PERSISTENT: u8 = 2;

/// A header's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
}

/// Properties of a message that is no task message: an unreadable body, a request to the inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// `content_type`; `application/json` when absent.
    pub content_type: Option<String>,
    /// `message_id`.
    pub message_id: Option<String>,
    /// `type`.
    pub message_type: Option<String>,
    /// Headers.
    pub headers: Vec<(String, Header)>,
}

/// Properties of a task's message.
pub(super) fn of_message(message: &Message, app_id: &str) -> Result<BasicProperties, Error> {
    let mut headers = Table::default();
    headers.number("run", message.run.into());
    headers.number("failures", message.failures.into());
    headers.number("max-retry", message.max_retry.into());
    headers.text("previous-attempt", message.previous_attempt.as_deref());
    headers.text("schedule", message.schedule.as_deref());
    headers.text("scheduled-for", message.scheduled_for.map(rfc3339).as_deref());
    let failure = message.failure.as_ref();
    headers.text("error-class", failure.map(|failure| failure.class.as_str()));
    headers.text("error-message", failure.map(|failure| one_line(&failure.message)).as_deref());
    headers.text("worker", message.worker.as_deref());
    headers.text("traceparent", message.traceparent.as_deref());
    if let Some(letter) = message.dead_letter {
        headers.number("dead-letter", letter);
    }
    let basic = basic("application/json".into(), short("the app id", app_id)?, headers.0)
        .with_message_id(message.task_id.to_string().into())
        .with_type(short("the task type", &message.task_type)?);
    // Quorum queues: RabbitMQ 3 ignores it, 4.0 to 4.2 tell above 4 from the rest, and from 4.3 on
    // each number counts, none being 4.
    Ok(match message.priority {
        Priority::High => basic.with_priority(9),
        Priority::Normal => basic,
        Priority::Low => basic.with_priority(1),
    })
}

/// Properties of any other message.
pub(super) fn of_raw(properties: &Properties, app_id: &str) -> Result<BasicProperties, Error> {
    let mut headers = FieldTable::default();
    for (name, value) in &properties.headers {
        headers.insert(short("a header's name", name)?, value_of(value));
    }
    let content_type = properties.content_type.as_deref().unwrap_or("application/json");
    let mut basic =
        basic(short("the content type", content_type)?, short("the app id", app_id)?, headers);
    if let Some(id) = &properties.message_id {
        basic = basic.with_message_id(short("the message id", id)?);
    }
    if let Some(kind) = &properties.message_type {
        basic = basic.with_type(short("the message type", kind)?);
    }
    Ok(basic)
}

/// Properties of a message that is published anew, to stay what it was: its own and its headers.
///
/// Without `user_id`, under which only that user may publish, and `expiration`. Why the broker itself
/// has moved it here is said in words, where nobody has: its `x-death` cannot be copied.
pub(super) fn of_kept(old: &BasicProperties) -> BasicProperties {
    let mut headers = FieldTable::default();
    for (name, value) in old.headers().iter().flat_map(FieldTable::inner) {
        if !name.as_str().starts_with("x-") {
            headers.insert(name.clone(), value.clone());
        }
    }
    if text(old, "error-message").is_none()
        && let Some(death) = last_death(old)
    {
        headers.insert("error-message".into(), AMQPValue::LongString(cut(&death.to_string())));
    }
    let mut kept = BasicProperties::default().with_delivery_mode(PERSISTENT).with_headers(headers);
    macro_rules! keep {
        ($($get:ident => $set:ident),+) => {
            $(if let Some(value) = old.$get() {
                kept = kept.$set(value.clone());
            })+
        };
    }
    keep!(
        content_type => with_content_type, content_encoding => with_content_encoding,
        priority => with_priority, correlation_id => with_correlation_id,
        reply_to => with_reply_to, message_id => with_message_id, timestamp => with_timestamp,
        kind => with_type, app_id => with_app_id
    );
    kept
}

/// Why and from where the broker itself moved a message, the last time that it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// `rejected`, `expired`, `maxlen` or `delivery_limit`.
    pub reason: String,
    /// The queue that it left.
    pub queue: String,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "moved here by RabbitMQ from {}: {}", self.queue, self.reason)
    }
}

/// The newest entry of `x-death`, which stands first; what came by the delay queues has older ones.
pub(super) fn last_death(properties: &BasicProperties) -> Option<Death> {
    let AMQPValue::FieldArray(deaths) = find(properties, "x-death")? else { return None };
    let AMQPValue::FieldTable(last) = deaths.as_slice().first()? else { return None };
    let part = |name: &str| as_text(last.inner().get(name)?).map(str::to_owned);
    Some(Death { reason: part("reason")?, queue: part("queue")? })
}

/// The message of a letter: its own properties and headers, and the letter's number.
pub(super) fn of_letter(old: &BasicProperties, letter: i64) -> BasicProperties {
    let kept = of_kept(old);
    let mut headers = kept.headers().clone().unwrap_or_default();
    headers.insert("dead-letter".into(), AMQPValue::LongLongInt(letter));
    kept.with_headers(headers)
}

/// At most [`MAX_ERROR_CHARS`] characters on one line, and none that a terminal obeys.
pub fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = words.replace(char::is_control, "\u{fffd}");
    match words.char_indices().nth(MAX_ERROR_CHARS) {
        Some((_, _)) => words.chars().take(MAX_ERROR_CHARS - 1).chain(['…']).collect(),
        None => words,
    }
}

/// Reads a header that is a text.
pub(super) fn text<'a>(properties: &'a BasicProperties, name: &str) -> Option<&'a str> {
    as_text(find(properties, name)?)
}

fn as_text(value: &AMQPValue) -> Option<&str> {
    match value {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok(),
        AMQPValue::ShortString(text) => Some(text.as_str()),
        _ => None,
    }
}

/// Reads a header that is a number, or a text that is one: the UI's form sends texts.
pub(super) fn number(properties: &BasicProperties, name: &str) -> Option<i64> {
    match find(properties, name)? {
        AMQPValue::ShortShortInt(n) => Some((*n).into()),
        AMQPValue::ShortShortUInt(n) => Some((*n).into()),
        AMQPValue::ShortInt(n) => Some((*n).into()),
        AMQPValue::ShortUInt(n) => Some((*n).into()),
        AMQPValue::LongInt(n) => Some((*n).into()),
        AMQPValue::LongUInt(n) => Some((*n).into()),
        AMQPValue::LongLongInt(n) => Some(*n),
        _ => text(properties, name)?.trim().parse().ok(),
    }
}

fn find<'a>(properties: &'a BasicProperties, name: &str) -> Option<&'a AMQPValue> {
    properties.headers().as_ref()?.inner().get(name)
}

fn basic(content_type: ShortString, app_id: ShortString, headers: FieldTable) -> BasicProperties {
    let seconds = u64::try_from(clock::now().timestamp()).unwrap_or(0);
    BasicProperties::default()
        .with_content_type(content_type)
        .with_delivery_mode(PERSISTENT)
        .with_app_id(app_id)
        .with_timestamp(seconds)
        .with_headers(headers)
}

fn rfc3339(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

fn value_of(header: &Header) -> AMQPValue {
    match header {
        Header::Text(text) => AMQPValue::LongString(cut(text)),
        Header::Number(number) => AMQPValue::LongLongInt(*number),
    }
}

fn cut(text: &str) -> LongString {
    text[..text.floor_char_boundary(MAX_HEADER_BYTES)].into()
}

#[derive(Default)]
struct Table(FieldTable);

impl Table {
    fn text(&mut self, name: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.0.insert(name.into(), AMQPValue::LongString(cut(value)));
        }
    }

    fn number(&mut self, name: &'static str, value: i64) {
        self.0.insert(name.into(), AMQPValue::LongLongInt(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::{ErrorClass, Failure};
    use crate::domain::task::TaskId;

    #[test]
    fn an_error_in_a_header_is_one_short_line() {
        assert_eq!(one_line("503\n  from\tupstream "), "503 from upstream");
        assert_eq!(one_line("a\0b\u{1b}[2J"), "a\u{fffd}b\u{fffd}[2J");
        let long = one_line(&"é".repeat(600));
        assert_eq!(long.chars().count(), MAX_ERROR_CHARS);
        assert!(long.ends_with('…'));
        assert_eq!(one_line(&"é".repeat(500)).chars().count(), 500);
    }

    #[test]
    fn a_message_has_flat_headers_and_only_those_it_knows() {
        let message = Message {
            task_id: TaskId::new(),
            task_type: "http_call".into(),
            pool: "io_pool".into(),
            name: "daily".into(),
            execution_key: "k".into(),
            run: 2,
            failures: 1,
            max_retry: 3,
            schedule: None,
            scheduled_for: None,
            traceparent: Some("00-aa-bb-01".into()),
            previous_attempt: None,
            failure: Some(Failure::new(ErrorClass::Timeout, "took\ntoo long")),
            worker: None,
            dead_letter: Some(7),
            priority: Priority::High,
        };
        let properties = of_message(&message, "worker").expect("fits");
        assert_eq!(*properties.priority(), Some(9));
        let headers = properties.headers().clone().expect("headers");
        let names: Vec<&str> = headers.inner().keys().map(ShortString::as_str).collect();
        assert_eq!(
            names,
            [
                "dead-letter",
                "error-class",
                "error-message",
                "failures",
                "max-retry",
                "run",
                "traceparent"
            ]
        );
        assert_eq!(text(&properties, "error-message"), Some("took too long"));
        assert_eq!(number(&properties, "dead-letter"), Some(7));
        assert_eq!(number(&properties, "run"), Some(2));
        assert_eq!(text(&properties, "run"), None);
    }

    #[test]
    fn a_number_typed_into_the_ui_is_read_too() {
        let raw = Properties {
            headers: vec![("dead-letter".into(), Header::Text(" 12 ".into()))],
            ..Properties::default()
        };
        assert_eq!(number(&of_raw(&raw, "ui").expect("fits"), "dead-letter"), Some(12));
    }

    #[test]
    fn a_kept_message_keeps_its_own_headers_and_the_reason_of_the_broker() {
        let raw = Properties {
            message_id: Some("m".into()),
            message_type: Some("t".into()),
            headers: vec![("a".to_owned(), Header::Text("b".to_owned()))],
            ..Properties::default()
        };
        let old = of_raw(&raw, "ui").expect("fits").with_user_id("ann".into());
        let mut headers = old.headers().clone().expect("headers");
        let deaths = [("rejected", "q"), ("expired", "a delay")].map(|(reason, queue)| {
            let mut death = FieldTable::default();
            death.insert("reason".into(), AMQPValue::LongString(reason.into()));
            death.insert("queue".into(), AMQPValue::LongString(queue.into()));
            AMQPValue::FieldTable(death)
        });
        headers.insert("x-death".into(), AMQPValue::FieldArray(deaths.to_vec().into()));
        let old = old.with_headers(headers);

        let kept = of_kept(&old.with_expiration("1000".into()));

        let names: Vec<&str> = kept
            .headers()
            .iter()
            .flat_map(|headers| headers.inner().keys().map(ShortString::as_str))
            .collect();
        assert_eq!(names, ["a", "error-message"]);
        assert_eq!(text(&kept, "error-message"), Some("moved here by RabbitMQ from q: rejected"));
        let own = [kept.message_id(), kept.kind(), kept.content_type(), kept.app_id()];
        let own = own.map(|value| value.as_ref().map(ShortString::as_str));
        assert_eq!(own, [Some("m"), Some("t"), Some("application/json"), Some("ui")]);
        assert_eq!(number(&of_letter(&kept, 7), "dead-letter"), Some(7));
        assert_eq!((kept.user_id(), kept.expiration()), (&None, &None));
        assert_eq!(*kept.delivery_mode(), Some(PERSISTENT));
    }

    #[test]
    fn what_amqp_cannot_carry_is_an_error_and_no_panic() {
        let raw = Properties { message_id: Some("x".repeat(256)), ..Properties::default() };
        let error = of_raw(&raw, "test").expect_err("too long").to_string();
        assert!(error.contains("message id") && error.contains("256"), "{error}");
    }
}
