//! Blocks as LZ4 or zstd frames: what stock tools and the engine read by themselves.

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

    /// Appends `raw` as one frame.
    ///
    /// # Panics
    /// When the codec's library fails to write into memory; nothing is promised then.
    pub fn compress(self, raw: &[u8], out: &mut Vec<u8>) {
        let done = match self {
            Self::Lz4 => lz4_frame(raw, out),
            Self::Zstd => zstd::stream::copy_encode(raw, out, ZSTD_LEVEL),
        };
        assert!(done.is_ok(), "compressing into memory");
    }
}

/// Magic; version 1, independent blocks, no checksums (the record has one); blocks of up to 4 MiB;
/// checksum of these two.
const LZ4_HEAD: [u8; 7] = [0x04, 0x22, 0x4D, 0x18, 0x60, 0x70, 0x73];
const LZ4_BLOCK_BYTES_MAX: usize = 4 << 20;
const LZ4_STORED: u32 = 1 << 31;

fn lz4_frame(raw: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    out.extend_from_slice(&LZ4_HEAD);
    for block in raw.chunks(LZ4_BLOCK_BYTES_MAX) {
        lz4_block(block, out)?;
    }
    out.extend_from_slice(&[0; 4]);
    Ok(())
}

fn lz4_block(block: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    let start = out.len();
    let room = lz4::block::compress_bound(block.len())?;
    out.resize(start + 4 + room, 0);
    let target = out.get_mut(start + 4..).unwrap_or_default();
    let mut bytes = lz4::block::compress_to_buffer(block, None, false, target)?;
    let mut size = u32::try_from(bytes).unwrap_or(LZ4_STORED);
    if bytes >= block.len() {
        bytes = block.len();
        size = u32::try_from(bytes).unwrap_or_default() | LZ4_STORED;
        target
            .get_mut(..bytes)
            .unwrap_or_default()
            .copy_from_slice(block);
    }
    out.get_mut(start..start + 4)
        .unwrap_or_default()
        .copy_from_slice(&size.to_le_bytes());
    out.truncate(start + 4 + bytes);
    Ok(())
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
        for codec in [Codec::Lz4, Codec::Zstd] {
            for raw in [&b""[..], b"a", &vec![0; 100_000], &noise(1_000), &long] {
                let mut frame = Vec::new();
                codec.compress(raw, &mut frame);
                assert_eq!(
                    decompress(&frame).unwrap(),
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
        let mut frame = Vec::new();
        Codec::Lz4.compress(&raw, &mut frame);

        let mut read = Vec::new();
        std::io::copy(&mut lz4::Decoder::new(&frame[..]).unwrap(), &mut read).unwrap();

        assert_eq!(read, raw);
    }
}
