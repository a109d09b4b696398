//! One deflate stream, raw or in zlib's wrapping, written into a room as it unfolds.

use flate2::{Decompress, FlushDecompress, Status};

use super::room::Room;
use super::{corrupt, cut};
use crate::refusal::Refusal;

/// Unfolds the stream at the start of `input`; returns the bytes it occupies.
pub(super) fn stream(
    engine: &mut Decompress,
    wrapped: bool,
    input: &[u8],
    room: &mut Room,
    name: &str,
) -> Result<usize, Refusal> {
    engine.reset(wrapped);
    loop {
        let (read_before, written_before) = (engine.total_in(), engine.total_out());
        let rest = input.get(count(read_before)..).unwrap_or_default();
        let status = engine
            .decompress(rest, room.space()?, FlushDecompress::None)
            .map_err(|_| corrupt(name))?;
        let written = engine.total_out() - written_before;
        room.advance(count(written));
        if status == Status::StreamEnd {
            return Ok(count(engine.total_in()));
        }
        if written == 0 && engine.total_in() == read_before {
            return Err(cut(name));
        }
    }
}

/// A zlib header, as opposed to the first bytes of a raw stream: an encoder that pads with zeros
/// never starts a raw stream so.
pub(super) fn has_zlib_header(body: &[u8]) -> bool {
    match *body {
        [method, flags, ..] => {
            method & 0x0f == 8
                && method >> 4 <= 7
                && (u16::from(method) << 8 | u16::from(flags)).is_multiple_of(31)
        }
        _ => false,
    }
}

fn count(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
