//! The rooms of the file other than schedules and reports.
//!
//! | variable | unit | default | meaning |
//! |---|---|---|---|
//! | `BELFRY_HTTP_ADDR` | address:port | off | `http_addr`, where the file says nothing |

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::check;
use super::keys;
use super::loading::Loading;
use super::reader::{Place, Section};
use super::{Alerts, HttpGuard, Limits, Retention, Scheduler, Source};
use crate::domain::payloads::NEVER_TOOLS;
use crate::domain::retry::RetryPolicy;

/// Default of `scheduler.heartbeat_interval`: a dead worker's tasks are given back within 15 s.
pub const DEFAULT_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Default of `scheduler.heartbeat_ttl`, in intervals: two renewals may be lost.
pub const DEFAULT_TTL_INTERVALS: u32 = 3;
/// Default of `alerts.repeat`.
pub const DEFAULT_ALERT_REPEAT: Duration = Duration::from_mins(30);
/// Default of `sources.*.max_rows`.
pub const DEFAULT_MAX_ROWS: u64 = 1000;
/// Default of `sources.*.statement_timeout`.
pub const DEFAULT_STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Default of `limits.ack_early_above`.
pub const DEFAULT_ACK_EARLY_ABOVE: Duration = Duration::from_mins(10);
/// RabbitMQ closes a channel that holds a delivery longer than this, unless told otherwise.
const BROKER_CONSUMER_TIMEOUT: Duration = Duration::from_mins(30);
/// Most that `max_retry` takes: with hours between them, tries beyond these are no retries.
pub const MOST_RETRIES: u64 = 1000;
/// Default of `limits.crash_limit`.
pub const DEFAULT_CRASH_LIMIT: u64 = 3;
/// Default of `limits.drain`; what stops a worker must have more patience than that.
pub const DEFAULT_DRAIN: Duration = Duration::from_mins(1);
/// Default of `handlers.agent_session.tools`: what reads, or asks through the network guard. What runs
/// programs is somebody's decision.
pub const DEFAULT_SESSION_TOOLS: [&str; 2] = ["http_call", "db_query"];
const DAY: Duration = Duration::from_hours(24);

/// Least `scheduler.heartbeat_interval`: below it a lease ends while its renewal is on its way.
pub const LEAST_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);

const _: () = assert!(DEFAULT_TTL_INTERVALS >= 2, "a lease outlives at least one lost renewal");

/// `scheduler`.
pub(super) fn scheduler(section: &Section<'_>) -> Scheduler {
    let interval = section.get("heartbeat_interval").and_then(|place| {
        let interval = place.positive_duration()?;
        if interval < LEAST_HEARTBEAT_INTERVAL {
            place.problem(format!(
                "must be at least {LEAST_HEARTBEAT_INTERVAL:?}, or a lease ends while its renewal is on its way"
            ));
        }
        Some(interval)
    });
    let interval = interval.unwrap_or(DEFAULT_HEARTBEAT_INTERVAL);
    let default_ttl = interval * DEFAULT_TTL_INTERVALS;
    let ttl = section.get("heartbeat_ttl").map_or(default_ttl, |place| {
        let ttl = place.positive_duration().unwrap_or(default_ttl);
        if ttl < interval * 2 {
            place.problem(format!(
                "must be at least twice heartbeat_interval ({interval:?}), or one slow renewal loses the lease"
            ));
        }
        ttl
    });
    Scheduler {
        heartbeat_interval: interval,
        heartbeat_ttl: ttl,
        timezone: section.get("timezone").and_then(|place| check::zone(&place)).unwrap_or_default(),
        retry: retry(section, RetryPolicy::default()),
    }
}

/// `max_retry`, `retry_backoff_base` and `retry_backoff_max` of a section, over defaults.
pub(super) fn retry(section: &Section<'_>, default: RetryPolicy) -> RetryPolicy {
    let duration = |key: &str| section.get(key).and_then(|place| place.duration());
    let max_retry = section.get("max_retry").and_then(|place| place.integer(0..=MOST_RETRIES));
    let given_base = duration("retry_backoff_base");
    let given_max = duration("retry_backoff_max");
    let base = given_base.unwrap_or(default.base);
    let max = given_max.unwrap_or(default.max);
    if base > max {
        let key = if given_max.is_some() { "retry_backoff_max" } else { "retry_backoff_base" };
        if let Some(place) = section.get(key) {
            place.problem(format!(
                "retry_backoff_base ({base:?}) is longer than retry_backoff_max ({max:?})"
            ));
        }
    }
    let max_retry = max_retry.and_then(|n| u32::try_from(n).ok()).unwrap_or(default.max_retry);
    RetryPolicy { max_retry, base, max }
}

/// `alerts`.
pub(super) fn alerts(section: &Section<'_>) -> Alerts {
    let webhook = section.get("webhook").and_then(|place| {
        let secret = place.secret()?;
        check::report(&place, check::http_url(secret.expose_secret())).map(|()| secret)
    });
    let repeat = section.get("repeat").and_then(|place| place.positive_duration());
    Alerts { webhook, repeat: repeat.unwrap_or(DEFAULT_ALERT_REPEAT) }
}

/// `sources`.
pub(super) fn sources(root: &Section<'_>) -> BTreeMap<String, Source> {
    let read = |(name, place): (&str, Place<'_>)| {
        check::report(&place, check::word(name, "-_.", 64));
        let section = place.section(keys::SOURCE);
        let dsn = section.required("dsn").and_then(|place| {
            let secret = place.secret()?;
            check::report(&place, check::postgres_url(secret.expose_secret())).map(|()| secret)
        });
        let mode =
            section.get("mode").and_then(|place| place.choice(&[("read", true), ("write", false)]));
        let max_rows = section.get("max_rows").and_then(|place| place.integer(1..=1_000_000));
        let timeout = section.get("statement_timeout").and_then(|place| place.positive_duration());
        let source = Source {
            dsn,
            read_only: mode.unwrap_or(true),
            max_rows: max_rows.unwrap_or(DEFAULT_MAX_ROWS) as usize,
            statement_timeout: timeout.unwrap_or(DEFAULT_STATEMENT_TIMEOUT),
        };
        (name.to_owned(), source)
    };
    root.entries("sources").into_iter().map(read).collect()
}

/// `secrets`.
pub(super) fn secrets(root: &Section<'_>) -> BTreeMap<String, Option<SecretString>> {
    let read = |(name, place): (&str, Place<'_>)| {
        check::report(&place, check::word(name, "-_.", 64));
        if place.node.is_null() {
            place.problem("has no value; write ${VARIABLE}");
        }
        (name.to_owned(), place.secret())
    };
    root.entries("secrets").into_iter().map(read).collect()
}

/// `http`.
pub(super) fn http(section: &Section<'_>) -> HttpGuard {
    let hosts = section.get("allow_hosts").map(|place| place.items()).unwrap_or_default();
    let hosts = hosts.into_iter().filter_map(|place| {
        let host = place.text()?.to_lowercase();
        check::report(&place, check::host(&host)).map(|()| host)
    });
    HttpGuard {
        allow_hosts: hosts.collect(),
        allow_private: section
            .get("allow_private")
            .and_then(|place| place.boolean())
            .unwrap_or(false),
    }
}

/// `limits`.
pub(super) fn limits(section: &Section<'_>) -> Limits {
    let ack_early_above = section.get("ack_early_above").and_then(|place| {
        let duration = place.positive_duration()?;
        if duration >= BROKER_CONSUMER_TIMEOUT {
            place.note(
                "RabbitMQ gives a delivery back after its consumer timeout, 30 min by default",
            );
        }
        Some(duration)
    });
    let crash_limit = section.get("crash_limit").and_then(|place| place.integer(1..=100));
    let drain = section.get("drain").and_then(|place| place.duration());
    Limits {
        ack_early_above: ack_early_above.unwrap_or(DEFAULT_ACK_EARLY_ABOVE),
        crash_limit: crash_limit.unwrap_or(DEFAULT_CRASH_LIMIT) as u32,
        drain: drain.unwrap_or(DEFAULT_DRAIN),
    }
}

/// `retention`.
pub(super) fn retention(section: &Section<'_>) -> Retention {
    let given = |key: &str| section.get(key).and_then(|place| place.positive_duration());
    let days = |key: &str, default: u32| given(key).unwrap_or(DAY * default);
    Retention {
        completed: days("completed", 30),
        dead: days("dead", 90),
        execution_keys: days("execution_keys", 90),
        artifacts: given("artifacts"),
    }
}

/// `handlers.agent_session.tools`.
pub(super) fn session_tools(root: &Section<'_>) -> Vec<String> {
    let section = root.section("handlers", keys::HANDLERS);
    let section = section.section("agent_session", keys::AGENT_SESSION);
    let Some(place) = section.whole("tools") else {
        return DEFAULT_SESSION_TOOLS.map(str::to_owned).to_vec();
    };
    let tools = place.items().into_iter().filter_map(|place| {
        let task_type = place.required_text()?;
        if NEVER_TOOLS.contains(&task_type.as_str()) {
            place.problem(format!("{task_type} cannot be a tool of a session; drop it"));
            return None;
        }
        check::report(&place, check::word(&task_type, "-_.", 128)).map(|()| task_type)
    });
    tools.collect()
}

/// `http_addr`, else `BELFRY_HTTP_ADDR`.
pub(super) fn http_addr(root: &Section<'_>, loading: &Loading<'_>) -> Option<SocketAddr> {
    if let Some(place) = root.get("http_addr")
        && let Some(text) = place.text()
    {
        return check::address(&text).map_err(|what| place.problem(what)).ok();
    }
    let text = loading.variable("BELFRY_HTTP_ADDR")?;
    check::address(&text).map_err(|what| loading.variable_problem("BELFRY_HTTP_ADDR", what)).ok()
}
