//! Blocks as LZ4 or zstd frames: what stock tools and the engine read by themselves.

use std::io::{Read, Write};

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
    /// # Errors
    /// When the codec's library fails, which it does only without memory.
    pub fn compress(self, raw: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            Self::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(out);
                encoder.write_all(raw)?;
                encoder.finish()?;
            }
            Self::Zstd => zstd::stream::copy_encode(raw, out, ZSTD_LEVEL)?,
        }
        Ok(())
    }
}

/// What a frame of either codec holds.
///
/// # Errors
/// When it is not a whole frame.
pub fn decompress(frame: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    if frame.starts_with(&ZSTD_MAGIC) {
        zstd::stream::copy_decode(frame, &mut out)?;
    } else {
        lz4_flex::frame::FrameDecoder::new(frame).read_to_end(&mut out)?;
    }
    Ok(out)
}
