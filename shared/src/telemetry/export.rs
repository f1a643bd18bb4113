//! The three providers: always there, with an exporter each where one is configured.
//!
//! Without a collector spans still get valid random ids, so that tasks show a trace id and messages
//! carry a context, and metrics are still gathered for `/metrics`. Batch processors only; the HTTP
//! exporter keeps its blocking client, because their threads have no async runtime.

use std::fmt::Display;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{ExporterBuildError, LogExporter, MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, TracerProviderBuilder,
};

use super::settings::{Protocol, Settings, Signal};

/// Spans wait this long for company; what waits is lost with the process.
const SPAN_DELAY: Duration = Duration::from_secs(1);

/// The providers of one process.
#[derive(Clone, Debug)]
pub(super) struct Providers {
    pub traces: SdkTracerProvider,
    pub metrics: SdkMeterProvider,
    pub logs: Option<SdkLoggerProvider>,
}

/// Builds them; an exporter that cannot be built is a warning.
pub(super) fn providers(
    settings: &mut Settings,
    resource: &Resource,
    registry: &prometheus::Registry,
) -> Providers {
    let logs = exporter(settings, Signal::Logs, |protocol| match protocol {
        Protocol::Grpc => LogExporter::builder().with_tonic().build(),
        Protocol::Http => LogExporter::builder().with_http().build(),
    });
    let logs = logs.map(|exporter| {
        SdkLoggerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.clone())
            .build()
    });
    Providers {
        traces: traces(settings, resource),
        metrics: metrics(settings, resource, registry),
        logs,
    }
}

/// A tracer provider that gives ids and sends nothing.
pub(super) fn bare() -> SdkTracerProvider {
    SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOn).build()
}

/// The tracer provider: samples everything unless the user chose a sampler.
fn traces(settings: &mut Settings, resource: &Resource) -> SdkTracerProvider {
    let exporter = exporter(settings, Signal::Traces, |protocol| match protocol {
        Protocol::Grpc => SpanExporter::builder().with_tonic().build(),
        Protocol::Http => SpanExporter::builder().with_http().build(),
    });
    let mut builder = SdkTracerProvider::builder().with_resource(resource.clone());
    if !settings.sampler {
        // Decided here, not by a flag in somebody's message.
        builder = builder.with_sampler(Sampler::AlwaysOn);
    }
    if let Some(exporter) = exporter {
        builder = with_batches(builder, exporter, settings.span_delay);
    }
    builder.build()
}

/// Adds the batch processor.
fn with_batches(
    builder: TracerProviderBuilder,
    exporter: SpanExporter,
    chosen_by_user: bool,
) -> TracerProviderBuilder {
    let mut batches = BatchConfigBuilder::default();
    if !chosen_by_user {
        batches = batches.with_scheduled_delay(SPAN_DELAY);
    }
    let processor =
        BatchSpanProcessor::builder(exporter).with_batch_config(batches.build()).build();
    builder.with_span_processor(processor)
}

/// The meter provider: `/metrics` reads the same instruments that OTLP sends.
fn metrics(
    settings: &mut Settings,
    resource: &Resource,
    registry: &prometheus::Registry,
) -> SdkMeterProvider {
    let mut builder = SdkMeterProvider::builder().with_resource(resource.clone());
    let page = opentelemetry_prometheus::exporter()
        .with_registry(registry.clone())
        .scope_info_enabled(false)
        .build();
    match page {
        Ok(reader) => builder = builder.with_reader(reader),
        Err(error) => settings.warnings.push(format!("/metrics stays empty: {error}")),
    }
    let exporter = exporter(settings, Signal::Metrics, |protocol| match protocol {
        Protocol::Grpc => MetricExporter::builder().with_tonic().build(),
        Protocol::Http => MetricExporter::builder().with_http().build(),
    });
    if let Some(exporter) = exporter {
        builder = builder.with_periodic_exporter(exporter);
    }
    builder.build()
}

/// Builds a signal's exporter, or keeps the reason why there is none.
fn exporter<E>(
    settings: &mut Settings,
    signal: Signal,
    build: impl FnOnce(Protocol) -> Result<E, ExporterBuildError>,
) -> Option<E> {
    let protocol = match signal {
        Signal::Traces => settings.traces,
        Signal::Metrics => settings.metrics,
        Signal::Logs => settings.logs,
    }?;
    let mut refuse = |why: &dyn Display| {
        let signal = signal.name().to_lowercase();
        settings.warnings.push(format!("{signal} are not exported: {why}"));
        None
    };
    // The gRPC channel is spawned onto the runtime that is current now.
    if protocol == Protocol::Grpc && tokio::runtime::Handle::try_current().is_err() {
        return refuse(&"gRPC needs a running tokio runtime");
    }
    build(protocol).map_or_else(|error| refuse(&error), Some)
}

/// Who sends: overridable by the standard's variables.
pub(super) fn resource(settings: &Settings, service: &str, instance: &str) -> Resource {
    let builder = Resource::builder_empty()
        .with_service_name(format!("belfry-{service}"))
        .with_attributes([
            KeyValue::new("service.namespace", "belfry"),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance.to_owned()),
        ])
        .with_detectors(&[
            Box::new(TelemetryResourceDetector),
            Box::new(EnvResourceDetector::new()),
        ]);
    match &settings.service_name {
        Some(name) => builder.with_service_name(name.clone()).build(),
        None => builder.build(),
    }
}
