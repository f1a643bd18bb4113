//! What `loadtest throughput` says: names that do not change, units in the names.

use serde::Serialize;

/// The whole document.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// How it was run.
    pub setup: Setup,
    /// Tasks accepted: row, input and key committed, message confirmed and marked.
    pub publish: Publish,
    /// The full queue, worked off.
    pub drain: Drain,
    /// A small steady feed.
    pub steady: Steady,
    /// No promise was broken.
    pub ledger_ok: bool,
    /// Which was, if any.
    pub ledger_broken: Option<String>,
}

/// How it was run.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Tasks.
    pub tasks: usize,
    /// Slots of each worker, and its prefetch.
    pub slots: u16,
    /// Worker processes.
    pub workers: usize,
    /// Size of the text in each payload.
    pub payload_bytes: usize,
    /// `release` or `debug`: figures of the latter say nothing.
    pub build: &'static str,
    /// Processors that this machine offers.
    pub cpus: usize,
}

/// The first phase.
#[derive(Clone, Debug, Serialize)]
pub struct Publish {
    /// First call to last mark.
    pub seconds: f64,
    /// Tasks a second.
    pub per_second: f64,
    /// Bytes that the server logged for each task.
    pub wal_bytes_per_task: f64,
}

/// The second phase.
#[derive(Clone, Debug, Serialize)]
pub struct Drain {
    /// Start of the first worker until all were ready: not part of the rate.
    pub start_up_seconds: f64,
    /// First completed row until all are completed and the queues empty.
    pub seconds: f64,
    /// Tasks a second.
    pub per_second: f64,
    /// Messages that were in workers' hands at that moment and came back when they stopped: copies
    /// of tasks that had completed. Where there are any, the queue was emptied a little later.
    pub messages_returned: u32,
    /// Processor time of all workers for each task, start-up apart.
    pub worker_cpu_micros_per_task: f64,
    /// Peak memory of all workers together.
    pub worker_peak_rss_bytes: u64,
    /// Transactions for each task, the workers' background work included.
    pub commits_per_task: f64,
    /// Bytes that the server logged for each task.
    pub wal_bytes_per_task: f64,
}

/// The third phase. Milliseconds are from a task's row to its completed row.
#[derive(Clone, Debug, Serialize)]
pub struct Steady {
    /// Tasks a second, as fed.
    pub per_second: u32,
    /// Tasks that count; one second of feed before them does not.
    pub tasks: usize,
    /// Half are faster.
    pub p50_ms: f64,
    /// One in twenty is slower.
    pub p95_ms: f64,
    /// One in a hundred is slower.
    pub p99_ms: f64,
}
