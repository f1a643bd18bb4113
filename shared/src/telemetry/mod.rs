//! Logs, traces and metrics: what an operator sees of the house.
//!
//! [`init`] is called once by every `main`, inside the runtime, and [`Telemetry::shutdown`] last of
//! all. [`spans`] has one constructor per kind of span and [`metrics`] one function per measurement,
//! so that no other room spells a name. Telemetry never stops the work: a bad endpoint is a warning,
//! a dead collector costs at most [`SHUTDOWN_LIMIT`] at the end. The durable record is Postgres.

pub mod context;
mod export;
mod logs;
pub mod metrics;
pub mod names;
#[cfg(feature = "testing")]
pub mod receiver;
mod settings;
pub mod spans;

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::global;
use opentelemetry_sdk::error::OTelSdkResult;
use tracing::warn;

use export::Providers;
use settings::Settings;
pub use spans::Span;

/// Longest that the end of the process waits for a collector; the three signals end side by side.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// Our own instrumentation scope.
const SCOPE: &str = "belfry";

/// Prompts and answers may appear on spans.
static CONTENT: AtomicBool = AtomicBool::new(false);

/// A provider is installed: ours, or the bare one for processes that never call [`init`].
static PROVIDER: Once = Once::new();

/// Why telemetry could not be set up at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A second call, or another library was first.
    #[error("logging is already set up in this process: {0}")]
    Twice(#[from] tracing::subscriber::SetGlobalDefaultError),
}

/// What has to be flushed at the end.
#[derive(Debug)]
#[must_use = "without shutdown the last spans are lost"]
pub struct Telemetry(Providers);

/// Sets up logs, traces and metrics by the environment.
///
/// `service` is producer, worker or loadtest; `instance` tells one process from the next. Call it
/// inside the runtime (the gRPC exporter needs one) and before the first span.
pub fn init(service: &str, instance: &str) -> Result<Telemetry, Error> {
    crate::http::install_crypto();
    let mut settings = Settings::from_env();
    CONTENT.store(settings.content, Ordering::Relaxed);

    let resource = export::resource(&settings, service, instance);
    let providers = export::providers(&mut settings, &resource, metrics::registry());
    let subscriber = logs::subscriber(&mut settings, providers.logs.as_ref());
    tracing::subscriber::set_global_default(subscriber)?;

    PROVIDER.call_once(|| ());
    global::set_tracer_provider(providers.traces.clone());
    global::set_meter_provider(providers.metrics.clone());
    metrics::start(&providers.metrics);
    for warning in &settings.warnings {
        warn!("telemetry: {warning}");
    }
    Ok(Telemetry(providers))
}

/// The tracer of the house. Without [`init`] its spans have ids and go nowhere.
fn tracer() -> global::BoxedTracer {
    PROVIDER.call_once(|| global::set_tracer_provider(export::bare()));
    global::tracer(SCOPE)
}

/// True when prompts and answers may appear on spans.
pub fn captures_content() -> bool {
    CONTENT.load(Ordering::Relaxed)
}

impl Telemetry {
    /// Sends what waits, and gives up after [`SHUTDOWN_LIMIT`]. Spans made later have no ids.
    ///
    /// Each provider ends on a thread of its own: inline, the gRPC exporter would wait for the very
    /// runtime that waits for it, and the runtime's blocking pool would be joined at exit.
    pub async fn shutdown(self) {
        let Providers { traces, metrics, logs } = self.0;
        let all = async {
            tokio::join!(
                end("traces", move |limit| traces.shutdown_with_timeout(limit)),
                end("metrics", move |limit| metrics.shutdown_with_timeout(limit)),
                end("logs", move |limit| logs.map_or(Ok(()), |it| it.shutdown_with_timeout(limit))),
            )
        };
        if tokio::time::timeout(SHUTDOWN_LIMIT, all).await.is_err() {
            warn!("telemetry: the collector did not take the last batches in {SHUTDOWN_LIMIT:?}");
        }
    }
}

/// Ends one provider on its own thread.
async fn end(signal: &'static str, stop: impl FnOnce(Duration) -> OTelSdkResult + Send + 'static) {
    let (done, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Whoever waited may have given up.
        let _ = done.send(stop(SHUTDOWN_LIMIT));
    });
    if let Ok(Err(error)) = ended.await {
        warn!("telemetry: the last {signal} were not sent: {error}");
    }
}
