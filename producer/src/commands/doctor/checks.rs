//! The checks themselves. Each answers for one thing and never repeats a secret.

use std::time::Duration;

use chrono::TimeDelta;
use shared::config::Config;
use shared::domain::clock;
use shared::llm::{Endpoint, LlmError, Settings};
use shared::store::{Server, Store};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Check;
use crate::commands::connect;
use crate::commands::error::CommandError;
use crate::commands::output::counted;

/// Oldest PostgreSQL that the statements were tested on.
const OLDEST_POSTGRES: i32 = 140_000;
/// Clocks further apart than this make log lines and rows hard to compare.
const CLOCKS_APART: TimeDelta = TimeDelta::seconds(5);
/// A model endpoint has accepted a connection within this.
const DIAL: Duration = Duration::from_secs(5);

/// It loaded, or doctor would not be here.
pub fn configuration(config: &Config) -> Check {
    let unset: Vec<String> = config
        .unset
        .iter()
        .map(|unset| format!("{} (line {}, {})", unset.variable, unset.line, unset.path))
        .collect();
    if !unset.is_empty() {
        return Check::failed(
            "configuration",
            format!("{}: variables without a value: {}", config.name, unset.join(", ")),
            "set them, or write ${NAME:-} where nothing is a right value",
        );
    }
    let (schedules, notes) = (config.schedules.len(), config.notes.len());
    let read = match notes {
        0 => String::new(),
        n => format!(", {} (`producer config check`)", counted(n, "note")),
    };
    let detail = format!("{}: {}{read}", config.name, counted(schedules, "schedule"));
    Check::ok("configuration", detail)
}

/// PostgreSQL: reachable, able, migrated, and its clock.
pub async fn database(config: &Config) -> Vec<Check> {
    let store = match connect::store(config) {
        Ok(store) => store,
        Err(error) => return vec![Check::of_error("postgres", &error, "")],
    };
    let server = match store.server().await {
        Ok(server) => server,
        Err(error) => {
            let mend = "start it, or correct storage.postgres.dsn (DATABASE_URL)";
            return vec![Check::of_error("postgres", &error.into(), mend)];
        }
    };
    vec![
        version(&store, &server),
        schema(&store).await,
        installation(&store).await,
        durability(&server),
        clocks_of(&store).await,
    ]
}

/// Asked when there is a connection: building one takes longer than a question, and all before it.
async fn clocks_of(store: &Store) -> Check {
    let asked = clock::now();
    match store.server().await {
        Ok(server) => {
            let half = (clock::now() - asked) / 2;
            clocks(server.now - (asked + half), half)
        }
        Err(error) => Check::of_error("clocks", &error.into(), ""),
    }
}

fn version(store: &Store, server: &Server) -> Check {
    let detail = format!("{} at {}", server.version, store.address());
    if server.standby {
        return Check::failed("postgres", format!("{detail} is a replica"), "use the primary");
    }
    if server.read_only {
        let mend = "ALTER DATABASE … or ALTER SYSTEM RESET default_transaction_read_only";
        return Check::failed("postgres", format!("{detail} takes no writes"), mend);
    }
    if server.number < OLDEST_POSTGRES {
        return Check::failed("postgres", detail, "use PostgreSQL 14 or newer");
    }
    // Our sessions set their own isolation; other programs on the database do not.
    let isolation = match server.isolation.as_str() {
        "read committed" => String::new(),
        other => format!(", default_transaction_isolation is {other:?}, ours is read committed"),
    };
    Check::ok("postgres", format!("{detail}{isolation}"))
}

async fn schema(store: &Store) -> Check {
    match store.check_schema().await {
        Ok(()) => Check::ok("schema", format!("version {}", shared::store::SCHEMA_VERSION)),
        Err(error) => Check::of_error("schema", &error.into(), ""),
    }
}

/// One database, one corner of the broker.
async fn installation(store: &Store) -> Check {
    match store.check_place().await {
        Ok(()) => Check::ok("installation", "no other one uses this database"),
        Err(error) => Check::of_error("installation", &error.into(), ""),
    }
}

fn durability(server: &Server) -> Check {
    let detail = format!("synchronous_commit is {}", server.synchronous_commit);
    if server.synchronous_commit == "off" {
        return Check::failed(
            "durability",
            format!("{detail}: a crash of the server loses tasks that were acknowledged"),
            "ALTER DATABASE … SET synchronous_commit = on",
        );
    }
    Check::ok("durability", detail)
}

/// `half` of the question's way is what may be wrong with it.
fn clocks(apart: TimeDelta, half: TimeDelta) -> Check {
    let (seconds, doubt) = (apart.as_seconds_f64(), half.as_seconds_f64());
    if apart.abs() <= half {
        let detail = format!("the database's and this host's agree, within {doubt:.3} s");
        return Check::ok("clocks", detail);
    }
    let detail = format!("the database's is {seconds:+.3} s from this host's, within {doubt:.3} s");
    if apart.abs() - half > CLOCKS_APART {
        return Check::failed("clocks", detail, "run NTP on both; Belfry goes by the database's");
    }
    Check::ok("clocks", detail)
}

/// RabbitMQ: login, vhost and topology.
pub async fn broker(config: &Config) -> Vec<Check> {
    let address = match connect::broker_settings(config) {
        Ok(settings) => settings.address(),
        Err(error) => return vec![Check::of_error("rabbitmq", &error, "")],
    };
    let found = match address {
        Ok(address) => address.to_string(),
        Err(error) => return vec![Check::of_error("rabbitmq", &error.into(), "")],
    };
    let operator = match connect::operator(config).await {
        Ok(operator) => operator,
        Err(error) => return vec![Check::of_error("rabbitmq", &error, "")],
    };
    let diff = operator.diff(&connect::topology(config)).await;
    operator.close().await;
    let topology = match diff {
        Ok(diff) if diff.is_empty() => {
            Check::ok("topology", format!("prefix {:?}", config.rabbitmq.prefix))
        }
        Ok(diff) => Check::failed(
            "topology",
            format!(
                "{} missing, {} conflicting, {} unchecked",
                diff.missing.len(),
                diff.conflicting.len(),
                diff.unchecked.len()
            ),
            "`producer topology diff` names them, `producer topology declare` adds what is missing",
        ),
        Err(error) => Check::of_error("topology", &error.into(), ""),
    };
    vec![Check::ok("rabbitmq", found), topology]
}

/// Model endpoints: does anybody listen there? No request is made and no key is used.
pub async fn model(config: &Config) -> Vec<Check> {
    let model = &config.model;
    let default = model
        .base_url
        .as_ref()
        .map(|base| Endpoint::new(base, model.api_key.as_ref(), Settings::default_endpoint()));
    let named = model.endpoints.iter().map(|(name, endpoint)| {
        Endpoint::new(&endpoint.base_url, endpoint.api_key.as_ref(), Settings::named(name))
    });
    let endpoints: Vec<_> = default.into_iter().chain(named).collect();
    if endpoints.is_empty() {
        let detail = "no endpoint is configured; model_invoke and agent_session cannot run";
        return vec![Check::ok("model", detail)];
    }
    futures::future::join_all(endpoints.into_iter().map(endpoint)).await
}

async fn endpoint(endpoint: Result<Endpoint, LlmError>) -> Check {
    let endpoint = match endpoint {
        Ok(endpoint) => endpoint,
        Err(error) => {
            return Check { misconfigured: true, ..Check::failed("model", error.to_string(), "") };
        }
    };
    let target = endpoint.target();
    if let Some(proxy) = endpoint.proxy() {
        return Check::ok("model", format!("{target} is behind the proxy {proxy}; not dialled"));
    }
    let bare = endpoint.host().trim_matches(['[', ']']).to_owned();
    let cause = match timeout(DIAL, TcpStream::connect((bare, endpoint.port()))).await {
        Ok(Ok(_)) => return Check::ok("model", format!("{target} accepts connections")),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {DIAL:?}"),
    };
    let error = CommandError::Unreachable(format!("{target} cannot be reached: {cause}"));
    let mend = format!("correct {}, or the network", endpoint.settings().base_url);
    Check::of_error("model", &error, &mend)
}

/// Is anybody told?
pub fn alerts(config: &Config) -> Check {
    match &config.alerts.webhook {
        Some(_) => Check::ok("alerts", "a webhook is configured"),
        None => Check::ok("alerts", "no alerts.webhook; `producer alerts list` shows them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server {
            version: "15.18".into(),
            number: 150_018,
            isolation: "read committed".into(),
            synchronous_commit: "on".into(),
            standby: false,
            read_only: false,
            now: clock::now(),
        }
    }

    #[test]
    fn a_commit_that_a_crash_can_lose_is_no_commit() {
        assert!(durability(&server()).ok);
        let lax = durability(&Server { synchronous_commit: "off".into(), ..server() });
        assert!(!lax.ok && lax.mend.contains("synchronous_commit = on"));
    }

    #[test]
    fn clocks_may_differ_by_seconds() {
        let by = |apart, half| clocks(TimeDelta::seconds(apart), TimeDelta::milliseconds(half));
        assert!(by(-4, 1).ok && by(7, 3000).ok);
        assert!(by(1, 1500).detail.contains("agree, within 1.500 s"), "{:?}", by(1, 1500));
        assert!(by(-4, 1).detail.contains("-4.000 s"), "{:?}", by(-4, 1));
        let apart = by(-61, 1);
        assert!(!apart.ok && apart.detail.contains("-61.000 s"), "{}", apart.detail);
    }

    #[tokio::test]
    async fn an_endpoint_that_nobody_serves_is_unreachable() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let there = || {
            let base = format!("http://127.0.0.1:{port}/v1").into();
            Endpoint::new(&base, None, Settings::default_endpoint())
        };
        assert!(endpoint(there()).await.ok);
        drop(listener);
        let gone = endpoint(there()).await;
        assert!(!gone.ok && gone.unreachable && gone.mend.contains("MODEL_BASE_URL"));
    }
}
