//! Binary format of the records and the footer of a segment. This module works on bytes and opens no files.
//!
//! ```text
//! record:  skippable frame: 184D2A54 u32 │ bytes that follow u32 │ "TDRJ" │ version u16 │ 0 u16
//!          │ payload bytes u64 │ rows u32 │ answers bytes u32 │ epoch u64 │ seq u64
//!          │ received min ms i64 │ received max ms i64 │ checksum u64 │ answers
//!          then the payload: one LZ4 or zstd frame with one Native block; nothing if there are no rows
//! footer:  skippable frame: 184D2A55 u32 │ bytes that follow u32 │ "TDRF" │ version u16 │ 0 u16
//!          │ records u32 │ rows u64 │ bytes before it u64 │ digest of the record checksums u64 │ checksum u64
//! ```
//!
//! All little endian. A checksum is XXH3-64 of everything else in the record or footer. LZ4 and zstd
//! tools skip the skippable frames, so a segment is also a plain compressed Native file.

use std::hash::Hasher;

use twox_hash::XxHash3_64;

use crate::block::Segment;

/// Magic of a record's skippable frame.
pub const RECORD_MAGIC: [u8; 4] = 0x184D_2A54_u32.to_le_bytes();
/// Magic of the footer's skippable frame.
pub const FOOTER_MAGIC: [u8; 4] = 0x184D_2A55_u32.to_le_bytes();
/// Bytes of a record before its answers.
pub const HEAD_BYTES: usize = 72;
/// Bytes of a footer.
pub const FOOTER_BYTES: usize = 52;
const RECORD_TAG: [u8; 4] = *b"TDRJ";
const FOOTER_TAG: [u8; 4] = *b"TDRF";
/// Version of the records that this program writes, and the newest that it reads.
pub const VERSION: u16 = 1;
/// Size of a skippable frame's own header: magic and length.
const SKIPPABLE_BYTES: usize = 8;

/// Header of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The segment that the record belongs to.
    pub segment: Segment,
    /// Number of rows in its block.
    pub rows: u32,
    /// Earliest and latest `ReceivedAt` of its rows, milliseconds since 1970.
    pub received_ms: (i64, i64),
}

/// A complete record in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Position of the record in the segment.
    pub offset: usize,
    /// Length of the whole record.
    pub length: usize,
    /// The header.
    pub head: Head,
    /// The deliveries that it acknowledges, as msgpack.
    pub answers: &'a [u8],
    /// The compressed block; empty if there are no rows.
    pub payload: &'a [u8],
    /// Checksum of the record.
    pub checksum: u64,
}

/// Content of a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Number of records in the segment.
    pub records: u32,
    /// Number of rows in the segment.
    pub rows: u64,
    /// Number of bytes before the footer.
    pub bytes_before: u64,
    /// [`digest`] of the records' checksums.
    pub digest: u64,
}

/// Appends a record.
pub fn push_record(out: &mut Vec<u8>, head: &Head, answers: &[u8], payload: &[u8]) {
    let start = out.len();
    let answers_bytes = u32::try_from(answers.len()).unwrap_or(u32::MAX);
    let follows = u32::try_from(HEAD_BYTES - SKIPPABLE_BYTES + answers.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&RECORD_MAGIC);
    out.extend_from_slice(&follows.to_le_bytes());
    out.extend_from_slice(&RECORD_TAG);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(&head.rows.to_le_bytes());
    out.extend_from_slice(&answers_bytes.to_le_bytes());
    out.extend_from_slice(&head.segment.epoch.to_le_bytes());
    out.extend_from_slice(&head.segment.seq.to_le_bytes());
    out.extend_from_slice(&head.received_ms.0.to_le_bytes());
    out.extend_from_slice(&head.received_ms.1.to_le_bytes());
    let checksum = record_checksum(out.get(start..).unwrap_or_default(), answers, payload);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(answers);
    out.extend_from_slice(payload);
}

fn record_checksum(head: &[u8], answers: &[u8], payload: &[u8]) -> u64 {
    let mut hasher = XxHash3_64::new();
    hasher.write(head);
    hasher.write(answers);
    hasher.write(payload);
    hasher.finish()
}

/// A record's header with its lengths, not verified: the checksum covers the whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnverifiedHead {
    /// The header.
    pub head: Head,
    /// End of the answers, counted from the beginning of the record.
    pub answers_end: usize,
    /// Length of the whole record.
    pub length: usize,
    /// Checksum of the record.
    pub checksum: u64,
}

/// Returns the version of the record that begins `bytes`; `None` if no record begins there.
#[must_use]
pub fn version_of(bytes: &[u8]) -> Option<u16> {
    let is_record = array(bytes, 0)? == RECORD_MAGIC && array(bytes, 8)? == RECORD_TAG;
    is_record.then_some(u16::from_le_bytes(array(bytes, 12)?))
}

/// Returns the header of the record that begins `bytes`, if the record has the current version. `bytes` need not
/// contain the rest of the record.
#[must_use]
pub fn head_of(bytes: &[u8]) -> Option<UnverifiedHead> {
    if version_of(bytes)? != VERSION {
        return None;
    }
    let payload_bytes = usize::try_from(u64::from_le_bytes(array(bytes, 16)?)).ok()?;
    let answers_bytes = u32::from_le_bytes(array(bytes, 28)?) as usize;
    // The lengths may be corrupt: the checksum, which needs them, is verified below.
    let answers_end = HEAD_BYTES.checked_add(answers_bytes)?;
    if u32::from_le_bytes(array(bytes, 4)?) as usize != answers_end - SKIPPABLE_BYTES {
        return None;
    }
    let head = Head {
        rows: u32::from_le_bytes(array(bytes, 24)?),
        segment: Segment {
            epoch: u64::from_le_bytes(array(bytes, 32)?),
            seq: u64::from_le_bytes(array(bytes, 40)?),
        },
        received_ms: (
            i64::from_le_bytes(array(bytes, 48)?),
            i64::from_le_bytes(array(bytes, 56)?),
        ),
    };
    Some(UnverifiedHead {
        head,
        answers_end,
        length: answers_end.checked_add(payload_bytes)?,
        checksum: u64::from_le_bytes(array(bytes, 64)?),
    })
}

/// Returns the complete record that begins at `offset`, if there is one.
#[must_use]
pub fn record_at(segment: &[u8], offset: usize) -> Option<Record<'_>> {
    let bytes = segment.get(offset..)?;
    let UnverifiedHead {
        head,
        answers_end,
        length,
        checksum,
    } = head_of(bytes)?;
    let answers = bytes.get(HEAD_BYTES..answers_end)?;
    // A torn record ends before the length that its header declares.
    let payload = bytes.get(answers_end..length)?;
    // The checksum itself is at byte 64, so the part before it is covered.
    let is_complete = record_checksum(bytes.get(..64)?, answers, payload) == checksum;
    is_complete.then_some(Record {
        offset,
        length,
        head,
        answers,
        payload,
        checksum,
    })
}

/// Returns the segment with the current version in the header of its first record.
#[must_use]
pub fn with_our_version(segment: &[u8]) -> Vec<u8> {
    let mut ours = segment.to_vec();
    if let Some(version) = ours.get_mut(12..14) {
        version.copy_from_slice(&VERSION.to_le_bytes());
    }
    ours
}

/// Appends a footer.
pub fn push_footer(out: &mut Vec<u8>, footer: &Footer) {
    let start = out.len();
    let follows = u32::try_from(FOOTER_BYTES - SKIPPABLE_BYTES).unwrap_or(u32::MAX);
    out.extend_from_slice(&FOOTER_MAGIC);
    out.extend_from_slice(&follows.to_le_bytes());
    out.extend_from_slice(&FOOTER_TAG);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&footer.records.to_le_bytes());
    out.extend_from_slice(&footer.rows.to_le_bytes());
    out.extend_from_slice(&footer.bytes_before.to_le_bytes());
    out.extend_from_slice(&footer.digest.to_le_bytes());
    let checksum = XxHash3_64::oneshot(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Returns the complete footer that begins at `offset` and records that offset, if there is one.
#[must_use]
pub fn footer_at(segment: &[u8], offset: usize) -> Option<Footer> {
    let footer = footer_of(segment.get(offset..)?)?;
    // A footer with another offset does not belong to this segment: a sender can put such bytes into an attribute.
    (footer.bytes_before == offset as u64).then_some(footer)
}

/// Returns the complete footer at the end of `tail`, the last bytes of a segment.
#[must_use]
pub fn last_footer(tail: &[u8]) -> Option<Footer> {
    tail.last_chunk::<FOOTER_BYTES>()
        .and_then(|footer| footer_of(footer))
}

fn footer_of(bytes: &[u8]) -> Option<Footer> {
    let is_footer = array(bytes, 0)? == FOOTER_MAGIC && array(bytes, 8)? == FOOTER_TAG;
    let checksum = u64::from_le_bytes(array(bytes, FOOTER_BYTES - 8)?);
    if !is_footer || XxHash3_64::oneshot(bytes.get(..FOOTER_BYTES - 8)?) != checksum {
        return None;
    }
    Some(Footer {
        records: u32::from_le_bytes(array(bytes, 16)?),
        rows: u64::from_le_bytes(array(bytes, 20)?),
        bytes_before: u64::from_le_bytes(array(bytes, 28)?),
        digest: u64::from_le_bytes(array(bytes, 36)?),
    })
}

/// Returns one digest for the checksums of all records, in order.
#[must_use]
pub fn digest(checksums: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = XxHash3_64::new();
    checksums.for_each(|checksum| hasher.write(&checksum.to_le_bytes()));
    hasher.finish()
}

fn array<const BYTES: usize>(bytes: &[u8], offset: usize) -> Option<[u8; BYTES]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            segment: Segment { epoch: 7, seq: 9 },
            rows: 3,
            received_ms: (-1, 5),
        }
    }

    #[test]
    fn record_round_trips() {
        let mut out = b"before".to_vec();
        push_record(&mut out, &head(), b"answers", b"payload");

        let record = record_at(&out, 6).unwrap();

        assert_eq!(record.head, head());
        assert_eq!(
            (record.answers, record.payload),
            (&b"answers"[..], &b"payload"[..])
        );
        assert_eq!(record.length, out.len() - 6);
    }

    #[test]
    fn flipped_bits_and_truncation_are_detected() {
        let mut out = Vec::new();
        push_record(&mut out, &head(), b"answers", b"payload");

        for bit in 0..out.len() * 8 {
            let mut flipped = out.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(record_at(&flipped, 0), None, "bit {bit}");
        }
        for length in 0..out.len() {
            assert_eq!(record_at(&out[..length], 0), None, "cut at {length}");
        }
    }

    #[test]
    fn footer_is_valid_only_at_its_own_offset() {
        let footer = Footer {
            records: 2,
            rows: 5,
            bytes_before: 3,
            digest: 4,
        };
        let mut out = b"abc".to_vec();
        push_footer(&mut out, &footer);

        assert_eq!(footer_at(&out, 3), Some(footer));
        assert_eq!(footer_at(&out[1..], 2), None);
        assert_eq!(out.len() - 3, FOOTER_BYTES);
    }
}
