//! Decoder of lz4 frames, one after another. Parses the frames itself and decompresses the blocks directly
//! into the output: the library's own frame reader accepts a body that is cut between two blocks.

use lz4_flex::block::{DecompressError, decompress_into_with_dict};
use twox_hash::XxHash32;

use super::output::OutputBuffer;
use super::zstd::{is_skippable, skip};
use super::{corrupt, count_member, truncated};
use crate::refusal::Refusal;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const WINDOW_BYTES: usize = 64 << 10;
/// Maximum expansion: each additional byte of a match length adds at most 255 bytes of output.
const RATIO_MAX: usize = 255;
const UNCOMPRESSED: u32 = 1 << 31;
const FRAME: &str = "lz4 frame";

pub(super) fn starts(body: &[u8]) -> bool {
    body.starts_with(&MAGIC) || is_skippable(body)
}

pub(super) fn decode(
    body: &[u8],
    members_max: usize,
    output: &mut OutputBuffer,
) -> Result<(), Refusal> {
    let mut rest = body;
    let mut frames = 0;
    loop {
        count_member(&mut frames, members_max, FRAME)?;
        rest = if is_skippable(rest) {
            skip(rest, FRAME)?
        } else {
            frame(rest, output)?
        };
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Decompresses the frame at the start of `input`. Returns the input after it.
fn frame<'a>(input: &'a [u8], output: &mut OutputBuffer) -> Result<&'a [u8], Refusal> {
    let (header, mut rest) = Header::read(input)?;
    let start = output.filled().len();
    loop {
        let size = take_u32(&mut rest)?;
        // Only the end mark ends a frame: a body cut between two blocks is truncated.
        if size == 0 {
            break;
        }
        let block = take(&mut rest, (size & !UNCOMPRESSED) as usize)?;
        if header.block_checksums && XxHash32::oneshot(0, block) != take_u32(&mut rest)? {
            return Err(corrupt("lz4 block"));
        }
        if size & UNCOMPRESSED == 0 {
            decompress_block(block, &header, start, output)?;
        } else {
            copy_block(block, &header, output)?;
        }
    }
    let content = output.filled().get(start..).unwrap_or_default();
    if header
        .content_bytes
        .is_some_and(|declared| declared != content.len() as u64)
    {
        return Err(corrupt(FRAME));
    }
    if header.content_checksum && XxHash32::oneshot(0, content) != take_u32(&mut rest)? {
        return Err(corrupt(FRAME));
    }
    Ok(rest)
}

fn decompress_block(
    block: &[u8],
    header: &Header,
    start: usize,
    output: &mut OutputBuffer,
) -> Result<(), Refusal> {
    // By the size of the block as well: many tiny blocks must not reserve megabytes each.
    let wanted = header
        .block_bytes_max
        .min(block.len().saturating_mul(RATIO_MAX));
    output.reserve(wanted);
    let (written, free) = output.split();
    // The free space can be shorter than requested, but only if the output has reached its limit.
    let has_requested_space = free.len() >= wanted;
    let free = free.get_mut(..wanted.min(free.len())).unwrap_or_default();
    // Linked blocks may refer to the previous 64 KiB of the frame.
    let window = if header.linked {
        written.get(start..).unwrap_or_default()
    } else {
        &[]
    };
    let window = window
        .get(window.len().saturating_sub(WINDOW_BYTES)..)
        .unwrap_or_default();
    match decompress_into_with_dict(block, free, window) {
        Ok(bytes) => output.advance(bytes),
        Err(DecompressError::OutputTooSmall { .. }) if !has_requested_space => {
            return Err(output.too_large());
        }
        Err(_) => return Err(corrupt("lz4 block")),
    }
    Ok(())
}

fn copy_block(block: &[u8], header: &Header, output: &mut OutputBuffer) -> Result<(), Refusal> {
    if block.len() > header.block_bytes_max {
        return Err(corrupt("lz4 block"));
    }
    output.reserve(block.len());
    let free = output.split().1.get_mut(..block.len());
    free.ok_or(())
        .map(|free| free.copy_from_slice(block))
        .map_err(|()| output.too_large())?;
    output.advance(block.len());
    Ok(())
}

/// Header of a frame.
struct Header {
    linked: bool,
    block_checksums: bool,
    content_bytes: Option<u64>,
    content_checksum: bool,
    block_bytes_max: usize,
}

impl Header {
    fn read(input: &[u8]) -> Result<(Self, &[u8]), Refusal> {
        let Some(fields) = input.strip_prefix(&MAGIC) else {
            return Err(if MAGIC.starts_with(input) {
                truncated(FRAME)
            } else {
                Refusal::malformed(
                    "body",
                    "no lz4 frame at this position; expected a frame header",
                )
            });
        };
        let mut rest = fields;
        let &[flags, sizes] = take_chunk::<2>(&mut rest)?;
        let block_bytes_max = block_bytes_max(sizes).ok_or_else(|| corrupt("lz4 header"))?;
        // Version 1, and the reserved bit is 0.
        if flags & 0xc2 != 0x40 {
            return Err(corrupt("lz4 header"));
        }
        if flags & 1 != 0 {
            return Err(Refusal::malformed(
                "body",
                "lz4 frame needs a dictionary; expected a frame without",
            ));
        }
        let content_bytes = match flags & 8 {
            0 => None,
            _ => Some(u64::from_le_bytes(*take_chunk(&mut rest)?)),
        };
        let described = fields.get(..fields.len() - rest.len()).unwrap_or_default();
        let [_, checksum, ..] = XxHash32::oneshot(0, described).to_le_bytes();
        if take_chunk::<1>(&mut rest)? != &[checksum] {
            return Err(corrupt("lz4 header"));
        }
        let header = Self {
            linked: flags & 0x20 == 0,
            block_checksums: flags & 0x10 != 0,
            content_bytes,
            content_checksum: flags & 4 != 0,
            block_bytes_max,
        };
        Ok((header, rest))
    }
}

fn block_bytes_max(sizes: u8) -> Option<usize> {
    match sizes {
        0x40 => Some(64 << 10),
        0x50 => Some(256 << 10),
        0x60 => Some(1 << 20),
        0x70 => Some(4 << 20),
        _ => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], Refusal> {
    let (taken, after) = rest
        .split_at_checked(bytes)
        .ok_or_else(|| truncated(FRAME))?;
    *rest = after;
    Ok(taken)
}

fn take_chunk<'a, const BYTES: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; BYTES], Refusal> {
    let (taken, after) = rest.split_first_chunk().ok_or_else(|| truncated(FRAME))?;
    *rest = after;
    Ok(taken)
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, Refusal> {
    take_chunk(rest).map(|bytes| u32::from_le_bytes(*bytes))
}
