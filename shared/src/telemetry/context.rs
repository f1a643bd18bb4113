//! W3C trace context as text: what travels in message headers and rows.
//!
//! Reading is strict and never fails the caller: what is not exactly a version-00 `traceparent` is
//! no context at all, and the span that wanted it becomes a new root.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Length of a version-00 `traceparent`.
const LENGTH: usize = 55;

/// Reads a `traceparent`; `None` for anything but the exact form with non-zero ids.
pub fn parse(traceparent: &str) -> Option<SpanContext> {
    if traceparent.len() != LENGTH || !traceparent.is_ascii() {
        return None;
    }
    let mut parts = traceparent.split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let well_formed = parts.next().is_none()
        && version == "00"
        && [(trace, 32), (span, 16), (flags, 2)].into_iter().all(|(part, length)| {
            part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        });
    if !well_formed {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()? & TraceFlags::SAMPLED.to_u8());
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        flags,
        true,
        TraceState::default(),
    );
    context.is_valid().then_some(context)
}

/// Writes a `traceparent`; `None` for a context without ids.
pub fn format(context: &SpanContext) -> Option<String> {
    context.is_valid().then(|| {
        let flags = context.trace_flags().to_u8();
        format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_good_traceparent_comes_back_as_it_went_in() {
        let context = parse(GOOD).expect("good");
        assert!(context.is_remote() && context.is_sampled());
        assert_eq!(format(&context).as_deref(), Some(GOOD));
    }

    #[test]
    fn anything_else_is_no_context() {
        let long = "0".repeat(1 << 20);
        for garbage in [
            "",
            "00",
            &long,
            &GOOD.to_uppercase(),
            &GOOD.replace("00-", "ff-"),
            &GOOD.replace("00-", "01-"),
            &GOOD.replace("-01", "-0g"),
            &GOOD.replace("-01", "-+1"),
            &GOOD.replace('-', " "),
            &format!("{GOOD}-"),
            &format!("{GOOD}-extra"),
            &format!(" {GOOD}"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c8031-c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319ü-b7ad6b716920333-01",
        ] {
            assert!(parse(garbage).is_none(), "{}", garbage.get(..60).unwrap_or(garbage));
        }
    }
}
