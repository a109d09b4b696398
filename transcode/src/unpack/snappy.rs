//! snappy, as one raw block or framed.

use std::io::Read;

use snap::raw::decompress_len;

use super::room::Room;
use super::{corrupt, cut};
use crate::refusal::Refusal;

/// The chunk that opens framed data.
pub(super) const STREAM_IDENTIFIER: [u8; 10] = *b"\xff\x06\x00\x00sNaPpY";
/// A copy of 64 bytes takes three: no block unfolds further.
const RATIO_MAX: usize = 22;
const BLOCK: &str = "snappy block";
const FRAMES: &str = "framed snappy stream";

/// Unfolds a raw block; framed data under this name is framed data.
pub(super) fn decode(body: &[u8], room: &mut Room) -> Result<(), Refusal> {
    if body.starts_with(&STREAM_IDENTIFIER) {
        return decode_framed(body, room);
    }
    let announced = decompress_len(body).map_err(|_| corrupt(BLOCK))?;
    if announced > body.len().saturating_mul(RATIO_MAX) {
        return Err(Refusal::malformed(
            "body",
            format!(
                "snappy block announces {announced} bytes; {} cannot hold them",
                body.len()
            ),
        ));
    }
    if announced > room.left() {
        return Err(room.too_large());
    }
    room.expect(announced as u64, body.len());
    let written = snap::raw::Decoder::new()
        .decompress(body, room.space()?)
        .map_err(|_| corrupt(BLOCK))?;
    room.advance(written);
    Ok(())
}

pub(super) fn decode_framed(body: &[u8], room: &mut Room) -> Result<(), Refusal> {
    if !body.starts_with(&STREAM_IDENTIFIER) {
        return Err(if STREAM_IDENTIFIER.starts_with(body) {
            cut(FRAMES)
        } else {
            corrupt(FRAMES)
        });
    }
    let mut chunks = snap::read::FrameDecoder::new(body);
    loop {
        match chunks.read(room.space()?) {
            Ok(0) => return Ok(()),
            Ok(written) => room.advance(written),
            Err(_) => return Err(corrupt(FRAMES)),
        }
    }
}
