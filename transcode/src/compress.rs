//! Blocks as LZ4 or zstd frames: what stock tools and the engine read by themselves.

use std::io;

use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::unpack::{Buffers, Encoding, Expect, unpack};

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Cheap here.
    #[default]
    Lz4,
    /// Smaller on the wire to the server.
    Zstd,
}

/// Level of zstd: the cheapest.
const ZSTD_LEVEL: i32 = 1;
const ZSTD_MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

impl Codec {
    /// The codec with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// `raw` as one frame, written into `room`. What lies there already is of no interest, except that
    /// as much as there is need not be made again.
    ///
    /// # Panics
    /// When the codec's library fails to write into memory; nothing is promised then.
    pub fn compress<'a>(self, raw: &[u8], room: &'a mut Vec<u8>) -> &'a [u8] {
        let written = match self {
            Self::Lz4 => lz4_frame(raw, room),
            Self::Zstd => zstd_frame(raw, room),
        };
        assert!(written.is_ok(), "compressing into memory");
        room.get(..written.unwrap_or_default()).unwrap_or_default()
    }
}

fn zstd_frame(raw: &[u8], room: &mut Vec<u8>) -> io::Result<usize> {
    room.clear();
    zstd::stream::copy_encode(raw, &mut *room, ZSTD_LEVEL)?;
    Ok(room.len())
}

/// Magic; version 1, independent blocks, no checksums (the record has one); blocks of up to 4 MiB;
/// checksum of these two.
const LZ4_HEAD: [u8; 7] = [0x04, 0x22, 0x4D, 0x18, 0x60, 0x70, 0x73];
const LZ4_BLOCK_BYTES_MAX: usize = 4 << 20;
const LZ4_STORED: u32 = 1 << 31;
const LZ4_END: [u8; 4] = [0; 4];

fn lz4_frame(raw: &[u8], room: &mut Vec<u8>) -> io::Result<usize> {
    let mut end = LZ4_HEAD.len();
    lay(room, 0, &LZ4_HEAD);
    for block in raw.chunks(LZ4_BLOCK_BYTES_MAX) {
        let (size_at, start) = (end, end + 4);
        let (bytes, flag) = lz4_block(block, room, start)?;
        let size = u32::try_from(bytes).unwrap_or(u32::MAX) | flag;
        lay(room, size_at, &size.to_le_bytes());
        end = start + bytes;
    }
    lay(room, end, &LZ4_END);
    Ok(end + LZ4_END.len())
}

/// Writes one block from `start` on: how long it is, and whether it is stored as it was.
fn lz4_block(block: &[u8], room: &mut Vec<u8>, start: usize) -> io::Result<(usize, u32)> {
    let bytes_max = lz4::block::compress_bound(block.len())?;
    let target = part(room, start, bytes_max);
    let bytes = lz4::block::compress_to_buffer(block, None, false, target)?;
    if bytes < block.len() {
        return Ok((bytes, 0));
    }
    lay(room, start, block);
    Ok((block.len(), LZ4_STORED))
}

/// So many bytes of the room, which grows if it has to.
fn part(room: &mut Vec<u8>, start: usize, bytes: usize) -> &mut [u8] {
    room.resize(room.len().max(start + bytes), 0);
    room.get_mut(start..start + bytes).unwrap_or_default()
}

fn lay(room: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    part(room, start, bytes.len()).copy_from_slice(bytes);
}

/// What a frame of either codec holds.
///
/// # Errors
/// When it is not one whole frame.
pub fn decompress(frame: &[u8]) -> Result<Vec<u8>, Refusal> {
    let encoding = if frame.starts_with(&ZSTD_MAGIC) {
        Encoding::Zstd
    } else {
        Encoding::Lz4
    };
    let limits = Limits {
        body_bytes_max: usize::MAX,
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
    fn every_frame_is_read_back() {
        let long = [noise(9 << 20), vec![7; 5 << 20]].concat();
        let mut room = Vec::new();
        for codec in [Codec::Lz4, Codec::Zstd, Codec::Lz4] {
            for raw in [&b""[..], b"a", &vec![0; 100_000], &noise(1_000), &long] {
                let frame = codec.compress(raw, &mut room);
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
    fn stock_lz4_reads_our_frames() {
        let raw = [noise(5 << 20), vec![7; 5 << 20]].concat();
        let mut room = Vec::new();
        let frame = Codec::Lz4.compress(&raw, &mut room);

        let mut read = Vec::new();
        io::copy(&mut lz4::Decoder::new(frame).unwrap(), &mut read).unwrap();

        assert_eq!(read, raw);
    }
}
