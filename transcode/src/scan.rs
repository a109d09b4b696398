//! A segment, read: whole records, a torn tail, or damage.
//!
//! A crash leaves a torn tail: bytes after the last whole record that nothing vouches for. That is an
//! ordinary answer. When something whole follows (a record of the same segment, or the footer), the
//! bytes before it were promised, and if they cannot be read they are damage.
//!
//! Keeps: never fails and never panics, whatever the bytes; a record is whole or it is not there.

use memchr::memmem;

use crate::block::Segment;
use crate::frame::{self, FOOTER_BYTES, FOOTER_MAGIC, Footer, RECORD_MAGIC, Record};

/// A stretch that was promised and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins.
    pub offset: usize,
    /// How long it is.
    pub length: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// What a segment holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan<'a> {
    /// Whose segment it is, as its first whole record says.
    pub segment: Segment,
    /// The whole records, in order.
    pub records: Vec<Record<'a>>,
    /// Where the last whole record (or the footer) ends.
    pub good_bytes: usize,
    /// The footer, if the segment was sealed.
    pub footer: Option<Footer>,
    /// What was promised and cannot be read.
    pub damage: Vec<Damage>,
}

enum Whole<'a> {
    Record(Record<'a>),
    Footer(Footer),
}

impl Whole<'_> {
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
    let mut found = Scan::default();
    let mut offset = 0;
    while offset < bytes.len() {
        let Some((at, whole)) = next_whole(bytes, offset, &found) else {
            break;
        };
        if at > offset {
            found.damage.push(Damage {
                offset,
                length: at - offset,
                reason: "bytes that are no whole record",
            });
        }
        offset = at + whole.length();
        found.good_bytes = offset;
        match whole {
            Whole::Record(record) => found.add(record),
            Whole::Footer(footer) => {
                found.seal(footer, at);
                break;
            }
        }
    }
    if found.footer.is_some() && offset < bytes.len() {
        let (length, reason) = (bytes.len() - offset, "bytes after the footer");
        found.damage.push(Damage {
            offset,
            length,
            reason,
        });
    }
    found
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
        if self.damage.is_empty() && digest != footer.digest {
            let reason = "records are not those that the footer names";
            self.damage.push(Damage {
                offset,
                length: 0,
                reason,
            });
        }
    }

    /// A record may follow only records of its own segment: what a sender wrote into an attribute, he
    /// cannot make look like one.
    fn fits(&self, record: &Record<'_>) -> bool {
        self.records.is_empty() || self.segment == record.head.segment
    }
}

/// The first whole record or footer at or after `offset`.
fn next_whole<'a>(bytes: &'a [u8], offset: usize, found: &Scan<'a>) -> Option<(usize, Whole<'a>)> {
    if let Some(whole) = whole_at(bytes, offset, found) {
        return Some((offset, whole));
    }
    // Both magics share their last three bytes.
    let shared = RECORD_MAGIC.get(1..).unwrap_or_default();
    let rest = bytes.get(offset..).unwrap_or_default();
    memmem::find_iter(rest, shared)
        .filter_map(|position| (offset + position).checked_sub(1))
        .filter(|at| *at > offset)
        .find_map(|at| whole_at(bytes, at, found).map(|whole| (at, whole)))
}

fn whole_at<'a>(bytes: &'a [u8], offset: usize, found: &Scan<'a>) -> Option<Whole<'a>> {
    let magic = bytes.get(offset..)?.first_chunk::<4>()?;
    if *magic == FOOTER_MAGIC {
        return frame::footer_at(bytes, offset).map(Whole::Footer);
    }
    frame::record_at(bytes, offset)
        .filter(|record| found.fits(record))
        .map(Whole::Record)
}

/// The footer that seals these records.
///
/// # Errors
/// When the segment is sealed already, torn or damaged.
pub fn footer(segment: &[u8]) -> Result<Vec<u8>, String> {
    let found = scan(segment);
    if found.footer.is_some() {
        return Err("segment has a footer; expected an open one".to_owned());
    }
    if !found.damage.is_empty() || found.good_bytes != segment.len() {
        return Err(format!(
            "segment has {} bytes, {} of them whole; cut it first",
            segment.len(),
            found.good_bytes
        ));
    }
    let mut out = Vec::new();
    frame::push_footer(&mut out, &footer_of(&found.records, segment.len()));
    Ok(out)
}

/// The footer that seals records of which only this is known: their checksums, 8 bytes each, in order.
#[must_use]
pub fn footer_for(checksums: &[u8], rows: u64, bytes_before: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let footer = Footer {
        records: u32::try_from(checksums.len() / 8).unwrap_or(u32::MAX),
        rows,
        bytes_before,
        digest: frame::digest_of(checksums),
    };
    frame::push_footer(&mut out, &footer);
    out
}

/// What the footer of these records says.
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
