//! An entry as one value: how the database keeps it, what tells an edit from a restart, and how a
//! person reads it.
//!
//! Keys that came later are left out where they say nothing, so that an upgrade is no edit.

use std::borrow::Cow;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{CatchUp, Overlap, Payload, Schedule};
use crate::domain::cron::{Cron, parse_zone};
use crate::domain::retry::RetryPolicy;
use crate::domain::task::{Priority, Semantics};

/// SHA-256 of a spec: another one is another entry.
pub type Digest = [u8; 32];

/// `schedules.spec`.
#[derive(Serialize, Deserialize)]
struct Spec<'a> {
    cron: Cow<'a, str>,
    timezone: Cow<'a, str>,
    task_type: Cow<'a, str>,
    pool: Cow<'a, str>,
    payload: Cow<'a, Payload>,
    execution_key_template: Cow<'a, str>,
    timeout_ms: u64,
    retry: RetryPolicy,
    semantics: Semantics,
    overlap: Overlap,
    catch_up: CatchUp,
    catch_up_window_ms: u64,
    paused: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    jitter_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_at: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end_at: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: Priority,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl<'a> Spec<'a> {
    fn of(schedule: &'a Schedule) -> Self {
        Self {
            cron: schedule.cron.as_str().into(),
            timezone: schedule.timezone.name().into(),
            task_type: schedule.task_type.as_str().into(),
            pool: schedule.pool.as_str().into(),
            payload: Cow::Borrowed(&schedule.payload),
            execution_key_template: schedule.execution_key_template.as_str().into(),
            timeout_ms: millis(schedule.timeout),
            retry: schedule.retry,
            semantics: schedule.semantics,
            overlap: schedule.overlap,
            catch_up: schedule.catch_up,
            catch_up_window_ms: millis(schedule.catch_up_window),
            paused: schedule.paused,
            jitter_ms: millis(schedule.jitter),
            start_at: schedule.start_at,
            end_at: schedule.end_at,
            deadline_ms: schedule.deadline.map(millis),
            priority: schedule.priority,
        }
    }
}

impl Schedule {
    /// Everything but its name, as the database keeps it.
    pub fn spec(&self) -> Value {
        serde_json::to_value(Spec::of(self)).expect("texts, numbers and JSON are always JSON")
    }

    /// The same as JSON text, and what tells it from an entry that says anything else, its name apart.
    pub fn written(&self) -> (String, Digest) {
        // In the order of the struct, and a payload's keys are sorted: the same on every host.
        let text = serde_json::to_string(&Spec::of(self)).expect("as above");
        let digest = Sha256::digest(&text).into();
        (text, digest)
    }

    /// Its digest alone.
    pub fn digest(&self) -> Digest {
        self.written().1
    }

    /// The schedule of a spec that the database kept.
    ///
    /// # Errors
    /// One that this binary does not understand, for example of a newer one.
    pub fn from_spec(name: &str, spec: &Value) -> Result<Self, String> {
        let wrong = |what: &dyn std::fmt::Display| format!("the spec of schedule {name}: {what}");
        let spec = Spec::deserialize(spec).map_err(|error| wrong(&error))?;
        let cron = Cron::parse(&spec.cron).map_err(|error| wrong(&error))?;
        Ok(Self {
            timezone: parse_zone(&spec.timezone).map_err(|error| wrong(&error))?,
            payload: spec.payload.into_owned(),
            execution_key_template: spec.execution_key_template.into_owned(),
            timeout: Duration::from_millis(spec.timeout_ms),
            retry: spec.retry,
            semantics: spec.semantics,
            overlap: spec.overlap,
            catch_up: spec.catch_up,
            catch_up_window: Duration::from_millis(spec.catch_up_window_ms),
            paused: spec.paused,
            jitter: Duration::from_millis(spec.jitter_ms),
            start_at: spec.start_at,
            end_at: spec.end_at,
            deadline: spec.deadline_ms.map(Duration::from_millis),
            priority: spec.priority,
            ..Self::new(name, cron, &spec.task_type, &spec.pool)
        })
    }

    /// Everything but its name under the keys of `belfry.yaml`, durations as texts; `pool` is where
    /// `task_pools` puts the type.
    pub fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("schedule", self.cron.as_str().into()),
            ("timezone", self.timezone.name().into()),
            ("task_type", self.task_type.as_str().into()),
            ("pool", self.pool.as_str().into()),
            ("payload", self.payload.value()),
            ("execution_key_template", self.execution_key_template.as_str().into()),
            ("overlap", word(self.overlap)),
            ("catch_up", word(self.catch_up)),
            ("catch_up_window", written(self.catch_up_window)),
            ("timeout", written(self.timeout)),
            ("max_retry", self.retry.max_retry.into()),
            ("retry_backoff_base", written(self.retry.base)),
            ("retry_backoff_max", written(self.retry.max)),
            ("semantics", word(self.semantics)),
            ("priority", word(self.priority)),
            ("jitter", written(self.jitter)),
            ("start_at", instant(self.start_at)),
            ("end_at", instant(self.end_at)),
            ("deadline", self.deadline.map_or(Value::Null, written)),
            ("paused", self.paused.into()),
        ]
    }
}

/// A choice as the file spells it.
fn word(choice: impl Serialize) -> Value {
    serde_json::to_value(choice).unwrap_or_default()
}

/// A duration as the file may spell it: `300s`, `1.5s`, `250ms`.
fn written(duration: Duration) -> Value {
    if duration.is_zero() {
        return "0s".into();
    }
    format!("{duration:?}").into()
}

fn instant(at: Option<DateTime<Utc>>) -> Value {
    at.map_or(Value::Null, |at| at.to_rfc3339_opts(SecondsFormat::AutoSi, true).into())
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schedule() -> Schedule {
        let cron = Cron::parse("0 18 * * *").expect("a cron line");
        Schedule::new("nightly", cron, "http_call", "io_pool")
    }

    /// As the binary before this module wrote it.
    #[test]
    fn an_entry_that_says_nothing_new_has_the_spec_it_always_had() {
        let spec = schedule().spec();

        let retry = json!({
            "max_retry": 3,
            "base": {"secs": 60, "nanos": 0},
            "max": {"secs": 3600, "nanos": 0},
        });
        let before = json!({
            "cron": "0 18 * * *",
            "timezone": "UTC",
            "task_type": "http_call",
            "pool": "io_pool",
            "payload": {},
            "execution_key_template": "{{ schedule }}@{{ scheduled_at }}",
            "timeout_ms": 300_000,
            "retry": retry,
            "semantics": "at_least_once",
            "overlap": "skip",
            "catch_up": "latest",
            "catch_up_window_ms": 3_600_000,
            "paused": false,
        });
        assert_eq!(spec, before);
    }

    #[test]
    fn a_spec_is_read_back_whole() {
        let at = |text: &str| Some(text.parse().expect("an instant"));
        let entry = Schedule {
            timezone: chrono_tz::Asia::Shanghai,
            payload: json!({"url": "https://a.example", "n": [1, 2.5]}).into(),
            overlap: Overlap::QueueAll,
            catch_up: CatchUp::None,
            semantics: Semantics::AtMostOnce,
            jitter: Duration::from_millis(1500),
            start_at: at("2026-12-01T00:00:00Z"),
            end_at: at("2026-12-31T00:00:00Z"),
            deadline: Some(Duration::from_mins(5)),
            priority: Priority::High,
            paused: true,
            ..schedule()
        };

        let read = Schedule::from_spec("nightly", &entry.spec()).expect("our own");

        assert_eq!(read.fields(), entry.fields());
        assert_eq!(read.digest(), entry.digest());
        assert_ne!(read.digest(), schedule().digest());
    }

    #[test]
    fn a_spec_that_is_not_understood_names_its_schedule() {
        let mut spec = schedule().spec();
        spec["overlap"] = "later".into();

        let error = Schedule::from_spec("nightly", &spec).expect_err("no such overlap");

        assert!(error.contains("schedule nightly") && error.contains("later"), "{error}");
    }

    #[test]
    fn no_time_at_all_is_no_seconds() {
        let fields = schedule().fields();
        let jitter = fields.iter().find(|(key, _)| *key == "jitter").expect("there");
        assert_eq!(jitter.1, "0s");
    }
}
