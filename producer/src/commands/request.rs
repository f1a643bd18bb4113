//! What a caller says of a new task, checked at the door: type, name, key, payload, times.
//!
//! `publish`, its `--batch` and the inbox come through here, so that a row of a file and a message
//! are judged like a command line.

use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use serde_json::Value;
use shared::config::{Config, LONGEST_DURATION, parse_duration, suggestion};
use shared::domain::clock;
use shared::domain::execution_key::{ExecutionKey, is_unseen};
use shared::domain::payloads;
use shared::domain::retry::RetryPolicy;
use shared::domain::task::{DEFAULT_TIMEOUT, Due, MAX_NAME_BYTES, NewTask, check_payload};

/// Most retries that may be asked for.
pub const MAX_RETRIES: u32 = 1000;

/// A new task, as said.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Task type.
    pub task_type: String,
    /// Input.
    pub payload: Value,
    /// Execution key; the task's id when absent.
    pub key: Option<String>,
    /// Scope of the key; the task type when absent.
    pub name: Option<String>,
    /// When.
    pub due: Due,
    /// Of one attempt; the house's default when absent.
    pub timeout: Option<Duration>,
    /// Retries; the configuration's default when absent.
    pub max_retry: Option<u32>,
}

impl Request {
    /// Checks it, and fills in what was left out. The error is one sentence for a person.
    pub fn task(self, config: &Config) -> Result<NewTask, String> {
        let pool = pool_of(config, &self.task_type)?;
        check_for(&self.task_type, &self.payload)?;
        payloads::check_tools(&self.task_type, &self.payload, &config.session_tools)?;
        let mut task = NewTask::ad_hoc(&self.task_type, pool, self.payload);
        if let Some(name) = self.name {
            task.name = checked_name(name)?;
        }
        let key = self.key.map(|key| ExecutionKey::new(key).map_err(|error| error.to_string()));
        task.execution_key = key.transpose()?;
        task.due = self.due;
        task.timeout = checked_timeout(self.timeout.unwrap_or(DEFAULT_TIMEOUT))?;
        task.retry = retry(config, self.max_retry)?;
        Ok(task)
    }
}

/// The one place where a payload meets its task type; `config check` judges by it too.
pub fn check_for(task_type: &str, payload: &Value) -> Result<(), String> {
    check_payload(payload).map_err(|error| error.to_string())?;
    payloads::check(task_type, payload)
}

fn pool_of<'a>(config: &'a Config, task_type: &str) -> Result<&'a str, String> {
    config.pool_of(task_type).map(|pool| pool.name.as_str()).ok_or_else(|| {
        let known = || config.pools.iter().flat_map(|pool| &pool.task_types).map(String::as_str);
        let mut hint = suggestion(task_type, known());
        if !hint.contains("known: ") {
            hint = format!("{hint} known: {}", known().collect::<Vec<_>>().join(", "));
        }
        format!("no pool takes the task type {task_type:?}{hint} (task_pools in {})", config.name)
    })
}

fn checked_name(name: String) -> Result<String, String> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.trim() != name {
        return Err(format!(
            "a name has 1 to {MAX_NAME_BYTES} bytes and no white space at its ends"
        ));
    }
    if name.contains(is_unseen) {
        return Err("a name must be printable".to_owned());
    }
    Ok(name)
}

fn checked_timeout(timeout: Duration) -> Result<Duration, String> {
    if timeout < Duration::from_millis(1) {
        return Err("a timeout is at least 1 ms; leave it out for 300 s".to_owned());
    }
    Ok(timeout)
}

fn retry(config: &Config, max_retry: Option<u32>) -> Result<RetryPolicy, String> {
    let policy = config.scheduler.retry;
    match max_retry {
        Some(n) if n > MAX_RETRIES => Err(format!("at most {MAX_RETRIES} retries, not {n}")),
        Some(n) => Ok(RetryPolicy { max_retry: n, ..policy }),
        None => Ok(policy),
    }
}

/// A delay from now, by the database's clock.
pub fn delay(text: &str) -> Result<Due, String> {
    parse_duration(text).map(Due::In)
}

/// An instant of the future: [`read_instant`], no later than a delay may be long.
pub fn instant(text: &str) -> Result<Due, String> {
    let at = read_instant(text)?;
    if at - clock::now() > chrono::TimeDelta::from_std(LONGEST_DURATION).unwrap_or_default() {
        return Err("later than ten years".to_owned());
    }
    Ok(Due::At(at))
}

/// An instant: date and time, with or without seconds; without an offset it is UTC.
pub fn read_instant(text: &str) -> Result<DateTime<Utc>, String> {
    const MINUTES: usize = "2026-12-01T09:00".len();
    let text = text.trim();
    let whole = match (text.get(..MINUTES), text.get(MINUTES..)) {
        (Some(minutes), Some(rest)) if !rest.starts_with(':') => format!("{minutes}:00{rest}"),
        _ => text.to_owned(),
    };
    let naive = || {
        let forms = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
        forms.into_iter().find_map(|form| NaiveDateTime::parse_from_str(&whole, form).ok())
    };
    let with_offset = DateTime::parse_from_rfc3339(&whole).map(|at| at.with_timezone(&Utc));
    with_offset.ok().or_else(|| Some(naive()?.and_utc())).ok_or_else(|| {
        "expected 2026-12-01T09:00:00+08:00, or 2026-12-01T09:00, which is read as UTC".to_owned()
    })
}

/// A text on one line, without control characters.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let due = instant(text).ok().map(|due| match due {
            Due::At(at) => at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            other => format!("{other:?}"),
        });
        assert_eq!(due.as_deref(), expected, "{text}");
    }

    #[test]
    fn an_instant_without_an_offset_is_utc() {
        check("2026-12-01T09:00:00+08:00", Some("2026-12-01T01:00:00Z"));
        check("2026-12-01T09:00:00Z", Some("2026-12-01T09:00:00Z"));
        check("2026-10-25T02:30+02:00", Some("2026-10-25T00:30:00Z"));
        check("2026-12-01T09:00Z", Some("2026-12-01T09:00:00Z"));
        check("2026-12-01T09:00:30.5Z", Some("2026-12-01T09:00:30Z"));
        check("2026-12-01T09:00", Some("2026-12-01T09:00:00Z"));
        check("2026-12-01 09:00:30", Some("2026-12-01T09:00:30Z"));
        for wrong in [
            "tomorrow",
            "2026-12-01",
            "2026-13-01T00:00",
            "2026-12-01T25:00",
            "",
            "9999-01-01T00:00",
        ] {
            check(wrong, None);
        }
    }

    fn told(request: Request) -> String {
        let text = "task_pools: {own_pool: {task_types: [http_call, mine]}}";
        let config = shared::config::load_str(text, "b.yaml", &|_| None).expect("right");
        match request.task(&config) {
            Ok(task) => format!("{} {} {:?}", task.name, task.pool, task.timeout),
            Err(error) => error,
        }
    }

    fn of(task_type: &str) -> Request {
        Request {
            task_type: task_type.into(),
            payload: serde_json::json!({}),
            ..Request::default()
        }
    }

    #[test]
    fn what_is_left_out_comes_from_the_configuration() {
        assert_eq!(told(of("mine")), "mine own_pool 300s");
    }

    #[test]
    fn a_wrong_request_says_what_to_do() {
        for (request, part) in [
            (of("http_cal"), "did you mean `http_call`? known: http_call, mine"),
            (of("zzz"), "known: http_call"),
            (of("http_call"), "payload of http_call: missing field `url`"),
            (Request { key: Some(" a".into()), ..of("mine") }, "white space"),
            (Request { name: Some(String::new()), ..of("mine") }, "1 to 128 bytes"),
            (Request { name: Some("a\0".into()), ..of("mine") }, "printable"),
            (Request { name: Some("a\u{202e}b".into()), ..of("mine") }, "printable"),
            (Request { timeout: Some(Duration::ZERO), ..of("mine") }, "at least 1 ms"),
            (Request { max_retry: Some(1001), ..of("mine") }, "at most 1000"),
            (Request { payload: "a\0".into(), ..of("mine") }, "NUL"),
        ] {
            let said = told(request);
            assert!(said.contains(part), "{said:?} lacks {part:?}");
        }
    }
}
