//! What `loadtest schedules` says: names that do not change, units in the names.

use serde::Serialize;

/// The whole document.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// How it was run.
    pub setup: Setup,
    /// A start that puts all entries in force.
    pub first_start: Start,
    /// A start that finds them in force.
    pub restart: Start,
    /// From the instant to the committed tick row, of those due in the same second.
    pub decided: Lateness,
    /// From the instant to the mark of the confirmed message.
    pub published: Lateness,
    /// Ticks a second while it was measured.
    pub ticks_per_second: f64,
    /// Processor time of the producer by ticks, everything else that it does included.
    pub cpu_micros_per_tick: f64,
    /// Processors that the producer kept busy.
    pub cpu_share: f64,
    /// Most memory of the producer, from `/proc`.
    pub peak_rss_bytes: u64,
    /// No promise was broken.
    pub ledger_ok: bool,
    /// Which was, if any.
    pub ledger_broken: Option<String>,
}

/// How it was run.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Schedules.
    pub count: usize,
    /// Due in the same second.
    pub due: usize,
    /// How many such seconds.
    pub bursts: u32,
    /// Size of the configuration.
    pub file_bytes: usize,
    /// `release` or `debug`: figures of the latter say nothing.
    pub build: &'static str,
    /// Processors that this machine offers.
    pub cpus: usize,
}

/// A start of the producer, until its first tick was committed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Start {
    /// By the clock.
    pub seconds: f64,
    /// Processor time of the producer.
    pub cpu_seconds: f64,
    /// Most memory until then.
    pub peak_rss_bytes: u64,
}

/// How late something was.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Lateness {
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// The worst.
    pub max_ms: f64,
}
