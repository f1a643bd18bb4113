//! Every attribute and metric name that leaves the house, once.
//!
//! Semantic conventions: messaging, HTTP and database as of 1.42; GenAI as of 1.41 and the first
//! release of its own repository (0.1), whose span attributes are the same and whose metrics are
//! renamed. The names live here because the conventions crate marks all of GenAI as deprecated.
//! `belfry.*` is ours. Never a task id or a message id as a metric attribute.

/// `error.type`: the low-cardinality reason of a failure.
pub const ERROR_TYPE: &str = "error.type";
/// `server.address`.
pub const SERVER_ADDRESS: &str = "server.address";
/// `server.port`.
pub const SERVER_PORT: &str = "server.port";

/// `messaging.*`.
pub mod messaging {
    /// The value of [`SYSTEM`].
    pub const RABBITMQ: &str = "rabbitmq";
    /// `messaging.system`.
    pub const SYSTEM: &str = "messaging.system";
    /// `messaging.operation.name`: publish, process.
    pub const OPERATION_NAME: &str = "messaging.operation.name";
    /// `messaging.operation.type`: send, process.
    pub const OPERATION_TYPE: &str = "messaging.operation.type";
    /// `messaging.destination.name`.
    pub const DESTINATION: &str = "messaging.destination.name";
    /// `messaging.rabbitmq.destination.routing_key`.
    pub const ROUTING_KEY: &str = "messaging.rabbitmq.destination.routing_key";
    /// `messaging.rabbitmq.message.delivery_tag`.
    pub const DELIVERY_TAG: &str = "messaging.rabbitmq.message.delivery_tag";
    /// `messaging.message.id`.
    pub const MESSAGE_ID: &str = "messaging.message.id";
    /// `messaging.message.body.size`.
    pub const BODY_SIZE: &str = "messaging.message.body.size";
    /// `messaging.client.id`.
    pub const CLIENT_ID: &str = "messaging.client.id";
}

/// `gen_ai.*`.
pub mod gen_ai {
    /// `gen_ai.operation.name`.
    pub const OPERATION: &str = "gen_ai.operation.name";
    /// `gen_ai.provider.name`.
    pub const PROVIDER: &str = "gen_ai.provider.name";
    /// `gen_ai.request.model`.
    pub const REQUEST_MODEL: &str = "gen_ai.request.model";
    /// `gen_ai.request.max_tokens`.
    pub const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
    /// `gen_ai.request.temperature`.
    pub const REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
    /// `gen_ai.request.stream`, only when true.
    pub const REQUEST_STREAM: &str = "gen_ai.request.stream";
    /// `gen_ai.request.seed`.
    pub const REQUEST_SEED: &str = "gen_ai.request.seed";
    /// `gen_ai.request.reasoning.level`.
    pub const REASONING_LEVEL: &str = "gen_ai.request.reasoning.level";
    /// `gen_ai.output.type`: text, json.
    pub const OUTPUT_TYPE: &str = "gen_ai.output.type";
    /// `openai.response.system_fingerprint`.
    pub const FINGERPRINT: &str = "openai.response.system_fingerprint";
    /// `gen_ai.response.id`.
    pub const RESPONSE_ID: &str = "gen_ai.response.id";
    /// `gen_ai.response.model`.
    pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
    /// `gen_ai.response.finish_reasons`.
    pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
    /// `gen_ai.response.time_to_first_chunk`, seconds.
    pub const TIME_TO_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
    /// `gen_ai.usage.input_tokens`, cached ones included.
    pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    /// `gen_ai.usage.output_tokens`, reasoning included.
    pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    /// `gen_ai.usage.cache_read.input_tokens`.
    pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
    /// `gen_ai.usage.cache_write.input_tokens`.
    pub const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_write.input_tokens";
    /// `gen_ai.usage.reasoning.output_tokens`.
    pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
    /// `gen_ai.conversation.id`: the agent session.
    pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";
    /// `gen_ai.tool.name`.
    pub const TOOL_NAME: &str = "gen_ai.tool.name";
    /// `gen_ai.tool.type`: function.
    pub const TOOL_TYPE: &str = "gen_ai.tool.type";
    /// `gen_ai.tool.call.id`.
    pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
    /// `gen_ai.tool.call.arguments`, only when asked for.
    pub const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
    /// `gen_ai.tool.call.result`, only when asked for.
    pub const TOOL_RESULT: &str = "gen_ai.tool.call.result";
    /// `gen_ai.token.type`: input, output.
    pub const TOKEN_TYPE: &str = "gen_ai.token.type";
    /// `gen_ai.token.modality`.
    pub const TOKEN_MODALITY: &str = "gen_ai.token.modality";
    /// `gen_ai.input.messages`, only when asked for.
    pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
    /// `gen_ai.output.messages`, only when asked for.
    pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
}

/// `http.*` and `url.*`.
pub mod http {
    /// `http.request.method`.
    pub const METHOD: &str = "http.request.method";
    /// `http.request.resend_count`, only on repeats.
    pub const RESEND_COUNT: &str = "http.request.resend_count";
    /// `http.response.status_code`.
    pub const STATUS: &str = "http.response.status_code";
    /// `url.full`, without user, password, query and fragment.
    pub const URL: &str = "url.full";
}

/// `network.*`.
pub mod network {
    /// `network.protocol.version`: 1.1, 2.
    pub const PROTOCOL_VERSION: &str = "network.protocol.version";
}

/// `db.*`.
pub mod db {
    /// The value of [`SYSTEM`].
    pub const POSTGRESQL: &str = "postgresql";
    /// `db.system.name`.
    pub const SYSTEM: &str = "db.system.name";
    /// `db.namespace`.
    pub const NAMESPACE: &str = "db.namespace";
    /// `db.operation.name`.
    pub const OPERATION: &str = "db.operation.name";
    /// `db.query.text`: parameters stay out.
    pub const QUERY_TEXT: &str = "db.query.text";
    /// `db.query.summary`.
    pub const QUERY_SUMMARY: &str = "db.query.summary";
    /// `db.response.status_code`: the SQLSTATE.
    pub const STATUS: &str = "db.response.status_code";
    /// `db.response.returned_rows`.
    pub const RETURNED_ROWS: &str = "db.response.returned_rows";
}

/// `belfry.*`.
pub mod belfry {
    /// `belfry.schedule.name`.
    pub const SCHEDULE: &str = "belfry.schedule.name";
    /// `belfry.schedule.scheduled_at`: the planned instant, RFC 3339.
    pub const SCHEDULED_AT: &str = "belfry.schedule.scheduled_at";
    /// `belfry.schedule.tz`.
    pub const TIMEZONE: &str = "belfry.schedule.tz";
    /// `belfry.schedule.lag_ms`: how late the tick was.
    pub const LAG_MS: &str = "belfry.schedule.lag_ms";
    /// `belfry.tick.outcome`.
    pub const TICK_OUTCOME: &str = "belfry.tick.outcome";
    /// `belfry.execution_key`.
    pub const EXECUTION_KEY: &str = "belfry.execution_key";
    /// `belfry.task.id`.
    pub const TASK_ID: &str = "belfry.task.id";
    /// `belfry.task.type`.
    pub const TASK_TYPE: &str = "belfry.task.type";
    /// `belfry.attempt`: from 1.
    pub const ATTEMPT: &str = "belfry.attempt";
    /// `belfry.max_attempts`.
    pub const MAX_ATTEMPTS: &str = "belfry.max_attempts";
    /// `belfry.pool`.
    pub const POOL: &str = "belfry.pool";
    /// `belfry.timeout_ms`.
    pub const TIMEOUT_MS: &str = "belfry.timeout_ms";
    /// `belfry.redelivered`.
    pub const REDELIVERED: &str = "belfry.redelivered";
    /// `belfry.queue_wait_ms`.
    pub const QUEUE_WAIT_MS: &str = "belfry.queue_wait_ms";
    /// `belfry.outcome`.
    pub const OUTCOME: &str = "belfry.outcome";
    /// `belfry.retry.delay_ms`.
    pub const RETRY_DELAY_MS: &str = "belfry.retry.delay_ms";
    /// `belfry.step`.
    pub const STEP: &str = "belfry.step";
    /// `belfry.worker`.
    pub const WORKER: &str = "belfry.worker";
    /// `belfry.link`: what a link is to its span.
    pub const LINK: &str = "belfry.link";
    /// `belfry.llm.call_id`: the row with the prompt and the answer.
    pub const LLM_CALL_ID: &str = "belfry.llm.call_id";
    /// `belfry.llm.cost_usd`.
    pub const LLM_COST_USD: &str = "belfry.llm.cost_usd";
    /// `belfry.llm.attempts`.
    pub const LLM_ATTEMPTS: &str = "belfry.llm.attempts";
    /// `belfry.llm.wait_ms`: for the fleet's quotas, before the call.
    pub const LLM_WAIT_MS: &str = "belfry.llm.wait_ms";
    /// `belfry.quota.outcome`: granted, wait, denied.
    pub const QUOTA_OUTCOME: &str = "belfry.quota.outcome";
    /// `belfry.quota.reason`.
    pub const QUOTA_REASON: &str = "belfry.quota.reason";
    /// `belfry.quota.est_tokens`: what the call may use, at most.
    pub const QUOTA_EST_TOKENS: &str = "belfry.quota.est_tokens";
    /// `belfry.quota.wait_ms`.
    pub const QUOTA_WAIT_MS: &str = "belfry.quota.wait_ms";
    /// `belfry.dead_letter.reason`.
    pub const DEAD_LETTER_REASON: &str = "belfry.dead_letter.reason";
    /// `belfry.dead_letter.attempts`.
    pub const DEAD_LETTER_ATTEMPTS: &str = "belfry.dead_letter.attempts";
    /// `belfry.replay.of_task_id`.
    pub const REPLAY_OF: &str = "belfry.replay.of_task_id";
    /// `belfry.replay.actor`.
    pub const REPLAY_ACTOR: &str = "belfry.replay.actor";
}
