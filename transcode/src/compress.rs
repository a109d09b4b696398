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
            Self::Lz4 => lz4(raw, out),
            Self::Zstd => zstd::stream::copy_encode(raw, out, ZSTD_LEVEL),
        };
        assert!(done.is_ok(), "compressing into memory");
    }
}

fn lz4(raw: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    use std::io::Write;
    let mut encoder = lz4_flex::frame::FrameEncoder::new(out);
    encoder.write_all(raw)?;
    encoder.finish()?;
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
