//! What arrived, flattened to what a test asks for.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::{Value, json};

/// Attributes by name.
type Attributes = BTreeMap<String, Value>;

/// Everything that has arrived, in order.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Spans, ended ones only.
    pub spans: Vec<ReceivedSpan>,
    /// Points of metrics.
    pub metrics: Vec<ReceivedMetric>,
    /// Log lines.
    pub logs: Vec<ReceivedLog>,
}

/// A span.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    /// Name.
    pub name: String,
    /// `internal`, `server`, `client`, `producer`, `consumer`.
    pub kind: &'static str,
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// 16 hexadecimal digits, empty for a root.
    pub parent_span_id: String,
    /// Trace, span and `belfry.link` of each link.
    pub links: Vec<(String, String, String)>,
    /// Attributes.
    pub attributes: Attributes,
    /// Status is error.
    pub failed: bool,
    /// Message of the status.
    pub message: String,
    /// The sender's `service.name` and other attributes.
    pub resource: Attributes,
}

/// One point of a metric.
#[derive(Clone, Debug)]
pub struct ReceivedMetric {
    /// Name.
    pub name: String,
    /// Attributes.
    pub attributes: Attributes,
    /// Value of a counter or gauge, sum of a histogram.
    pub value: f64,
    /// Observations of a histogram.
    pub count: u64,
    /// Bounds of a histogram's buckets.
    pub bounds: Vec<f64>,
}

/// A log line.
#[derive(Clone, Debug)]
pub struct ReceivedLog {
    /// Message.
    pub body: Value,
    /// Module that wrote it.
    pub target: String,
    /// `INFO`, …
    pub severity: String,
    /// Trace it was written in, empty outside.
    pub trace_id: String,
    /// Name of the event, where it has one.
    pub event: String,
    /// Attributes.
    pub attributes: Attributes,
}

impl Received {
    /// The first span of a name.
    pub fn span(&self, name: &str) -> Option<&ReceivedSpan> {
        self.spans.iter().find(|span| span.name == name)
    }

    pub(super) fn add_traces(&mut self, request: ExportTraceServiceRequest) {
        for resource in request.resource_spans {
            let sender = sender(resource.resource);
            let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.spans.extend(spans.map(|span| received_span(span, sender.clone())));
        }
    }

    pub(super) fn add_metrics(&mut self, request: ExportMetricsServiceRequest) {
        let scopes = request.resource_metrics.into_iter().flat_map(|it| it.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            self.add_metric(metric);
        }
    }

    fn add_metric(&mut self, metric: Metric) {
        let name = metric.name;
        let point = |point: NumberDataPoint| ReceivedMetric {
            name: name.clone(),
            attributes: attributes(point.attributes),
            value: match point.value {
                Some(Number::AsDouble(value)) => value,
                Some(Number::AsInt(value)) => value as f64,
                None => 0.0,
            },
            count: 0,
            bounds: Vec::new(),
        };
        match metric.data {
            Some(Data::Sum(sum)) => self.metrics.extend(sum.data_points.into_iter().map(point)),
            Some(Data::Gauge(gauge)) => {
                self.metrics.extend(gauge.data_points.into_iter().map(point));
            }
            Some(Data::Histogram(histogram)) => {
                let points = histogram.data_points.into_iter();
                self.metrics.extend(points.map(|point| ReceivedMetric {
                    name: name.clone(),
                    attributes: attributes(point.attributes),
                    value: point.sum.unwrap_or_default(),
                    count: point.count,
                    bounds: point.explicit_bounds,
                }));
            }
            // The house makes no other kinds.
            _ => {}
        }
    }

    pub(super) fn add_logs(&mut self, request: ExportLogsServiceRequest) {
        for scope in request.resource_logs.into_iter().flat_map(|it| it.scope_logs) {
            let target = scope.scope.unwrap_or_default().name;
            self.logs.extend(scope.log_records.into_iter().map(|record| ReceivedLog {
                body: value(record.body),
                target: target.clone(),
                severity: record.severity_text,
                trace_id: hex(&record.trace_id),
                event: record.event_name,
                attributes: attributes(record.attributes),
            }));
        }
    }
}

fn received_span(span: Span, resource: Attributes) -> ReceivedSpan {
    let kind = match span.kind() {
        SpanKind::Unspecified => "unspecified",
        SpanKind::Internal => "internal",
        SpanKind::Server => "server",
        SpanKind::Client => "client",
        SpanKind::Producer => "producer",
        SpanKind::Consumer => "consumer",
    };
    let links = span.links.into_iter().map(|link| {
        let role = attributes(link.attributes).remove("belfry.link");
        let role = role.and_then(|role| role.as_str().map(str::to_owned)).unwrap_or_default();
        (hex(&link.trace_id), hex(&link.span_id), role)
    });
    let links = links.collect();
    let status = span.status.unwrap_or_default();
    ReceivedSpan {
        name: span.name,
        kind,
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent_span_id: hex(&span.parent_span_id),
        links,
        attributes: attributes(span.attributes),
        failed: status.code() == StatusCode::Error,
        message: status.message,
        resource,
    }
}

fn sender(resource: Option<Resource>) -> Attributes {
    attributes(resource.unwrap_or_default().attributes)
}

fn attributes(pairs: Vec<KeyValue>) -> Attributes {
    pairs.into_iter().map(|pair| (pair.key, value(pair.value))).collect()
}

fn value(any: Option<AnyValue>) -> Value {
    match any.and_then(|any| any.value) {
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::BoolValue(truth)) => json!(truth),
        Some(Any::IntValue(number)) => json!(number),
        Some(Any::DoubleValue(number)) => json!(number),
        Some(Any::ArrayValue(list)) => {
            list.values.into_iter().map(|item| value(Some(item))).collect()
        }
        Some(Any::KvlistValue(list)) => json!(attributes(list.values)),
        Some(Any::BytesValue(bytes)) => json!(hex(&bytes)),
        _ => Value::Null,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
