//! The checked configuration, as the rest of the house sees it.
//!
//! Durations are `Duration`, secrets are `SecretString`, names are resolved; nothing here can fail
//! any more.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;

use crate::domain::quota;
use crate::domain::retry::RetryPolicy;
use crate::domain::schedule::Schedule;

/// All of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it came from, if any.
    pub path: Option<PathBuf>,
    /// What messages call it: the file's path as given, or `environment`.
    pub name: String,
    /// Heartbeats and the defaults of schedules.
    pub scheduler: Scheduler,
    /// `storage.postgres.dsn`, else `DATABASE_URL`. `None` is an error where it is used.
    pub database_url: Option<SecretString>,
    /// `storage.rabbitmq`.
    pub rabbitmq: RabbitMq,
    /// `model`.
    pub model: Model,
    /// `task_pools`.
    pub pools: Vec<Pool>,
    /// `tasks`: the schedules.
    pub schedules: Vec<Schedule>,
    /// False when nothing says `tasks`: no file, no key, or a key with nothing below. `tasks: []`
    /// says that there are none.
    pub says_tasks: bool,
    /// `tasks[*].budget`, by schedule.
    pub budgets: BTreeMap<String, quota::Limits>,
    /// `alerts`.
    pub alerts: Alerts,
    /// `sources`: named databases of `db_query`.
    pub sources: BTreeMap<String, Source>,
    /// `secrets`: what payloads name as `secret:NAME`. `None` where its variable is unset.
    pub secrets: BTreeMap<String, Option<SecretString>>,
    /// `http`: the guard of payload-driven calls.
    pub http: HttpGuard,
    /// `limits`.
    pub limits: Limits,
    /// `retention`.
    pub retention: Retention,
    /// `reports`.
    pub reports: BTreeMap<String, Report>,
    /// `artifacts.dir`: where copies of artifacts are written, if anywhere.
    pub artifacts_dir: Option<PathBuf>,
    /// `handlers.agent_session.tools`: task types that may be tools of sessions, default `http_call`
    /// and `db_query`.
    pub session_tools: Vec<String>,
    /// `http_addr`: `/livez`, `/readyz`, `/metrics`. Off when absent.
    pub http_addr: Option<SocketAddr>,
    /// What loads but does nothing here, or is unset: one sentence each, with line and path.
    pub notes: Vec<String>,
    /// Where variables without a value are used: an error once that part is used.
    pub unset: Vec<Unset>,
}

/// A use of a variable that has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unset {
    /// Line in the file.
    pub line: usize,
    /// Path of the key.
    pub path: String,
    /// The variable.
    pub variable: String,
}

/// `scheduler`.
#[derive(Clone, Debug)]
pub struct Scheduler {
    /// Renewal of a lease, default 5 s.
    pub heartbeat_interval: Duration,
    /// Life of a lease, default 15 s, at least twice the interval.
    pub heartbeat_ttl: Duration,
    /// Zone of schedules that name none, default UTC.
    pub timezone: chrono_tz::Tz,
    /// Retries of tasks that say nothing themselves.
    pub retry: RetryPolicy,
}

/// `storage.rabbitmq`.
#[derive(Clone, Debug)]
pub struct RabbitMq {
    /// `url`, else `AMQP_URL`; amqp:// or amqps://, the path is the vhost.
    pub url: Option<SecretString>,
    /// `prefix` of exchanges and queues, default `belfry`.
    pub prefix: String,
}

/// `model`: the default endpoint and the named ones.
#[derive(Clone, Debug)]
pub struct Model {
    /// `base_url`, else `MODEL_BASE_URL`; it may hold a password or a query with a key.
    pub base_url: Option<SecretString>,
    /// `api_key`, else `MODEL_API_KEY`, trimmed.
    pub api_key: Option<SecretString>,
    /// `default_model`, else `MODEL_NAME`.
    pub default_model: Option<String>,
    /// `timeout` of one call, default 120 s.
    pub timeout: Duration,
    /// `endpoints.<name>`.
    pub endpoints: BTreeMap<String, Endpoint>,
    /// `fallback.<model>`: who stands in for it, best first.
    pub fallback: BTreeMap<String, Vec<String>>,
    /// `prices.<model>`: US dollars per million tokens.
    pub prices: BTreeMap<String, Price>,
    /// `limits.<model>`: what the whole fleet may ask of a model.
    pub limits: BTreeMap<String, quota::Limits>,
}

/// `model.endpoints.<name>`.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// OpenAI-compatible base URL; it may hold a password or a query with a key.
    pub base_url: SecretString,
    /// Its key.
    pub api_key: Option<SecretString>,
    /// Models asked for there.
    pub models: Vec<String>,
}

/// `model.prices.<model>`, US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// Per million input tokens.
    pub input: f64,
    /// Per million input tokens from the provider's cache; `None` is `input`.
    pub cached_input: Option<f64>,
    /// Per million output tokens.
    pub output: f64,
    /// Per million output tokens of reasoning; `None` is `output`.
    pub reasoning: Option<f64>,
}

/// `task_pools.<name>`.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name, and its queue's last part.
    pub name: String,
    /// Slots in one worker process.
    pub max_workers: usize,
    /// Task types that go there.
    pub task_types: Vec<String>,
}

/// `alerts`.
#[derive(Clone, Debug)]
pub struct Alerts {
    /// Where they are posted; `None` keeps them as rows.
    pub webhook: Option<SecretString>,
    /// Pause between two alerts of an unclaimed dead letter, default 30 min.
    pub repeat: Duration,
}

/// `sources.<name>`.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its connection string; `None` where its variable is unset.
    pub dsn: Option<SecretString>,
    /// `mode: read` (default) or `write`.
    pub read_only: bool,
    /// `max_rows` of one answer, default 1000.
    pub max_rows: usize,
    /// `statement_timeout`, default 30 s.
    pub statement_timeout: Duration,
}

/// `http`.
#[derive(Clone, Debug, Default)]
pub struct HttpGuard {
    /// Hosts (`name`, `name:port`, `1.2.3.4`) that may be private or loopback.
    pub allow_hosts: Vec<String>,
    /// Allows every private address; for closed networks only.
    pub allow_private: bool,
}

/// `limits`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Tasks with a longer timeout are acked right after their claim, default 10 min.
    pub ack_early_above: Duration,
    /// Crashes after which a task is dead, default 3.
    pub crash_limit: u32,
    /// Time that running tasks get after the first SIGTERM, default 1 min.
    pub drain: Duration,
}

/// `retention`.
#[derive(Clone, Debug)]
pub struct Retention {
    /// Completed and cancelled tasks with what hangs on them, and ticks: default 30 d after their end.
    pub completed: Duration,
    /// Closed dead letters, and dead tasks whose letter was discarded: default 90 d after that.
    pub dead: Duration,
    /// Execution keys, default 90 d, never while the task lives or is dead.
    pub execution_keys: Duration,
    /// Reports; `None`: for ever.
    pub artifacts: Option<Duration>,
}

/// `reports.<name>`: what `report_generation` renders.
#[derive(Clone, Debug)]
pub struct Report {
    /// Template text (given inline as `template`, or read from `template_file`).
    pub template: String,
    /// Name in the template → query.
    pub queries: BTreeMap<String, ReportQuery>,
    /// Name in the template → HTTP GET whose JSON answer it is.
    pub fetches: BTreeMap<String, ReportFetch>,
    /// Prompt template of the model's summary; `None` for none.
    pub summary_prompt: Option<String>,
    /// Media type of the artifact, default `text/markdown`.
    pub content_type: String,
}

/// `reports.<name>.queries.<name>`.
#[derive(Clone, Debug)]
pub struct ReportQuery {
    /// Name in `sources`.
    pub source: String,
    /// SQL with `$1…`.
    pub sql: String,
    /// Values of the parameters.
    pub params: Vec<Value>,
}

/// `reports.<name>.fetches.<name>`.
#[derive(Clone)]
pub struct ReportFetch {
    /// The URL; it passes the network guard.
    pub url: String,
    /// Headers; values may be `secret:NAME`.
    pub headers: BTreeMap<String, String>,
}

impl fmt::Debug for ReportFetch {
    /// Host and names of headers: a variable may have put credentials into the rest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportFetch")
            .field("url", &super::Redacted(&self.url))
            .field("headers", &self.headers.keys())
            .finish()
    }
}
