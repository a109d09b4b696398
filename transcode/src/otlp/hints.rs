//! Hints in refusals: name the probable format of a body that is not a trace export request.

use crate::refusal::Refusal;
use crate::visit::{Rejection, Span};
use crate::wire::{ErrorKind, WireError, wire_type};

/// Describes the error, its position, and the mistake that the sender probably made.
#[cold]
pub(super) fn refusal(error: &WireError, body: &[u8]) -> Refusal {
    // First, because the position of a protobuf error in JSON would tell the sender nothing.
    if is_json(body) {
        return Refusal::malformed(
            "body",
            "the body is JSON but its content type is protobuf; send it as application/json",
        );
    }
    if is_grpc_frame(body) {
        return Refusal::malformed(
            "body",
            "the body starts with a gRPC frame; this endpoint takes OTLP/HTTP, set the exporter to http/protobuf",
        );
    }
    let offset = error.offset_in(body);
    let hint = signal_hint(error).unwrap_or_default();
    Refusal::malformed(
        error.field(),
        format!("{} (byte {offset} of the body){hint}", error.kind()),
    )
}

fn is_json(body: &[u8]) -> bool {
    match body.trim_ascii_start() {
        // A bracket alone is also a valid protobuf tag, so the next byte must be JSON as well.
        [b'{', rest @ ..] => matches!(rest.trim_ascii_start(), [b'"' | b'}', ..]),
        [b'[', rest @ ..] => matches!(rest.trim_ascii_start(), [b'{' | b']', ..]),
        _ => false,
    }
}

/// Returns whether the body begins with a gRPC frame: a flag and a length before the message.
fn is_grpc_frame(body: &[u8]) -> bool {
    match body {
        [0 | 1, a, b, c, d, message @ ..] => {
            let declared_bytes = u32::from_be_bytes([*a, *b, *c, *d]);
            usize::try_from(declared_bytes).is_ok_and(|length| length <= message.len())
        }
        _ => false,
    }
}

const IS_LOGS: &str = "; is this a logs request? this endpoint takes traces";
const IS_METRICS: &str = "; is this a metrics request? this endpoint takes traces";

/// Returns a hint if the body is another signal. The signals share their outer messages and differ in a
/// field that has another type in a span.
fn signal_hint(error: &WireError) -> Option<&'static str> {
    let ErrorKind::WireType { found, .. } = error.kind() else {
        return None;
    };
    match (
        error
            .field()
            .strip_prefix("resource_spans.scope_spans.spans.")?,
        found & 7,
    ) {
        // A log record has times in fields 1 and 11 and a severity in field 2.
        ("trace_id" | "events", wire_type::I64) | ("span_id", wire_type::VARINT) => Some(IS_LOGS),
        // A metric may have its data points in field 7 or 10.
        ("start_time_unix_nano" | "dropped_attributes_count", wire_type::LEN) => Some(IS_METRICS),
        _ => None,
    }
}

/// Counter of spans that are probably metrics: where a span has its ids, they have a name and a description. Every
/// such span is rejected. If all spans look like metrics, the whole delivery is refused with a hint.
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
    /// If all spans look like metrics.
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
