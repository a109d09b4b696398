//! Protobuf decoder through its public function: what it reports of a body, and what it refuses.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic fails the test"
)]

#[path = "../support/encode.rs"]
mod encode;
#[path = "../support/mod.rs"]
mod support;

// The benchmark's deliveries, in both formats.
#[path = "../../examples/bench_core/json.rs"]
mod json_form;
#[path = "../../examples/bench_core/payload.rs"]
mod payload;
#[path = "../../examples/bench_core/protobuf.rs"]
mod protobuf_form;

mod conformance;
mod messages;
mod properties;
mod same_delivery;
mod values;
mod wire;

use _transcode::limits::Limits;
use _transcode::otlp;
use _transcode::refusal::Refusal;
use encode::{fixed64, int, len};
use support::{RecordedSpan, Recorder, Recording};

const TRACE: [u8; 16] = *b"\x5b\x8e\xff\xf7\x98\x03\x81\x03\xd2\x69\xb6\x33\x81\x3f\xc6\x0c";
const SPAN: [u8; 8] = *b"\xee\xe1\x9b\x7e\xc3\xc1\xb1\x74";

fn decode_within(limits: Limits, body: &[u8]) -> Result<Recording, Refusal> {
    let mut recorder = Recorder::within(limits);
    otlp::decode(body, &limits, &mut recorder)?;
    Ok(recorder.recording)
}

fn decode(body: &[u8]) -> Result<Recording, Refusal> {
    decode_within(Limits::default(), body)
}

/// Decodes a body of one span.
fn decode_span(body: &[u8]) -> RecordedSpan {
    decode(body).unwrap().spans().next().unwrap().clone()
}

/// Returns the fields of a valid span.
fn span_fields() -> Vec<Vec<u8>> {
    vec![
        len(1, TRACE),
        len(2, SPAN),
        len(5, "GET /"),
        int(6, 2),
        fixed64(7, 1_700_000_000_000_000_000),
        fixed64(8, 1_700_000_000_000_000_009),
    ]
}

/// Returns a body of one resource, one scope and one span with these fields in addition to the valid fields.
fn body_of_span(more: &[Vec<u8>]) -> Vec<u8> {
    let span = [span_fields().concat(), more.concat()].concat();
    len(1, len(2, len(2, span)))
}

/// Returns a body of one span with one attribute `k`, whose `KeyValue` continues with these fields.
fn body_of_attribute(after_key: &[Vec<u8>]) -> Vec<u8> {
    body_of_span(&[len(9, [len(1, "k"), after_key.concat()].concat())])
}
