//! The guard: a started span that ends when it is dropped.

use std::future::Future;

use opentelemetry::context::FutureExt;
use opentelemetry::trace::{
    Link as SpanLink, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, Tracer,
};
use opentelemetry::{Context, KeyValue, Value};
use serde_json::Value as Json;

use crate::telemetry::logs::LogFields;
use crate::telemetry::{context, names, tracer};

/// A started span. It ends when dropped; hold it across the work that it stands for.
#[derive(Debug)]
#[must_use = "a span that is dropped at once has no length"]
pub struct Span(Context);

/// What another span is to this one (attribute `belfry.link`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Where the message was made.
    Creation,
    /// The attempt before.
    PreviousAttempt,
    /// Where the task began, when it now goes on in another trace.
    Origin,
}

impl Link {
    /// The value of the link's attribute.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creation => "creation",
            Self::PreviousAttempt => "previous_attempt",
            Self::Origin => "origin",
        }
    }
}

/// Where a new span hangs.
#[derive(Debug)]
pub(super) enum Parent<'a> {
    /// The scope that is running.
    Scope,
    /// None: a new trace.
    Root,
    /// Another process's span, by its `traceparent`; unreadable or absent is a new trace.
    Remote(Option<&'a str>),
}

/// A span about to start.
#[derive(Debug)]
pub(super) struct Draft {
    builder: SpanBuilder,
    attributes: Vec<KeyValue>,
    links: Vec<SpanLink>,
    fields: Vec<(&'static str, Json)>,
}

impl Draft {
    pub(super) fn new(name: String, kind: SpanKind) -> Self {
        Self {
            builder: SpanBuilder::from_name(name).with_kind(kind),
            attributes: Vec::with_capacity(12),
            links: Vec::new(),
            fields: Vec::new(),
        }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push(KeyValue::new(name, value));
        self
    }

    pub(super) fn with_some(self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(super) fn link(mut self, traceparent: Option<&str>, link: Link) -> Self {
        if let Some(context) = traceparent.and_then(context::parse) {
            let attributes = vec![KeyValue::new(names::belfry::LINK, link.as_str())];
            self.links.push(SpanLink::new(context, attributes, 0));
        }
        self
    }

    /// A field of every log line inside the span's scope.
    pub(super) fn logged(mut self, name: &'static str, value: impl Into<Json>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    pub(super) fn start(self, parent: &Parent<'_>) -> Span {
        let parent = match parent {
            Parent::Scope => Context::current(),
            Parent::Root => Context::new(),
            // Never Context::current() here: a stray scope must not adopt someone else's message.
            Parent::Remote(traceparent) => match traceparent.and_then(context::parse) {
                Some(remote) => Context::new().with_remote_span_context(remote),
                None => Context::new(),
            },
        };
        let builder = self.builder.with_attributes(self.attributes).with_links(self.links);
        let span = tracer().build_with_context(builder, &parent);
        let scope = parent.with_span(span);
        if self.fields.is_empty() {
            return Span(scope);
        }
        Span(scope.with_value(LogFields(self.fields)))
    }
}

impl Span {
    /// Sets an attribute; the names are in [`names`].
    pub fn set(&self, name: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(name, value));
    }

    /// Marks the operation as failed. `error_type` is a word of a small set, the same as in metrics;
    /// `message` is for people and holds no secret.
    pub fn fail(&self, error_type: &str, message: impl Into<String>) {
        self.set(names::ERROR_TYPE, error_type.to_owned());
        self.0.span().set_status(Status::error(message.into()));
    }

    /// Adds a link that was not known at the start. An unreadable `traceparent` adds none.
    pub fn link(&self, traceparent: &str, link: Link) {
        if let Some(context) = context::parse(traceparent) {
            let attributes = vec![KeyValue::new(names::belfry::LINK, link.as_str())];
            self.0.span().add_link(context, attributes);
        }
    }

    /// This span as a `traceparent`, for a header or a row. `None` once telemetry has shut down.
    pub fn traceparent(&self) -> Option<String> {
        context::format(&self.context())
    }

    /// The trace's id, 32 hexadecimal digits. `None` once telemetry has shut down.
    pub fn trace_id(&self) -> Option<String> {
        let context = self.context();
        context.is_valid().then(|| context.trace_id().to_string())
    }

    /// Runs a future inside the span: spans made there are its children, log lines carry its ids.
    pub fn in_scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        future.with_context(self.0.clone())
    }

    /// The same for work without awaits.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _scope = self.0.clone().attach();
        work()
    }

    fn context(&self) -> SpanContext {
        self.0.span().span_context().clone()
    }
}

impl Drop for Span {
    /// Ends it now, even if a spawned future still holds the scope.
    fn drop(&mut self) {
        self.0.span().end();
    }
}

/// The running scope's span, to say what became of it: it was started elsewhere and ends there.
pub fn current() -> Current {
    Current(Context::current())
}

/// A span that somebody else holds.
#[derive(Debug)]
pub struct Current(Context);

impl Current {
    /// Sets an attribute.
    pub fn set(&self, name: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(name, value));
    }

    /// Marks the operation as failed, as [`Span::fail`] does.
    pub fn fail(&self, error_type: &str, message: impl Into<String>) {
        self.set(names::ERROR_TYPE, error_type.to_owned());
        self.0.span().set_status(Status::error(message.into()));
    }
}

/// The running scope's span as a `traceparent`, for a header or a row.
pub fn current_traceparent() -> Option<String> {
    Context::map_current(|scope| context::format(scope.span().span_context()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(traceparent: Option<&str>) -> Span {
        Draft::new("s".to_owned(), SpanKind::Internal)
            .link(traceparent, Link::Creation)
            .start(&Parent::Remote(traceparent))
    }

    fn local() -> Span {
        Draft::new("s".to_owned(), SpanKind::Internal).start(&Parent::Scope)
    }

    #[tokio::test]
    async fn spans_have_ids_and_nest_without_any_set_up() {
        let outer = remote(None);
        let (inner, current) = outer.in_scope(async { (local(), current_traceparent()) }).await;
        assert_eq!(inner.trace_id(), outer.trace_id());
        assert!(outer.trace_id().is_some_and(|id| id.len() == 32));
        assert_eq!(current, outer.traceparent());
        assert_ne!(local().trace_id(), outer.trace_id(), "the scope has ended");
        assert_eq!(outer.run(local).trace_id(), outer.trace_id());
    }

    #[test]
    fn a_message_continues_its_own_trace_or_begins_one_never_the_scopes() {
        let scope = local();
        scope.run(|| {
            let good = remote(None).traceparent().expect("valid");
            assert!(remote(Some(&good)).traceparent().is_some_and(|own| own[..35] == good[..35]));
            for garbage in ["", "00-zz", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]
            {
                let span = remote(Some(garbage));
                assert!(span.trace_id().is_some() && span.trace_id() != scope.trace_id());
                span.link(garbage, Link::PreviousAttempt);
            }
        });
    }

    /// A stranger's flag must not keep a task's whole life dark.
    #[test]
    fn sampling_is_decided_here() {
        let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let own = remote(Some(unsampled)).traceparent().expect("valid");
        assert!(own.ends_with("-01"), "{own}");
    }
}
