//! Decompression of one deflate stream, raw or with a zlib header.

use flate2::{Decompress, FlushDecompress, Status};

use super::output::OutputBuffer;
use super::{corrupt, truncated};
use crate::refusal::Refusal;

/// Decompresses the stream at the start of `input`. Returns the number of bytes it occupies.
pub(super) fn stream(
    engine: &mut Decompress,
    wrapped: bool,
    input: &[u8],
    output: &mut OutputBuffer,
    name: &str,
) -> Result<usize, Refusal> {
    // Reused for every stream, because a new engine would allocate its state again.
    engine.reset(wrapped);
    loop {
        let (read_before, written_before) = (engine.total_in(), engine.total_out());
        let rest = input.get(count(read_before)..).unwrap_or_default();
        let status = engine
            .decompress(rest, output.free_space()?, FlushDecompress::None)
            .map_err(|_| corrupt(name))?;
        let written = engine.total_out() - written_before;
        output.advance(count(written));
        if status == Status::StreamEnd {
            return Ok(count(engine.total_in()));
        }
        // No progress although there is free space: the input ends before the stream does.
        if written == 0 && engine.total_in() == read_before {
            return Err(truncated(name));
        }
    }
}

/// Returns whether the body begins with a zlib header. No raw stream begins with one if its encoder pads
/// with zeros.
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
