//! Rewriter of segments: merges many small blocks into a few large blocks, omits rows, and keeps the list of
//! acknowledged deliveries.
//!
//! Invariant: the same input gives the same bytes. Rows stay in order. The first record of the result
//! acknowledges every delivery. Damaged ranges are omitted. The segment's identity changes only on
//! request.

use crate::answers;
use crate::block::Segment;
use crate::compress::{Codec, decompress};
use crate::frame::{self, Head};
use crate::merge::Merged;
use crate::native::{self, Block};
use crate::scan;

/// New identity for the rewritten segment.
#[derive(Clone, Copy, Debug)]
pub struct NewIdentity {
    /// Stored in every record and every row.
    pub segment: Segment,
    /// Whether the new segment also contains the list of acknowledged deliveries.
    pub with_answers: bool,
}

/// Returns a new sealed segment with only the rows in these ranges (first, after the last; ascending),
/// counted over all complete records.
///
/// # Errors
/// If the ranges are invalid, or a block does not match its record header.
pub fn rewrite(
    segment: &[u8],
    keep: &[(usize, usize)],
    codec: Codec,
    block_rows_max: usize,
    new_identity: Option<NewIdentity>,
) -> Result<Vec<u8>, String> {
    let scanned = scan::scan(segment);
    if scanned.records.is_empty() {
        return Err("segment has no complete record; expected at least one".to_owned());
    }
    let rows = scanned
        .records
        .iter()
        .map(|record| record.head.rows as usize)
        .sum();
    check(keep, rows)?;
    let answers = if new_identity.is_none_or(|new_identity| new_identity.with_answers) {
        merged_answers(&scanned.records)?
    } else {
        merged_answers(&[])?
    };
    let identity = new_identity.map(|new_identity| new_identity.segment);
    let mut writer = Writer::new(scanned.segment, identity, codec, block_rows_max, answers);
    let mut first_row = 0;
    for record in scanned.records.iter().filter(|record| record.head.rows > 0) {
        let end_row = first_row + record.head.rows as usize;
        let wanted = within(keep, first_row, end_row);
        // Decompressing is the expensive part, so records without a wanted row are not decompressed.
        if !wanted.is_empty() {
            let raw = decompress(record.payload).map_err(|reason| reason.to_string())?;
            let block = native::read(&raw)?;
            // `keep` counts rows by the headers: a wrong count would shift the rows of all later records.
            if block.rows != record.head.rows as usize {
                return Err(format!(
                    "block has {} rows; its record header declares {}",
                    block.rows, record.head.rows
                ));
            }
            for (start, end) in wanted {
                writer.add(&block, start, end, record.head.received_ms)?;
            }
        }
        first_row = end_row;
    }
    Ok(writer.finish())
}

fn check(keep: &[(usize, usize)], rows: usize) -> Result<(), String> {
    let mut end_row = 0;
    for &(start, end) in keep {
        if start < end_row || end < start || end > rows {
            return Err(format!(
                "rows {start} to {end} of {rows}; expected ascending ranges within the segment"
            ));
        }
        end_row = end;
    }
    Ok(())
}

/// Returns the parts of the ranges within rows `first` to `end_row`, relative to `first`.
fn within(keep: &[(usize, usize)], first: usize, end_row: usize) -> Vec<(usize, usize)> {
    keep.iter()
        .map(|&(start, end)| (start.max(first), end.min(end_row)))
        .filter(|(start, end)| start < end)
        .map(|(start, end)| (start - first, end - first))
        .collect()
}

fn merged_answers(records: &[frame::Record<'_>]) -> Result<Vec<u8>, String> {
    let (mut count, mut entries) = (0, Vec::new());
    for record in records {
        let (more, bytes) = answers::split(record.answers)
            .ok_or("acknowledged deliveries are not a msgpack array")?;
        count += more;
        entries.extend_from_slice(bytes);
    }
    // The header of an array takes at most five bytes.
    let mut out = Vec::with_capacity(entries.len() + 5);
    answers::array(&mut out, count);
    out.extend_from_slice(&entries);
    Ok(out)
}

struct Writer {
    segment: Segment,
    /// Overwrites the identity in the rows, if set.
    identity: Option<Segment>,
    codec: Codec,
    block_rows_max: usize,
    answers: Vec<u8>,
    merged: Option<Merged>,
    received_ms: (i64, i64),
    out: Vec<u8>,
}

impl Writer {
    fn new(
        segment: Segment,
        identity: Option<Segment>,
        codec: Codec,
        block_rows_max: usize,
        answers: Vec<u8>,
    ) -> Self {
        let block_rows_max = block_rows_max.max(1);
        Self {
            segment: identity.unwrap_or(segment),
            identity,
            codec,
            block_rows_max,
            answers,
            merged: None,
            received_ms: (i64::MAX, i64::MIN),
            out: Vec::new(),
        }
    }

    fn add(
        &mut self,
        block: &Block<'_>,
        mut start: usize,
        end: usize,
        received_ms: (i64, i64),
    ) -> Result<(), String> {
        while start < end {
            if self.merged.as_ref().is_some_and(|merged| {
                merged.rows >= self.block_rows_max || !merged.has_same_columns(block)
            }) {
                self.flush();
            }
            let merged = self.merged.get_or_insert_with(|| Merged::empty_like(block));
            let until = end.min(start + (self.block_rows_max - merged.rows));
            merged.append(block, start, until)?;
            self.received_ms = (
                self.received_ms.0.min(received_ms.0),
                self.received_ms.1.max(received_ms.1),
            );
            start = until;
        }
        Ok(())
    }

    fn flush(&mut self) {
        let Some(mut merged) = self.merged.take() else {
            return;
        };
        if let Some(identity) = self.identity {
            merged.set_segment(identity);
        }
        let (mut raw, mut buffer) = (Vec::new(), Vec::new());
        merged.write(&mut raw);
        let payload = self.codec.compress(&raw, &mut buffer);
        self.push(u32::try_from(merged.rows).unwrap_or(u32::MAX), payload);
        self.received_ms = (i64::MAX, i64::MIN);
    }

    fn push(&mut self, rows: u32, payload: &[u8]) {
        let received_ms = if rows == 0 { (0, 0) } else { self.received_ms };
        let head = Head {
            segment: self.segment,
            rows,
            received_ms,
        };
        frame::push_record(&mut self.out, &head, &self.answers, payload);
        // Only the first record acknowledges the deliveries.
        self.answers.clear();
        answers::array(&mut self.answers, 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.flush();
        // A segment without rows still needs a record that acknowledges its deliveries.
        if self.out.is_empty() {
            self.push(0, &[]);
        }
        let footer = scan::footer_of(&scan::scan(&self.out).records, self.out.len());
        frame::push_footer(&mut self.out, &footer);
        self.out
    }
}
