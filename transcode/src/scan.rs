//! Reader of segments: finds complete records, a torn tail, and damage.
//!
//! A crash leaves a torn tail: bytes after the last complete record that were never acknowledged. That is
//! not an error. If a complete record of the same segment, or the footer, follows, the bytes before it were
//! acknowledged; if they cannot be read, they are damage.
//!
//! Invariant: never fails and never panics, whatever the bytes. Incomplete records are never returned.

use memchr::memmem;

use crate::block::Segment;
use crate::compress::Codec;
use crate::frame::{self, FOOTER_BYTES, FOOTER_MAGIC, Footer, HEAD_BYTES, RECORD_MAGIC, Record};

/// An acknowledged range that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Position of the range in the segment.
    pub offset: usize,
    /// Length of the range.
    pub length: usize,
    /// Description of the damage.
    pub reason: &'static str,
}

/// Content of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan<'a> {
    /// Identity of the segment, from its first complete record.
    pub segment: Segment,
    /// The complete records, in order.
    pub records: Vec<Record<'a>>,
    /// End of the last complete record (or of the footer).
    pub good_bytes: usize,
    /// The footer, if the segment was sealed.
    pub footer: Option<Footer>,
    /// Acknowledged ranges that cannot be read.
    pub damage: Vec<Damage>,
}

enum Item<'a> {
    Record(Record<'a>),
    Footer(Footer),
}

impl Item<'_> {
    fn length(&self) -> usize {
        match self {
            Self::Record(record) => record.length,
            Self::Footer(_) => FOOTER_BYTES,
        }
    }
}

/// Reads a segment.
#[must_use]
pub fn scan(bytes: &[u8]) -> Scan<'_> {
    let mut result = Scan::default();
    let mut offset = 0;
    while offset < bytes.len() {
        let Some((at, item)) = next_item(bytes, offset, &result) else {
            break;
        };
        if at > offset {
            result.damage.push(Damage {
                offset,
                length: at - offset,
                reason: "bytes are not a complete record",
            });
        }
        offset = at + item.length();
        result.good_bytes = offset;
        match item {
            Item::Record(record) => result.add(record),
            Item::Footer(footer) => {
                result.seal(footer, at);
                break;
            }
        }
    }
    if result.footer.is_some() && offset < bytes.len() {
        let (length, reason) = (bytes.len() - offset, "bytes follow the footer");
        result.damage.push(Damage {
            offset,
            length,
            reason,
        });
    }
    result
}

impl<'a> Scan<'a> {
    fn add(&mut self, record: Record<'a>) {
        if self.records.is_empty() {
            self.segment = record.head.segment;
        }
        self.records.push(record);
    }

    fn seal(&mut self, footer: Footer, offset: usize) {
        self.footer = Some(footer);
        let digest = frame::digest(self.records.iter().map(|record| record.checksum));
        // With damage, records are missing and the digest cannot match.
        if self.damage.is_empty() && digest != footer.digest {
            let reason = "records do not match the footer";
            self.damage.push(Damage {
                offset,
                length: 0,
                reason,
            });
        }
    }

    /// Returns the codec of the first block.
    #[must_use]
    pub fn codec(&self) -> Codec {
        let with_block = self.records.iter().find(|record| record.head.rows > 0);
        with_block.map_or_else(Codec::default, |record| Codec::of_frame(record.payload))
    }

    /// Returns whether a record belongs to this segment. Only such records are accepted: a sender who knows
    /// the format could put bytes into an attribute that look like a record.
    fn fits(&self, record: &Record<'_>) -> bool {
        self.records.is_empty() || self.segment == record.head.segment
    }
}

/// Returns whether a segment begins with a record of a newer version. A damaged version field is not mistaken for a
/// newer version: with the current version in its place, the segment has complete records.
#[must_use]
pub fn is_newer(segment: &[u8]) -> bool {
    let is_newer = frame::version_of(segment).is_some_and(|version| version > frame::VERSION);
    is_newer && scan(&frame::with_our_version(segment)).records.is_empty()
}

/// Returns the first complete record or footer at or after `offset`.
fn next_item<'a>(bytes: &'a [u8], offset: usize, result: &Scan<'a>) -> Option<(usize, Item<'a>)> {
    if let Some(item) = item_at(bytes, offset, result) {
        return Some((offset, item));
    }
    // Both magics share their last three bytes.
    let shared = RECORD_MAGIC.get(1..).unwrap_or_default();
    let rest = bytes.get(offset..).unwrap_or_default();
    memmem::find_iter(rest, shared)
        .filter_map(|position| (offset + position).checked_sub(1))
        // `offset` itself was tried above
        .filter(|at| *at > offset)
        .find_map(|at| item_at(bytes, at, result).map(|item| (at, item)))
}

fn item_at<'a>(bytes: &'a [u8], offset: usize, result: &Scan<'a>) -> Option<Item<'a>> {
    let magic = bytes.get(offset..)?.first_chunk::<4>()?;
    if *magic == FOOTER_MAGIC {
        return frame::footer_at(bytes, offset).map(Item::Footer);
    }
    frame::record_at(bytes, offset)
        .filter(|record| result.fits(record))
        .map(Item::Record)
}

/// Returns the footer that seals these records.
///
/// # Errors
/// If the segment is sealed already, torn or damaged.
pub fn footer(segment: &[u8]) -> Result<Vec<u8>, String> {
    let result = scan(segment);
    if result.footer.is_some() {
        return Err("segment has a footer; expected an open segment".to_owned());
    }
    // A footer after a torn tail would make the tail look like damage to acknowledged data.
    if !result.damage.is_empty() || result.good_bytes != segment.len() {
        return Err(format!(
            "segment has {} bytes, {} of them in complete records; truncate it first",
            segment.len(),
            result.good_bytes
        ));
    }
    let mut out = Vec::new();
    frame::push_footer(&mut out, &footer_of(&result.records, segment.len()));
    Ok(out)
}

/// Returns the footer of the records with these headers (`HEAD_BYTES` each, in order).
#[must_use]
pub fn footer_for(heads: &[u8]) -> Vec<u8> {
    let (heads, _) = heads.as_chunks::<HEAD_BYTES>();
    let heads: Vec<_> = heads
        .iter()
        .filter_map(|head| frame::head_of(head))
        .collect();
    let mut out = Vec::new();
    let footer = Footer {
        records: u32::try_from(heads.len()).unwrap_or(u32::MAX),
        rows: heads.iter().map(|head| u64::from(head.head.rows)).sum(),
        bytes_before: heads.iter().map(|head| head.length as u64).sum(),
        digest: frame::digest(heads.iter().map(|head| head.checksum)),
    };
    frame::push_footer(&mut out, &footer);
    out
}

/// Returns the content of the footer for these records.
#[must_use]
pub fn footer_of(records: &[Record<'_>], bytes_before: usize) -> Footer {
    Footer {
        records: u32::try_from(records.len()).unwrap_or(u32::MAX),
        rows: records
            .iter()
            .map(|record| u64::from(record.head.rows))
            .sum(),
        bytes_before: bytes_before as u64,
        digest: frame::digest(records.iter().map(|record| record.checksum)),
    }
}

#[cfg(test)]
mod tests;
