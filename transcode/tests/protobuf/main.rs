//! The protobuf decoder, through its one door: what it tells of a body, and what it refuses.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "in a test a panic is the point"
)]

#[path = "../support/encode.rs"]
mod encode;
#[path = "../support/mod.rs"]
mod support;

// The bench's deliveries, and both ways to write them.
#[path = "../../examples/bench_core/json.rs"]
mod json_form;
#[path = "../../examples/bench_core/payload.rs"]
mod payload;
#[path = "../../examples/bench_core/protobuf.rs"]
mod protobuf_form;

mod alike;
mod conformance;
mod messages;
mod properties;
mod values;
mod wire;

use _transcode::limits::Limits;
use _transcode::otlp;
use _transcode::refusal::Refusal;
use encode::{fixed64, int, len};
use support::{Recorder, SpanTold, Story};

const TRACE: [u8; 16] = *b"\x5b\x8e\xff\xf7\x98\x03\x81\x03\xd2\x69\xb6\x33\x81\x3f\xc6\x0c";
const SPAN: [u8; 8] = *b"\xee\xe1\x9b\x7e\xc3\xc1\xb1\x74";

fn decode_within(limits: Limits, body: &[u8]) -> Result<Story, Refusal> {
    let mut recorder = Recorder::within(limits);
    otlp::decode(body, &limits, &mut recorder)?;
    Ok(recorder.story)
}

fn decode(body: &[u8]) -> Result<Story, Refusal> {
    decode_within(Limits::default(), body)
}

/// Decodes a body of one span.
fn decode_span(body: &[u8]) -> SpanTold {
    decode(body).unwrap().spans().next().unwrap().clone()
}

/// The fields of a valid span.
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

/// A body of one resource, one scope and one span with these fields on top of the valid ones.
fn body_of_span(more: &[Vec<u8>]) -> Vec<u8> {
    let span = [span_fields().concat(), more.concat()].concat();
    len(1, len(2, len(2, span)))
}

/// A body of one span with one attribute `k`, whose `KeyValue` goes on like this.
fn body_of_attribute(after_key: &[Vec<u8>]) -> Vec<u8> {
    body_of_span(&[len(9, [len(1, "k"), after_key.concat()].concat())])
}
