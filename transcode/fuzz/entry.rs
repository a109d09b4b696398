//! What a hostile body may not do, as one function per decoder. Whoever calls them (the fuzz targets,
//! and a short run among the tests) only brings the bytes; a broken promise panics.

#![allow(dead_code, reason = "each fuzz target calls one of these")]

#[path = "listener.rs"]
mod listener;

use std::cell::RefCell;

use _transcode::limits::Limits;
use _transcode::refusal::Refusal;
use _transcode::unpack::{Buffers, Encoding, Expect, unpack as unpack_body};
use _transcode::visit::Warning;
use _transcode::{json as json_decoder, otlp};
use listener::Listener;

const BODY_BYTES_MAX: usize = 1 << 20;
/// Two bodies, what one lz4 block may take beyond, and a zstd context for windows of 8 MiB.
const HELD_BYTES_MAX: usize = 2 * BODY_BYTES_MAX + (12 << 20);
/// A stored text may be longer than what was sent: escapes, base64, the shortest form of a double.
const TOLD_PER_BYTE_MAX: usize = 32;

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

/// Small enough that a fuzzer finds the edges.
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

/// The first byte chooses the codings and what is expected; the rest is the body.
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
        let again = unpacked(body, encodings, expect, buffers);
        assert_eq!(first, again, "what the buffers held before changes nothing");
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
    let found = unpack_body(body, encodings, expect, &limits(), buffers)?;
    assert!(found.body.len() <= BODY_BYTES_MAX, "over the limit");
    Ok((found.body.to_vec(), found.warning))
}

/// The input is the body.
pub fn protobuf(input: &[u8]) {
    let limits = limits();
    let mut listener = Listener::within(&limits);
    let outcome = otlp::decode(input, &limits, &mut listener);
    listener.ended(outcome.is_ok());
    assert!(listener.told_bytes() <= TOLD_PER_BYTE_MAX * input.len());
}

/// The input is the body, read as one request and as one a line.
pub fn json(input: &[u8]) {
    for ndjson in [false, true] {
        let mut fresh = json_decoder::Scratch::default();
        let first = json_story(input, ndjson, &mut fresh);
        let again = SCRATCH.with_borrow_mut(|used| json_story(input, ndjson, used));
        assert_eq!(first, again, "a used scratch changes nothing");
    }
}

/// Whether the body was read, and a digest of what was told.
fn json_story(input: &[u8], ndjson: bool, scratch: &mut json_decoder::Scratch) -> (bool, u64) {
    let limits = limits();
    let mut listener = Listener::within(&limits);
    let outcome = json_decoder::decode(input, &limits, ndjson, scratch, &mut listener);
    listener.ended(outcome.is_ok());
    assert!(listener.told_bytes() <= TOLD_PER_BYTE_MAX * input.len());
    (outcome.is_ok(), listener.digest())
}
