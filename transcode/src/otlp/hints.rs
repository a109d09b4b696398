//! Hints in refusals: what a body that is not a trace export request probably is.

use crate::refusal::Refusal;
use crate::visit::{Rejection, Span};
use crate::wire::{Fault, Flaw, wire_type};

/// Describes the flaw, its position, and the probable mistake of the sender.
#[cold]
pub(super) fn refusal(flaw: &Flaw, body: &[u8]) -> Refusal {
    if is_json(body) {
        return Refusal::malformed(
            "body",
            "the body is JSON; its content type says protobuf, send application/json with it",
        );
    }
    if is_grpc_frame(body) {
        return Refusal::malformed(
            "body",
            "the body starts with a gRPC frame; this endpoint takes OTLP/HTTP, set the exporter to http/protobuf",
        );
    }
    let offset = flaw.offset_in(body);
    let hint = signal_hint(flaw).unwrap_or_default();
    Refusal::malformed(
        flaw.field(),
        format!("{} (byte {offset} of the body){hint}", flaw.fault()),
    )
}

fn is_json(body: &[u8]) -> bool {
    match body.trim_ascii_start() {
        [b'{', rest @ ..] => matches!(rest.trim_ascii_start(), [b'"' | b'}', ..]),
        [b'[', rest @ ..] => matches!(rest.trim_ascii_start(), [b'{' | b']', ..]),
        _ => false,
    }
}

/// Returns whether the body begins with a gRPC frame: a flag and a length before the message.
fn is_grpc_frame(body: &[u8]) -> bool {
    match body {
        [0 | 1, a, b, c, d, message @ ..] => {
            let announced_bytes = u32::from_be_bytes([*a, *b, *c, *d]);
            usize::try_from(announced_bytes).is_ok_and(|length| length <= message.len())
        }
        _ => false,
    }
}

const IS_LOGS: &str = "; is this a logs request? this endpoint takes traces";
const IS_METRICS: &str = "; is this a metrics request? this endpoint takes traces";

/// Returns a hint if the body is another signal. The signals share their outer messages and differ in a
/// field that has another type in a span.
fn signal_hint(flaw: &Flaw) -> Option<&'static str> {
    let Fault::WireType { found, .. } = flaw.fault() else {
        return None;
    };
    match (
        flaw.field()
            .strip_prefix("resource_spans.scope_spans.spans.")?,
        found & 7,
    ) {
        ("trace_id" | "events", wire_type::I64) | ("span_id", wire_type::VARINT) => Some(IS_LOGS),
        ("start_time_unix_nano" | "dropped_attributes_count", wire_type::LEN) => Some(IS_METRICS),
        _ => None,
    }
}

/// Counts spans that are probably metrics: in place of the ids they have a name and a description. Every
/// such span is rejected; if all are, the refusal says so.
#[derive(Default)]
pub(super) struct MetricsDetector {
    span_count: u64,
    metric_count: u64,
}

impl MetricsDetector {
    /// Inspects one span and its trace id as sent.
    pub(super) fn note(&mut self, span: &Span<'_>, trace_id: &[u8]) {
        self.span_count += 1;
        if span.trace_id == Err(Rejection::TraceIdMalformed) && span.span_id.is_err() {
            self.metric_count += u64::from(is_metric(span, trace_id));
        }
    }

    /// # Errors
    /// If all spans are metrics.
    pub(super) fn verdict(&self) -> Result<(), Refusal> {
        if self.metric_count == 0 || self.metric_count != self.span_count {
            return Ok(());
        }
        let rejection = Rejection::TraceIdMalformed.text();
        Err(Refusal::malformed(
            "resource_spans.scope_spans.spans.trace_id",
            format!("{rejection}{IS_METRICS}"),
        ))
    }
}

fn is_metric(span: &Span<'_>, name: &[u8]) -> bool {
    let has_times = span.start_unix_nano != 0 || span.end_unix_nano != 0;
    !has_times
        && name.iter().all(u8::is_ascii_graphic)
        && name.first().is_some_and(u8::is_ascii_alphabetic)
}
