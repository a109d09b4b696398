//! Decoder of snappy, as one raw block or framed.

use std::io::Read;

use snap::raw::decompress_len;

use super::output::OutputBuffer;
use super::{corrupt, truncated};
use crate::refusal::Refusal;

/// The chunk at the start of framed data.
pub(super) const STREAM_IDENTIFIER: [u8; 10] = *b"\xff\x06\x00\x00sNaPpY";
/// A copy of 64 bytes takes three: no block expands more.
const RATIO_MAX: usize = 22;
const BLOCK: &str = "snappy block";
const FRAMES: &str = "framed snappy stream";

/// Decompresses a raw block; framed data under this name is recognised.
pub(super) fn decode(body: &[u8], output: &mut OutputBuffer) -> Result<(), Refusal> {
    if body.starts_with(&STREAM_IDENTIFIER) {
        return decode_framed(body, output);
    }
    let announced = decompress_len(body).map_err(|_| corrupt(BLOCK))?;
    if announced > body.len().saturating_mul(RATIO_MAX) {
        return Err(Refusal::malformed(
            "body",
            format!(
                "snappy block announces {announced} bytes, more than {} compressed bytes can hold",
                body.len()
            ),
        ));
    }
    if announced > output.left() {
        return Err(output.too_large());
    }
    output.expect(announced as u64, body.len());
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
