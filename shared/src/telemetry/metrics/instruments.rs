//! The instruments: name, unit, buckets and meaning of every measurement.

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};

/// Seconds, from a fast query to an hour's report.
const SECONDS: [f64; 15] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0];

/// Seconds of a model call: the conventions' buckets, and three more for reasoning models.
const MODEL_SECONDS: [f64; 17] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
    327.68, 655.36,
];

/// Tokens: powers of four.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// All of them, made once the provider is installed.
pub(super) struct Instruments {
    pub attempts: Counter<u64>,
    pub queue_wait: Histogram<f64>,
    pub slots_busy: Gauge<u64>,
    pub slots: Gauge<u64>,
    pub slots_lost: Gauge<u64>,
    pub sent: Counter<u64>,
    pub consumed: Counter<u64>,
    pub operation_duration: Histogram<f64>,
    pub process_duration: Histogram<f64>,
    pub rejected: Counter<u64>,
    pub ticks: Counter<u64>,
    pub tick_lag: Histogram<f64>,
    pub leader: Gauge<u64>,
    pub given_back: Counter<u64>,
    pub fenced: Counter<u64>,
    pub dead_letters: Gauge<u64>,
    pub http_duration: Histogram<f64>,
    pub db_duration: Histogram<f64>,
    pub quota_wait: Histogram<f64>,
    pub quota_denied: Counter<u64>,
    pub chat_reused: Counter<u64>,
    /// The same duration under the name of 0.1 and the one before.
    pub chat_duration: [Histogram<f64>; 2],
    pub first_chunk: Histogram<f64>,
    pub chunk_gap: Histogram<f64>,
    pub input_tokens: Counter<u64>,
    pub output_tokens: Counter<u64>,
    pub cache_read_tokens: Counter<u64>,
    pub cache_write_tokens: Counter<u64>,
    pub reasoning_tokens: Counter<u64>,
    /// Tokens under the name before 0.1.
    pub token_usage: Histogram<u64>,
    pub cost: Counter<f64>,
}

impl Instruments {
    /// Makes them; a name that is used twice would be a bug the SDK reports.
    pub(super) fn new(meter: &Meter) -> Self {
        let count = |name, unit, what| -> Counter<u64> {
            meter.u64_counter(name).with_unit(unit).with_description(what).build()
        };
        let gauge = |name, unit, what| -> Gauge<u64> {
            meter.u64_gauge(name).with_unit(unit).with_description(what).build()
        };
        let seconds = |name: &str, buckets: &[f64], what| -> Histogram<f64> {
            let histogram =
                meter.f64_histogram(name.to_owned()).with_unit("s").with_description(what);
            histogram.with_boundaries(buckets.to_vec()).build()
        };
        Self {
            attempts: count("belfry.task.attempts", "{attempt}", "Attempts, by how they ended."),
            queue_wait: seconds("belfry.task.queue_wait", &SECONDS, "From due to claimed."),
            slots_busy: gauge("belfry.pool.busy", "{slot}", "Slots at work."),
            slots: gauge("belfry.pool.slots", "{slot}", "Slots of the pool in this process."),
            slots_lost: gauge(
                "belfry.pool.lost",
                "{slot}",
                "Slots held by handlers that do not end.",
            ),
            sent: count("messaging.client.sent.messages", "{message}", "Messages published."),
            consumed: count(
                "messaging.client.consumed.messages",
                "{message}",
                "Deliveries received.",
            ),
            operation_duration: seconds(
                "messaging.client.operation.duration",
                &SECONDS,
                "From publishing to the broker's confirmation.",
            ),
            process_duration: seconds(
                "messaging.process.duration",
                &SECONDS,
                "From receipt of a delivery to its settlement.",
            ),
            rejected: count(
                "belfry.messages.rejected",
                "{message}",
                "Messages that point to nothing.",
            ),
            ticks: count("belfry.ticks", "{tick}", "Ticks, by outcome."),
            tick_lag: seconds("belfry.tick.lag", &SECONDS, "From the planned instant to its tick."),
            leader: gauge("belfry.producer.leader", "1", "1 on the producer that ticks."),
            given_back: count(
                "belfry.tasks.given_back",
                "{task}",
                "Tasks that the sweeps gave back.",
            ),
            fenced: count("belfry.tasks.fenced", "{write}", "Late writes that were refused."),
            dead_letters: gauge(
                "belfry.dead_letters",
                "{letter}",
                "Dead letters nobody has claimed.",
            ),
            http_duration: seconds("http.client.request.duration", &SECONDS, "HTTP requests."),
            db_duration: seconds("db.client.operation.duration", &SECONDS, "Queries of sources."),
            quota_wait: seconds("belfry.quota.wait", &SECONDS, "Waits for a model's quota."),
            quota_denied: count("belfry.quota.denied", "{call}", "Calls that a quota refused."),
            chat_reused: count("belfry.llm.reused", "{call}", "Answers taken from the store."),
            chat_duration: ["inference", "operation"].map(|generation| {
                let name = format!("gen_ai.client.{generation}.duration");
                seconds(&name, &MODEL_SECONDS, "Model calls.")
            }),
            first_chunk: seconds(
                "gen_ai.client.inference.time_to_first_chunk",
                &MODEL_SECONDS,
                "Until the first piece of a streamed answer.",
            ),
            chunk_gap: seconds(
                "gen_ai.client.inference.time_per_output_chunk",
                &MODEL_SECONDS,
                "From one piece of a streamed answer to the next.",
            ),
            input_tokens: tokens(meter, "input_tokens"),
            output_tokens: tokens(meter, "output_tokens"),
            cache_read_tokens: tokens(meter, "cache_read.input_tokens"),
            cache_write_tokens: tokens(meter, "cache_write.input_tokens"),
            reasoning_tokens: tokens(meter, "reasoning.output_tokens"),
            token_usage: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_description("Tokens of one call.")
                .with_boundaries(TOKENS.to_vec())
                .build(),
            cost: meter
                .f64_counter("belfry.llm.cost")
                .with_unit("{USD}")
                .with_description("US dollars of model calls, by the configured prices.")
                .build(),
        }
    }
}

/// One of the token counters.
fn tokens(meter: &Meter, kind: &str) -> Counter<u64> {
    meter
        .u64_counter(format!("gen_ai.client.inference.usage.{kind}"))
        .with_unit("{token}")
        .with_description("Tokens, as the provider reported them; 0 where it reported none.")
        .build()
}
