//! Decompression: LZ4 frames, as in segments, and the compressed blocks of ClickHouse's own protocols.
//!
//!     ClickHouse block:  checksum 16 bytes │ method u8 │ size with these 9 bytes u32 │ uncompressed size u32 │ data

use crate::cursor::{Cursor, Flaw};

const FRAME: u32 = 0x184D_2204;
const SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184D_2A50..=0x184D_2A5F;
const LZ4: u8 = 0x82;
const PLAIN: u8 = 0x02;
const HEAD_BYTES: usize = 9;
/// Size of the checksum and the header of a ClickHouse block.
pub const LEAD_BYTES: usize = 16 + HEAD_BYTES;

/// Decompresses LZ4 frames and skips skippable frames.
pub fn unpack_frames(bytes: &[u8]) -> Result<Vec<u8>, Flaw> {
    let (mut cursor, mut out) = (Cursor { rest: bytes }, Vec::with_capacity(bytes.len() * 4));
    while !cursor.rest.is_empty() {
        let magic = cursor.u32()?;
        if SKIPPABLE.contains(&magic) {
            let length = cursor.u32()? as usize;
            cursor.take(length)?;
        } else if magic == FRAME {
            unpack_frame(&mut cursor, &mut out)?;
        } else {
            return Err(Flaw::Invalid(format!("unknown frame magic {magic:x}")));
        }
    }
    Ok(out)
}

fn unpack_frame(cursor: &mut Cursor, out: &mut Vec<u8>) -> Result<(), Flaw> {
    let flags = cursor.byte()?;
    // Codes 4 to 7 of the format mean 64 KiB to 4 MiB.
    let block_max = 1usize << (8 + 2 * (cursor.byte()? >> 4 & 7));
    let (has_size, has_sums, has_sum) = (flags & 8 != 0, flags & 16 != 0, flags & 4 != 0);
    // The optional content size of eight bytes, and the checksum of the header.
    cursor.take(if has_size { 9 } else { 1 })?;
    let start = out.len();
    loop {
        let word = cursor.u32()?;
        if word == 0 {
            break;
        }
        let packed = cursor.take((word & 0x7fff_ffff) as usize)?;
        if word & 0x8000_0000 != 0 {
            out.extend_from_slice(packed);
        } else {
            unpack_block(packed, out, start, block_max)?;
        }
        cursor.take(if has_sums { 4 } else { 0 })?;
    }
    cursor.take(if has_sum { 4 } else { 0 })?;
    Ok(())
}

/// Decompresses a block of a frame. It may refer to the previous blocks.
fn unpack_block(packed: &[u8], out: &mut Vec<u8>, start: usize, max: usize) -> Result<(), Flaw> {
    // An LZ4 match reaches back at most 64 KiB.
    let (end, before) = (out.len(), start.max(out.len().saturating_sub(1 << 16)));
    out.resize(end + max, 0);
    let (written, output) = out.split_at_mut(end);
    let count = lz4_flex::block::decompress_into_with_dict(packed, output, &written[before..])
        .map_err(|reason| Flaw::Invalid(reason.to_string()))?;
    out.truncate(end + count);
    Ok(())
}

/// Returns the number of bytes after the header of a ClickHouse block.
pub fn packed_size(lead: &[u8]) -> Result<usize, Flaw> {
    let mut cursor = Cursor { rest: lead };
    // the checksum and the compression method
    cursor.take(17)?;
    (cursor.u32()? as usize)
        .checked_sub(HEAD_BYTES)
        .ok_or_else(|| Flaw::Invalid("block is shorter than its header".into()))
}

/// Decompresses one ClickHouse block.
pub fn unpack_server_block(lead: &[u8], packed: &[u8], out: &mut Vec<u8>) -> Result<(), Flaw> {
    let mut cursor = Cursor { rest: lead };
    cursor.take(16)?;
    let method = cursor.byte()?;
    cursor.u32()?;
    let size = cursor.u32()? as usize;
    match method {
        LZ4 => {
            let end = out.len();
            out.resize(end + size, 0);
            lz4_flex::block::decompress_into(packed, &mut out[end..])
                .map_err(|reason| Flaw::Invalid(reason.to_string()))?;
        }
        PLAIN => out.extend_from_slice(packed),
        _ => {
            return Err(Flaw::Invalid(format!(
                "unknown compression method {method:x}"
            )));
        }
    }
    Ok(())
}

/// Decompresses all ClickHouse blocks in the bytes.
pub fn unpack_server_blocks(bytes: &[u8]) -> Result<Vec<u8>, Flaw> {
    let (mut cursor, mut out) = (Cursor { rest: bytes }, Vec::with_capacity(bytes.len() * 4));
    while !cursor.rest.is_empty() {
        let lead = cursor.take(LEAD_BYTES)?;
        let packed = cursor.take(packed_size(lead)?)?;
        unpack_server_block(lead, packed, &mut out)?;
    }
    Ok(out)
}

/// Wraps bytes as a ClickHouse block without compression.
pub fn wrapped(bytes: &[u8]) -> Vec<u8> {
    let mut block = vec![PLAIN];
    let size = u32::try_from(bytes.len()).unwrap_or_default();
    block.extend_from_slice(&(size + 9).to_le_bytes());
    block.extend_from_slice(&size.to_le_bytes());
    block.extend_from_slice(bytes);
    let sum = cityhash_rs::cityhash_102_128(&block);
    // The upper half comes first.
    [sum.rotate_left(64).to_le_bytes().as_slice(), &block].concat()
}
