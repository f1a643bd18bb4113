//! What the environment says about telemetry, decided once at the start.
//!
//! The SDK reads most `OTEL_*` variables itself; those it ignores (`OTEL_SDK_DISABLED`,
//! `OTEL_*_EXPORTER`) and the choice to export at all are made here. Nothing is sent unless an
//! endpoint was named: the standard's default of localhost would fill a laptop's log with errors.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `RUST_LOG` | log filter | `info` |
//! | `LOG_FORMAT` | `json` for one JSON object a line | text |
//! | `NO_COLOR` | no colours on a terminal | unset |
//! | `OTEL_EXPORTER_OTLP_ENDPOINT`, `…_TRACES_ENDPOINT`, `…_METRICS_ENDPOINT`, `…_LOGS_ENDPOINT` | collector | none: nothing is sent |
//! | `OTEL_EXPORTER_OTLP_PROTOCOL`, `…_<SIGNAL>_PROTOCOL` | `grpc` or `http/protobuf` | `grpc` for port 4317, else `http/protobuf` |
//! | `OTEL_SDK_DISABLED` | `true`: nothing is sent | `false` |
//! | `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_LOGS_EXPORTER` | `otlp` or `none` | `otlp` |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | who sends | `belfry-producer`, … |
//! | `OTEL_BSP_SCHEDULE_DELAY` | pause between batches of spans, ms | `1000` |
//! | `OTEL_TRACES_SAMPLER` | as in the standard | every trace |
//! | `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` | `SPAN_ONLY`: prompts and answers on spans | `NO_CONTENT` |

use url::Url;

/// Port on which collectors speak gRPC by convention.
const GRPC_PORT: u16 = 4317;

/// One of the three streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    /// The part of the variables' names that stands for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }
}

/// How a collector is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Grpc,
    Http,
}

/// Everything decided.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Settings {
    /// Export of traces, if any.
    pub traces: Option<Protocol>,
    /// Export of metrics, if any.
    pub metrics: Option<Protocol>,
    /// Export of logs, if any.
    pub logs: Option<Protocol>,
    /// One JSON object a line.
    pub json: bool,
    /// Colours were refused.
    pub no_color: bool,
    /// `RUST_LOG`.
    pub filter: Option<String>,
    /// The user chose a sampler.
    pub sampler: bool,
    /// The user chose how long spans wait for a batch.
    pub span_delay: bool,
    /// `OTEL_SERVICE_NAME`.
    pub service_name: Option<String>,
    /// Prompts and answers may appear on spans.
    pub content: bool,
    /// What is wrong and therefore ignored; logged once.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Reads the process's environment.
    pub(super) fn from_env() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "OTEL_* and RUST_LOG are conventions of the environment, not of belfry.yaml"
        )]
        let read = |name: &str| std::env::var(name).ok();
        Self::from_lookup(&read)
    }

    /// The same from any source, so that tests need no environment.
    pub(super) fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Self {
        let read = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let is = |name: &str, wanted: &str| {
            read(name).is_some_and(|value| value.trim().eq_ignore_ascii_case(wanted))
        };
        let mut settings = Self {
            json: is("LOG_FORMAT", "json"),
            no_color: read("NO_COLOR").is_some(),
            filter: read("RUST_LOG"),
            sampler: read("OTEL_TRACES_SAMPLER").is_some(),
            span_delay: read("OTEL_BSP_SCHEDULE_DELAY").is_some(),
            service_name: read("OTEL_SERVICE_NAME"),
            content: ["SPAN_ONLY", "SPAN_AND_EVENT"]
                .iter()
                .any(|mode| is("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", mode)),
            ..Self::default()
        };
        if is("OTEL_SDK_DISABLED", "true") {
            return settings;
        }
        settings.traces = settings.protocol(Signal::Traces, &read);
        settings.metrics = settings.protocol(Signal::Metrics, &read);
        settings.logs = settings.protocol(Signal::Logs, &read);
        settings
    }

    /// Whether and how a signal is exported.
    fn protocol(
        &mut self,
        signal: Signal,
        read: &dyn Fn(&str) -> Option<String>,
    ) -> Option<Protocol> {
        let exporter = format!("OTEL_{}_EXPORTER", signal.name());
        match read(&exporter).as_deref().map(str::trim) {
            None | Some("otlp") => {}
            Some("none") => return None,
            Some(other) => {
                self.warn(format!("{exporter}={other} is not supported; use otlp or none"));
                return None;
            }
        }
        let of_signal = |what: &str| {
            let own = format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.name());
            let shared = format!("OTEL_EXPORTER_OTLP_{what}");
            read(&own).map(|value| (own, value)).or_else(|| read(&shared).map(|v| (shared, v)))
        };
        let (variable, endpoint) = of_signal("ENDPOINT")?;
        let Some(url) = http_url(&endpoint) else {
            self.warn(format!(
                "{variable} is not a URL with http:// or https:// (for example \
                 http://localhost:4317); no telemetry is sent there"
            ));
            return None;
        };
        match of_signal("PROTOCOL") {
            None if url.port() == Some(GRPC_PORT) => Some(Protocol::Grpc),
            None => Some(Protocol::Http),
            Some((name, value)) => match value.trim() {
                "grpc" => Some(Protocol::Grpc),
                "http/protobuf" => Some(Protocol::Http),
                other => {
                    self.warn(format!(
                        "{name}={other} is not supported; use grpc or http/protobuf"
                    ));
                    None
                }
            },
        }
    }

    /// Keeps a warning, once.
    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

/// The endpoint, if it is one that the exporters take.
fn http_url(text: &str) -> Option<Url> {
    let url = Url::parse(text.trim()).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    fn read(vars: &[(&str, &str)]) -> Settings {
        Settings::from_lookup(&|name| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[track_caller]
    fn check(vars: &[(&str, &str)], wanted: [Option<Protocol>; 3], warnings: usize) {
        let got = read(vars);
        assert_eq!([got.traces, got.metrics, got.logs], wanted, "{vars:?}");
        assert_eq!(got.warnings.len(), warnings, "{vars:?}: {:?}", got.warnings);
    }

    #[test]
    fn only_a_named_endpoint_turns_export_on() {
        let (grpc, http) = (Some(Protocol::Grpc), Some(Protocol::Http));
        check(&[], [None; 3], 0);
        check(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], [None; 3], 0);
        check(&[ENDPOINT], [http; 3], 0);
        check(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")], [grpc; 3], 0);
        check(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1")], [http, None, None], 0);
        check(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], [grpc; 3], 0);
        check(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "grpc")], [http, http, grpc], 0);
    }

    #[test]
    fn the_variables_that_the_sdk_ignores_are_honoured() {
        let http = Some(Protocol::Http);
        check(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")], [None; 3], 0);
        check(&[ENDPOINT, ("OTEL_SDK_DISABLED", "false")], [http; 3], 0);
        check(&[ENDPOINT, ("OTEL_METRICS_EXPORTER", "none")], [http, None, http], 0);
        check(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "otlp")], [http; 3], 0);
    }

    #[test]
    fn what_cannot_work_is_a_warning_and_no_export() {
        check(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "not a url")], [None; 3], 1);
        check(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")], [None; 3], 1);
        check(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")], [None; 3], 1);
        check(
            &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "zipkin")],
            [None, Some(Protocol::Http), Some(Protocol::Http)],
            1,
        );
    }
}
