//! Compression of blocks to LZ4 or zstd frames, which standard tools and `ClickHouse` read without
//! conversion.

use std::io;

use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::unpack::{Buffers, Encoding, Expect, unpack};

/// Compression codec of the blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Uses less CPU time than zstd.
    #[default]
    Lz4,
    /// Compresses better than LZ4, which reduces disk usage and traffic to the server.
    Zstd,
}

/// zstd compression level: the fastest of the standard levels.
const ZSTD_LEVEL: i32 = 1;
const ZSTD_MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

impl Codec {
    /// Returns the codec with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns the name, as [`Codec::from_name`] accepts it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the codec of a compressed frame.
    #[must_use]
    pub fn of_frame(frame: &[u8]) -> Self {
        if frame.starts_with(&ZSTD_MAGIC) {
            Self::Zstd
        } else {
            Self::Lz4
        }
    }

    /// Compresses `raw` into `buffer` as one frame. The previous content of the buffer is overwritten and never read,
    /// so callers need not clear the buffer.
    ///
    /// # Panics
    /// If the codec library fails to write into memory. The buffer's content is then unspecified.
    pub fn compress<'a>(self, raw: &[u8], buffer: &'a mut Vec<u8>) -> &'a [u8] {
        let written = match self {
            Self::Lz4 => lz4_frame(raw, buffer),
            Self::Zstd => zstd_frame(raw, buffer),
        };
        assert!(written.is_ok(), "compressing into memory");
        buffer
            .get(..written.unwrap_or_default())
            .unwrap_or_default()
    }
}

fn zstd_frame(raw: &[u8], buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.clear();
    zstd::stream::copy_encode(raw, &mut *buffer, ZSTD_LEVEL)?;
    Ok(buffer.len())
}

/// Frame header: magic; version 1, independent blocks, no checksums (the record has one); blocks of up to 4 MiB; checksum
/// of these two bytes.
const LZ4_HEAD: [u8; 7] = [0x04, 0x22, 0x4D, 0x18, 0x60, 0x70, 0x73];
const LZ4_BLOCK_BYTES_MAX: usize = 4 << 20;
const LZ4_STORED: u32 = 1 << 31;
const LZ4_END: [u8; 4] = [0; 4];

fn lz4_frame(raw: &[u8], buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut end = LZ4_HEAD.len();
    write_at(buffer, 0, &LZ4_HEAD);
    for block in raw.chunks(LZ4_BLOCK_BYTES_MAX) {
        // The frame stores the size of a block before the block, so the size is filled in after compression.
        let (size_at, start) = (end, end + 4);
        let (bytes, flag) = lz4_block(block, buffer, start)?;
        let size = u32::try_from(bytes).unwrap_or(u32::MAX) | flag;
        write_at(buffer, size_at, &size.to_le_bytes());
        end = start + bytes;
    }
    write_at(buffer, end, &LZ4_END);
    Ok(end + LZ4_END.len())
}

/// Writes one block at `start`. Returns its length, and the flag that marks an uncompressed block if it is one.
fn lz4_block(block: &[u8], buffer: &mut Vec<u8>, start: usize) -> io::Result<(usize, u32)> {
    let bytes_max = lz4::block::compress_bound(block.len())?;
    let target = slice_mut(buffer, start, bytes_max);
    // `false`: no size before the block, because the frame format has its own.
    let bytes = lz4::block::compress_to_buffer(block, None, false, target)?;
    // A block that does not shrink is stored uncompressed.
    if bytes < block.len() {
        return Ok((bytes, 0));
    }
    write_at(buffer, start, block);
    Ok((block.len(), LZ4_STORED))
}

/// Returns `bytes` bytes of the buffer, which grows if needed.
fn slice_mut(buffer: &mut Vec<u8>, start: usize, bytes: usize) -> &mut [u8] {
    // Never shrinks, so that memory is zeroed when the buffer grows and not for every block.
    buffer.resize(buffer.len().max(start + bytes), 0);
    buffer.get_mut(start..start + bytes).unwrap_or_default()
}

fn write_at(buffer: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    slice_mut(buffer, start, bytes.len()).copy_from_slice(bytes);
}

/// Decompresses a frame of either codec.
///
/// # Errors
/// If the bytes are not exactly one complete frame.
pub fn decompress(frame: &[u8]) -> Result<Vec<u8>, Refusal> {
    let encoding = match Codec::of_frame(frame) {
        Codec::Zstd => Encoding::Zstd,
        Codec::Lz4 => Encoding::Lz4,
    };
    // Only for own records, whose checksum was verified: the size needs no limit.
    let limits = Limits {
        body_bytes_max: usize::MAX,
        // a record has one block, and a block is one frame
        members_max: 1,
        ..Limits::default()
    };
    let mut buffers = Buffers::default();
    Ok(
        unpack(frame, &[encoding], Expect::Protobuf, &limits, &mut buffers)?
            .body
            .to_vec(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_le_bytes()[7]
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn frames_round_trip() {
        let long = [noise(9 << 20), vec![7; 5 << 20]].concat();
        let mut buffer = Vec::new();
        for codec in [Codec::Lz4, Codec::Zstd, Codec::Lz4] {
            for raw in [&b""[..], b"a", &vec![0; 100_000], &noise(1_000), &long] {
                let frame = codec.compress(raw, &mut buffer);
                assert_eq!(
                    decompress(frame).unwrap(),
                    raw,
                    "{codec:?} of {} bytes",
                    raw.len()
                );
            }
        }
    }

    #[test]
    fn standard_lz4_library_reads_the_frames() {
        let raw = [noise(5 << 20), vec![7; 5 << 20]].concat();
        let mut buffer = Vec::new();
        let frame = Codec::Lz4.compress(&raw, &mut buffer);

        let mut read = Vec::new();
        io::copy(&mut lz4::Decoder::new(frame).unwrap(), &mut read).unwrap();

        assert_eq!(read, raw);
    }
}
