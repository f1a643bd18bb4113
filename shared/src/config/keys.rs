//! Every key that the reader knows, section by section.
//!
//! The reader checks mappings against these lists, and a test holds `docs/configuration.md` to
//! them; a key exists here or nowhere.

/// A mapping with fixed keys: its path (`*` stands for a free name or an index) and its keys.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Path of the mapping, empty for the file itself.
    pub section: &'static str,
    /// What it may hold.
    pub names: &'static [&'static str],
}

impl Keys {
    /// Full paths of the keys, as the documentation spells them.
    pub fn paths(self) -> impl Iterator<Item = String> {
        self.names.iter().map(move |name| match self.section {
            "" => (*name).to_owned(),
            section => format!("{section}.{name}"),
        })
    }
}

macro_rules! keys {
    ($($constant:ident $section:literal: $($name:literal)+;)+) => {
        $(pub(super) const $constant: Keys = Keys { section: $section, names: &[$($name),+] };)+
        /// All mappings with fixed keys.
        pub const ALL: &[Keys] = &[$($constant),+];
    };
}

keys! {
    ROOT "": "scheduler" "storage" "model" "task_pools" "tasks" "alerts" "sources" "secrets" "http"
        "limits" "retention" "reports" "artifacts" "handlers" "http_addr";
    SCHEDULER "scheduler": "heartbeat_interval" "heartbeat_ttl" "timezone" "max_retry"
        "retry_backoff_base" "retry_backoff_max";
    STORAGE "storage": "postgres" "rabbitmq" "redis";
    POSTGRES "storage.postgres": "dsn";
    RABBITMQ "storage.rabbitmq": "url" "prefix";
    MODEL "model": "base_url" "api_key" "default_model" "timeout" "endpoints" "fallback" "prices"
        "limits";
    ENDPOINT "model.endpoints.*": "base_url" "api_key" "models";
    PRICE "model.prices.*": "input" "cached_input" "output" "reasoning";
    MODEL_LIMIT "model.limits.*": "requests_per_minute" "burst" "tokens_per_minute" "in_flight"
        "daily_tokens" "daily_cost" "timezone" "over_budget";
    OVER_BUDGET "model.limits.*.over_budget": "downgrade";
    POOL "task_pools.*": "max_workers" "task_types";
    TASK "tasks[*]": "name" "schedule" "timezone" "task_type" "payload" "execution_key_template"
        "overlap" "catch_up" "catch_up_window" "timeout" "max_retry" "retry_backoff_base"
        "retry_backoff_max" "semantics" "paused" "jitter" "start_at" "end_at" "deadline" "priority"
        "renamed_from" "budget";
    BUDGET "tasks[*].budget": "daily_tokens" "daily_cost" "over_budget";
    ALERTS "alerts": "webhook" "repeat";
    SOURCE "sources.*": "dsn" "mode" "max_rows" "statement_timeout";
    HTTP "http": "allow_hosts" "allow_private";
    LIMITS "limits": "ack_early_above" "crash_limit" "drain";
    RETENTION "retention": "completed" "dead" "execution_keys" "artifacts";
    REPORT "reports.*": "template" "template_file" "queries" "fetches" "summary_prompt"
        "content_type";
    QUERY "reports.*.queries.*": "source" "sql" "params";
    FETCH "reports.*.fetches.*": "url" "headers";
    ARTIFACTS "artifacts": "dir";
    HANDLERS "handlers": "agent_session";
    AGENT_SESSION "handlers.agent_session": "tools";
}

/// What other schedulers call our keys, and which of ours is meant.
pub(super) const SYNONYMS: &[(&str, &str)] = &[
    ("cron", "schedule"),
    ("expression", "schedule"),
    ("type", "task_type"),
    ("tz", "timezone"),
    ("time_zone", "timezone"),
    ("concurrency_policy", "overlap"),
    ("starting_deadline_seconds", "deadline"),
    ("active_deadline_seconds", "timeout"),
    ("backoff_limit", "max_retry"),
    ("retries", "max_retry"),
    ("suspend", "paused"),
    ("enabled", "paused"),
    ("execution_key", "execution_key_template"),
    ("pools", "task_pools"),
    ("schedules", "tasks"),
    ("amqp", "rabbitmq"),
    ("postgresql", "postgres"),
    ("url", "dsn"),
    ("concurrency", "max_workers"),
    ("query", "sql"),
    ("tokens_per_day", "daily_tokens"),
    ("cost_per_day", "daily_cost"),
    ("rpm", "requests_per_minute"),
    ("tpm", "tokens_per_minute"),
    ("concurrency", "in_flight"),
];

/// Keys of older schedulers that load and do nothing here, each with the reason.
pub(super) const INERT: &[(&str, &str)] = &[(
    "storage.redis",
    "does nothing here: RabbitMQ carries the messages and Postgres keeps the tasks; it can be deleted",
)];

/// Handlers that come with a worker.
pub const BUILT_IN_TYPES: [&str; 8] = [
    "agent_session",
    "command",
    "data_processing",
    "db_query",
    "http_call",
    "model_invoke",
    "probe",
    "report_generation",
];
