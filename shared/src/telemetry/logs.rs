//! Log lines: to stderr always, over OTLP when asked; both carry the trace they belong to.
//!
//! The ids come from the OpenTelemetry context, not from tracing spans, so that a line and the span
//! around it agree. What the exporters themselves log never goes to OTLP: it would feed itself.

use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{DynFilterFn, EnvFilter, FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::{self, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context as ScopeContext, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use super::settings::Settings;

/// A collector that is down is mentioned this often, not with every batch.
const EXPORT_ERROR_EVERY_SECS: u64 = 60;

/// Targets that take part in exporting: their lines over OTLP would cause further lines.
const EXPORT_TARGETS: [&str; 7] =
    ["opentelemetry", "hyper", "tonic", "h2", "reqwest", "tower", "rustls"];

/// Talkative targets and how much of them is shown unless `RUST_LOG` names them: whatever goes wrong
/// with the broker is reported by our own room; lapin would print each look at a missing queue as an
/// error, and an unroutable message with its whole content. The database's driver prints every
/// parameter of a statement: payloads, answers, what a query of a source is given.
const QUIET: [(&str, &str); 3] = [
    ("lapin", "lapin=off"),
    ("opentelemetry", "opentelemetry=warn"),
    ("tokio_postgres", "tokio_postgres=info"),
];

/// What the head of a JSON line is called.
const HEAD: [&str; 3] = ["timestamp", "level", "target"];

/// Fields that every line inside a scope carries, kept in the OpenTelemetry context. A number is one, as
/// where an event says it: a column of a log store has one type.
#[derive(Clone, Debug, Default)]
pub(super) struct LogFields(pub Vec<(&'static str, Value)>);

/// The subscriber of the process.
pub(super) fn subscriber(
    settings: &mut Settings,
    otlp: Option<&SdkLoggerProvider>,
) -> impl Subscriber + Send + Sync + use<> {
    let filter = filter(settings);
    let lines = lines(settings).with_filter(filter.clone().and(seldom()));
    let bridge = otlp.map(|provider| {
        OpenTelemetryTracingBridge::new(provider)
            .with_filter(filter.and(filter_fn(|metadata| !takes_part_in_export(metadata))))
    });
    Registry::default().with(lines).with(bridge)
}

/// The stderr layer: text for people, JSON for machines.
fn lines(settings: &Settings) -> Box<dyn Layer<Registry> + Send + Sync> {
    let stderr = std::io::stderr;
    if settings.json {
        let inner = format::json().flatten_event(true).with_span_list(false);
        return tracing_subscriber::fmt::layer()
            .fmt_fields(JsonFields::new())
            .event_format(Traced { inner, json: true })
            .with_writer(stderr)
            .boxed();
    }
    let ansi = stderr().is_terminal() && !settings.no_color;
    tracing_subscriber::fmt::layer()
        .fmt_fields(text_fields())
        .with_ansi(ansi)
        .event_format(Traced { inner: format::format().with_ansi(ansi), json: false })
        .with_writer(stderr)
        .boxed()
}

/// Fields as `name=value` with control characters made visible: the library escapes them in the
/// message only, and a value may come from a payload.
fn text_fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    format::debug_fn(|writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let name = field.name().trim_start_matches("r#");
        // What the log facade knows of its caller is in the line's head already.
        if name.starts_with("log.") {
            return Ok(());
        }
        if name != "message" {
            write!(writer, "{name}=")?;
        }
        for c in format!("{value:?}").chars() {
            match c {
                '\n' | '\t' => writer.write_char(c)?,
                c if c.is_control() => write!(writer, "{}", c.escape_unicode())?,
                c => writer.write_char(c)?,
            }
        }
        Ok(())
    })
    .delimited(" ")
}

/// `RUST_LOG`, default info, with the talkative targets turned down.
fn filter(settings: &mut Settings) -> EnvFilter {
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let wanted = settings.filter.clone().unwrap_or_default();
    let filter = builder.parse(&wanted).unwrap_or_else(|error| {
        settings.warnings.push(format!("RUST_LOG={wanted} is ignored: {error}"));
        EnvFilter::new("info")
    });
    QUIET.iter().filter(|(target, _)| !wanted.contains(target)).fold(
        filter,
        |filter, (_, quiet)| match quiet.parse() {
            Ok(directive) => filter.add_directive(directive),
            Err(_) => filter,
        },
    )
}

/// True for the libraries under the exporters.
fn takes_part_in_export(metadata: &Metadata<'_>) -> bool {
    EXPORT_TARGETS.iter().any(|target| metadata.target().starts_with(target))
}

/// Lets one line of the exporters' own through per minute, everything else always.
fn seldom<S>() -> DynFilterFn<S, impl Fn(&Metadata<'_>, &ScopeContext<'_, S>) -> bool> {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    DynFilterFn::new(move |metadata: &Metadata<'_>, _: &ScopeContext<'_, S>| {
        if !metadata.is_event() || !metadata.target().starts_with("opentelemetry") {
            return true;
        }
        let now = start.elapsed().as_secs();
        let due = next.load(Ordering::Relaxed);
        let after = now + EXPORT_ERROR_EVERY_SECS;
        now >= due
            && next.compare_exchange(due, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    })
}

/// Adds the trace and the scope's fields to what another format writes.
struct Traced<F> {
    inner: F,
    json: bool,
}

impl<S, N, F> FormatEvent<S, N> for Traced<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::with_capacity(256);
        self.inner.format_event(ctx, Writer::new(&mut line), event)?;
        // What an event says itself is the nearer word, and a name that comes twice in one object
        // is read by each parser in its own way.
        let named = Named::by(event);
        let mut fields = scope_fields();
        fields.retain(|(name, _)| !named.has(name));
        if self.json {
            if HEAD.iter().any(|name| named.has(name)) {
                line = once(&line);
            }
            let open = line.trim_end().strip_suffix('}').unwrap_or(&line);
            writer.write_str(open)?;
            for (name, value) in &fields {
                write!(writer, ",\"{name}\":{value}")?;
            }
            return writer.write_str("}\n");
        }
        // A value with line breaks must not look like further lines of ours.
        writer.write_str(&line.trim_end().replace('\n', "\n    "))?;
        for (name, value) in &fields {
            match value {
                Value::String(text) => write!(writer, " {name}={text}")?,
                other => write!(writer, " {name}={other}")?,
            }
        }
        writer.write_char('\n')
    }
}

/// Names of the fields of an event.
#[derive(Default)]
struct Named(Vec<&'static str>);

impl Named {
    fn by(event: &Event<'_>) -> Self {
        let mut named = Self::default();
        event.record(&mut named);
        named
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

impl Visit for Named {
    fn record_debug(&mut self, field: &Field, _: &dyn fmt::Debug) {
        self.0.push(field.name().trim_start_matches("r#"));
    }
}

/// A JSON line whose event has a field by a name of the line's head: of two values the later stays.
fn once(line: &str) -> String {
    let object = serde_json::from_str::<serde_json::Map<String, Value>>(line);
    object.map_or_else(|_| line.to_owned(), |object| Value::from(object).to_string())
}

/// Trace, span and the scope's own fields of where the line was written.
fn scope_fields() -> Vec<(&'static str, Value)> {
    Context::map_current(|cx| {
        let mut fields = Vec::new();
        let span = cx.span().span_context().clone();
        if span.is_valid() {
            fields.push(("trace_id", span.trace_id().to_string().into()));
            fields.push(("span_id", span.span_id().to_string().into()));
        }
        if let Some(LogFields(own)) = cx.get() {
            fields.extend(own.iter().cloned());
        }
        fields
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::testing::Unique;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Page {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// What is written when `log` runs inside a known trace with one scope field.
    fn written(json: bool, log: impl FnOnce()) -> String {
        let page = Page::default();
        let layer = if json {
            tracing_subscriber::fmt::layer()
                .fmt_fields(JsonFields::new())
                .event_format(Traced { inner: format::json().flatten_event(true), json })
                .with_writer(page.clone())
                .boxed()
        } else {
            tracing_subscriber::fmt::layer()
                .fmt_fields(text_fields())
                .event_format(Traced { inner: format::format().with_ansi(false), json })
                .with_writer(page.clone())
                .boxed()
        };
        let span = SpanContext::new(
            TraceId::from(0xabc),
            SpanId::from(0xdef),
            TraceFlags::SAMPLED,
            true,
            TraceState::default(),
        );
        let scope = Context::new()
            .with_remote_span_context(span)
            .with_value(LogFields(vec![("task.id", "t\"1".into()), ("task.run", 2.into())]));
        let guard = scope.attach();
        tracing::subscriber::with_default(Registry::default().with(layer), log);
        drop(guard);
        let bytes = page.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_json_line_is_one_object_with_the_trace_and_the_scope() {
        let line = written(true, || tracing::info!(rows = 3, "loaded"));
        let value: Value = serde_json::from_str(&line).expect("one object");
        assert_eq!(value["trace_id"], "00000000000000000000000000000abc");
        assert_eq!(value["span_id"], "0000000000000def");
        assert_eq!(value["task.id"], "t\"1");
        assert_eq!(value["task.run"], 2, "a number, as where an event says it");
        assert_eq!(value["rows"], 3);
        assert_eq!(value["message"], "loaded");
    }

    /// What an event says of its task, and what the scope around it would say again.
    #[test]
    fn no_name_comes_twice_and_the_events_own_word_counts() {
        let line = written(true, || tracing::info!(task.id = %"t2", span_id = 5, "ended"));
        let object: Unique = serde_json::from_str(&line).expect("one object, each key once");
        assert_eq!((&object.0["task.id"], &object.0["span_id"]), (&"t2".into(), &5.into()));
        assert!(object.0.contains_key("trace_id"), "{line}");

        let head = written(true, || tracing::info!(level = 7, target = "h:1", "asked"));
        serde_json::from_str::<Unique>(&head).unwrap_or_else(|error| panic!("{error}: {head}"));

        let text = written(false, || tracing::info!(task.id = %"t2", "ended"));
        assert_eq!(text.matches("task.id=").count(), 1, "{text}");
        assert!(text.contains("task.id=t2 trace_id="), "{text}");
    }

    #[test]
    fn a_text_line_ends_with_the_trace() {
        let line = written(false, || tracing::info!(rows = 3, "loaded"));
        assert!(line.contains("loaded rows=3 trace_id=00000000000000000000000000000abc"), "{line}");
        assert!(line.ends_with(" task.id=t\"1 task.run=2\n"), "{line}");
        assert_eq!(line.matches('\n').count(), 1);
    }

    /// S8: a value may hold line breaks and terminal escapes, and must forge nothing.
    #[test]
    fn values_forge_no_line_and_move_no_cursor() {
        let evil = "x\u{1b}[2J\n2026-01-01T00:00:00Z ERROR forged";
        for json in [false, true] {
            let text = written(json, || tracing::info!(value = %evil, "{evil}"));
            assert!(!text.contains('\u{1b}'), "{text:?}");
            assert!(text.lines().all(|line| !line.starts_with("2026-01-01")), "{text:?}");
        }
    }

    #[test]
    fn a_dead_collector_is_mentioned_once_a_minute() {
        let page = Page::default();
        let layer = tracing_subscriber::fmt::layer().with_writer(page.clone());
        let subscriber = Registry::default().with(layer.with_filter(seldom()));
        tracing::subscriber::with_default(subscriber, || {
            for n in 0..3 {
                tracing::error!(target: "opentelemetry_sdk", n, "export failed");
                tracing::info!(n, "work");
            }
        });
        let text = String::from_utf8(page.0.lock().expect("not poisoned").clone()).expect("text");
        assert_eq!(text.matches("export failed").count(), 1, "{text}");
        assert_eq!(text.matches("work").count(), 3, "{text}");
    }
}
