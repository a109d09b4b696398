//! Runs of rows that belong to the same day. A day is a partition of the table, the unit in which the writer repairs an
//! incomplete INSERT.

use crate::compress::decompress;
use crate::frame::Record;
use crate::native::{self, Data};
use crate::scan::scan;
use crate::schema::Field;

/// Nanoseconds per day.
const DAY_NS: i64 = 86_400_000_000_000;

/// Consecutive rows that start on the same day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayRun {
    /// The first row, counted from the start of the segment.
    pub first: usize,
    /// The row after the last row.
    pub end: usize,
    /// Days since 1970, UTC.
    pub day: i64,
}

/// Returns the runs of a segment, in order.
///
/// # Errors
/// If a block does not match its record header.
pub fn day_runs(segment: &[u8]) -> Result<Vec<DayRun>, String> {
    let mut runs: Vec<DayRun> = Vec::new();
    let mut row = 0;
    for record in scan(segment).records {
        for time in times(&record)? {
            let day = time.div_euclid(DAY_NS);
            match runs.last_mut() {
                Some(run) if run.day == day => run.end += 1,
                _ => runs.push(DayRun {
                    first: row,
                    end: row + 1,
                    day,
                }),
            }
            row += 1;
        }
    }
    Ok(runs)
}

/// Returns the start times of a record's rows.
fn times(record: &Record<'_>) -> Result<Vec<i64>, String> {
    // A record may only acknowledge deliveries whose spans were all sampled out: it has no block.
    if record.head.rows == 0 {
        return Ok(Vec::new());
    }
    let block = decompress(record.payload).map_err(|refusal| refusal.to_string())?;
    let block = native::read(&block)?;
    let column = block
        .columns
        .iter()
        .find(|column| column.name == Field::Timestamp.name());
    match column.map(|column| &column.data) {
        Some(Data::Fixed(8, bytes)) if block.rows == record.head.rows as usize => {
            let (values, _) = bytes.as_chunks::<8>();
            Ok(values.iter().copied().map(i64::from_le_bytes).collect())
        }
        _ => Err(format!(
            "block at byte {1} has {0} rows; its record header declares {2}, with start times",
            block.rows, record.offset, record.head.rows
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::Codec;
    use crate::frame::{Head, push_record};
    use crate::put;

    fn block_of(times: &[i64]) -> Vec<u8> {
        let mut raw = Vec::new();
        put::varint(&mut raw, 1);
        put::varint(&mut raw, times.len() as u64);
        put::text(&mut raw, b"Timestamp");
        put::text(&mut raw, b"DateTime64(9)");
        put::fixed(&mut raw, times.iter().map(|time| time.to_le_bytes()));
        raw
    }

    fn record(raw: &[u8], rows: u32, codec: Codec) -> Vec<u8> {
        let mut payload = Vec::new();
        if rows > 0 {
            payload = codec.compress(raw, &mut Vec::new()).to_vec();
        }
        let head = Head {
            rows,
            ..Head::default()
        };
        let mut out = Vec::new();
        push_record(&mut out, &head, b"", &payload);
        out
    }

    #[test]
    fn rows_are_numbered_over_all_records_and_runs_cross_them() {
        let mut segment = record(&block_of(&[0, DAY_NS - 1, DAY_NS]), 3, Codec::Lz4);
        segment.extend(record(&[], 0, Codec::Lz4));
        segment.extend(record(&block_of(&[DAY_NS + 5, -1]), 2, Codec::Zstd));

        let runs = day_runs(&segment);

        let run = |first, end, day| DayRun { first, end, day };
        assert_eq!(runs, Ok(vec![run(0, 2, 0), run(2, 4, 1), run(4, 5, -1)]));
    }

    #[test]
    fn block_that_does_not_match_its_record_header_is_an_error() {
        let whole = block_of(&[1, 2, 3]);
        for raw in [&whole[..20], &whole[..40], b"", &[0xff; 32]] {
            assert!(day_runs(&record(raw, 3, Codec::Lz4)).is_err());
        }
        assert!(day_runs(&record(&whole, 4, Codec::Lz4)).is_err());
    }
}
