//! Entry points of fuzzing, one per decoder, for the fuzz targets and a short run among the tests. They
//! panic if a guarantee about hostile bodies is violated.

#![allow(dead_code, reason = "each fuzz target calls one of these")]

#[path = "checking_visitor.rs"]
mod checking_visitor;

use std::cell::RefCell;

use _transcode::limits::Limits;
use _transcode::refusal::Refusal;
use _transcode::unpack::{Buffers, Encoding, Expect, unpack as unpack_body};
use _transcode::visit::Warning;
use _transcode::{json as json_decoder, otlp};
use checking_visitor::CheckingVisitor;

const BODY_BYTES_MAX: usize = 1 << 20;
/// Two bodies, the excess of one lz4 block, and a zstd context for windows of 8 MiB.
const HELD_BYTES_MAX: usize = 2 * BODY_BYTES_MAX + (12 << 20);
/// A stored text may be longer than its input: escapes, base64, the shortest form of a double.
const REPORTED_PER_BYTE_MAX: usize = 32;

const CODINGS: [&[Encoding]; 9] = [
    &[],
    &[Encoding::Gzip],
    &[Encoding::Deflate],
    &[Encoding::Zstd],
    &[Encoding::Snappy],
    &[Encoding::SnappyFramed],
    &[Encoding::Lz4],
    &[Encoding::Gzip, Encoding::Gzip],
    &[Encoding::Zstd, Encoding::Lz4],
];

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
    static SCRATCH: RefCell<json_decoder::Scratch> = RefCell::default();
}

/// Limits small enough that a fuzzer reaches them.
fn limits() -> Limits {
    Limits {
        body_bytes_max: BODY_BYTES_MAX,
        resources_max: 20,
        scopes_max: 40,
        spans_max: 500,
        nodes_max: 5_000,
        attributes_max: 16,
        events_max: 8,
        links_max: 8,
        value_depth_max: 8,
        json_depth_max: 32,
        key_bytes_max: 64,
        text_bytes_max: 256,
        ..Limits::default()
    }
}

/// Decompresses a body. The first byte chooses the codings and the expected type; the rest is the body.
pub fn unpack(input: &[u8]) {
    let Some((&choice, body)) = input.split_first() else {
        return;
    };
    let encodings = CODINGS[usize::from(choice) % CODINGS.len()];
    let expect = if choice < 0x80 {
        Expect::Protobuf
    } else {
        Expect::Json
    };
    BUFFERS.with_borrow_mut(|buffers| {
        let first = unpacked(body, encodings, expect, buffers);
        let second = unpacked(body, encodings, expect, buffers);
        assert_eq!(first, second, "reused buffers change the result");
        assert!(
            buffers.held_bytes() <= HELD_BYTES_MAX,
            "{} bytes held",
            buffers.held_bytes()
        );
    });
}

fn unpacked(
    body: &[u8],
    encodings: &[Encoding],
    expect: Expect,
    buffers: &mut Buffers,
) -> Result<(Vec<u8>, Option<Warning>), Refusal> {
    let result = unpack_body(body, encodings, expect, &limits(), buffers)?;
    assert!(
        result.body.len() <= BODY_BYTES_MAX,
        "output exceeds the limit"
    );
    Ok((result.body.to_vec(), result.warning))
}

/// Decodes a protobuf body.
pub fn protobuf(input: &[u8]) {
    let limits = limits();
    let mut visitor = CheckingVisitor::within(&limits);
    let outcome = otlp::decode(input, &limits, &mut visitor);
    visitor.assert_finished(outcome.is_ok());
    assert!(visitor.reported_bytes() <= REPORTED_PER_BYTE_MAX * input.len());
}

/// Decodes a JSON body, as one request and as one request per line.
pub fn json(input: &[u8]) {
    for ndjson in [false, true] {
        let mut fresh = json_decoder::Scratch::default();
        let first = decode_json(input, ndjson, &mut fresh);
        let second = SCRATCH.with_borrow_mut(|used| decode_json(input, ndjson, used));
        assert_eq!(first, second, "a reused scratch changes the result");
    }
}

/// Returns whether the body was accepted, and a digest of the visitor calls.
fn decode_json(input: &[u8], ndjson: bool, scratch: &mut json_decoder::Scratch) -> (bool, u64) {
    let limits = limits();
    let mut visitor = CheckingVisitor::within(&limits);
    let outcome = json_decoder::decode(input, &limits, ndjson, scratch, &mut visitor);
    visitor.assert_finished(outcome.is_ok());
    assert!(visitor.reported_bytes() <= REPORTED_PER_BYTE_MAX * input.len());
    (outcome.is_ok(), visitor.digest())
}
