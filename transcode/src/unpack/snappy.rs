//! Decoder of snappy: one raw block, or the framed format.

use std::io::Read;

use snap::raw::decompress_len;

use super::output::OutputBuffer;
use super::{corrupt, truncated};
use crate::refusal::Refusal;

/// The stream identifier chunk at the start of framed data.
pub(super) const STREAM_IDENTIFIER: [u8; 10] = *b"\xff\x06\x00\x00sNaPpY";
/// A copy element takes three bytes and produces at most 64, so no block expands more.
const RATIO_MAX: usize = 22;
const BLOCK: &str = "snappy block";
const FRAMES: &str = "framed snappy stream";

/// Decompresses a raw block. Framed data is recognised by its stream identifier and decoded too.
pub(super) fn decode(body: &[u8], output: &mut OutputBuffer) -> Result<(), Refusal> {
    if body.starts_with(&STREAM_IDENTIFIER) {
        return decode_framed(body, output);
    }
    let declared = decompress_len(body).map_err(|_| corrupt(BLOCK))?;
    // An impossible length is malformed, not too large: a smaller body would not help.
    if declared > body.len().saturating_mul(RATIO_MAX) {
        return Err(Refusal::malformed(
            "body",
            format!(
                "snappy block declares {declared} bytes, more than {} compressed bytes can hold",
                body.len()
            ),
        ));
    }
    if declared > output.left() {
        return Err(output.too_large());
    }
    // Reserves all of it: no block exceeds the ratio up to which the buffer trusts a declared length.
    output.expect(declared as u64, body.len());
    let written = snap::raw::Decoder::new()
        .decompress(body, output.free_space()?)
        .map_err(|_| corrupt(BLOCK))?;
    output.advance(written);
    Ok(())
}

pub(super) fn decode_framed(body: &[u8], output: &mut OutputBuffer) -> Result<(), Refusal> {
    if !body.starts_with(&STREAM_IDENTIFIER) {
        return Err(if STREAM_IDENTIFIER.starts_with(body) {
            truncated(FRAMES)
        } else {
            corrupt(FRAMES)
        });
    }
    let mut chunks = snap::read::FrameDecoder::new(body);
    loop {
        match chunks.read(output.free_space()?) {
            Ok(0) => return Ok(()),
            Ok(written) => output.advance(written),
            Err(_) => return Err(corrupt(FRAMES)),
        }
    }
}
