//! Runs of rows that belong to the same day, and in a cluster to the same shard. A day of a shard is a partition of the
//! table, the unit in which the writer repairs an incomplete INSERT.

use crate::compress::decompress;
use crate::frame::Record;
use crate::native::{self, Block, Data};
use crate::scan::scan;
use crate::schema::Field;
use crate::shard::shard_of;

/// Nanoseconds per day.
const DAY_NS: i64 = 86_400_000_000_000;

/// Consecutive rows that start on the same day and belong to the same shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayRun {
    /// The first row, counted from the start of the segment.
    pub first: usize,
    /// The row after the last row.
    pub end: usize,
    /// Days since 1970, UTC.
    pub day: i64,
    /// Number of the shard, from 1; 0 without a cluster.
    pub shard: u32,
}

/// Returns the runs of a segment, in order. `shards`: number of shards of the cluster; 0 without one.
///
/// # Errors
/// If a block does not match its record header.
pub fn day_runs(segment: &[u8], shards: u32) -> Result<Vec<DayRun>, String> {
    let mut runs: Vec<DayRun> = Vec::new();
    let mut row = 0;
    for record in scan(segment).records {
        // A record may only acknowledge deliveries whose spans were all sampled out: it has no block.
        if record.head.rows == 0 {
            continue;
        }
        let block = decompress(record.payload).map_err(|refusal| refusal.to_string())?;
        let block = native::read(&block)?;
        let times = times(&block, &record)?;
        let shard_of_row = shards_of_rows(&block, shards)?;
        for (index, time) in times.iter().enumerate() {
            let day = i64::from_le_bytes(*time).div_euclid(DAY_NS);
            let shard = shard_of_row.get(index).copied().unwrap_or(0);
            match runs.last_mut() {
                Some(run) if run.day == day && run.shard == shard => run.end += 1,
                _ => runs.push(DayRun {
                    first: row,
                    end: row + 1,
                    day,
                    shard,
                }),
            }
            row += 1;
        }
    }
    Ok(runs)
}

/// Returns the start times of a record's rows.
fn times<'a>(block: &Block<'a>, record: &Record<'_>) -> Result<&'a [[u8; 8]], String> {
    match data_of(block, Field::Timestamp) {
        Some(Data::Fixed(8, bytes)) if block.rows == record.head.rows as usize => {
            Ok(bytes.as_chunks::<8>().0)
        }
        _ => Err(format!(
            "block at byte {1} has {0} rows; its record header declares {2}, with start times",
            block.rows, record.offset, record.head.rows
        )),
    }
}

/// Returns the shard of each row; nothing without a cluster.
fn shards_of_rows(block: &Block<'_>, shards: u32) -> Result<Vec<u32>, String> {
    if shards == 0 {
        return Ok(Vec::new());
    }
    let Some(Data::Dictionary(trace_ids, ids)) = data_of(block, Field::TraceId) else {
        return Err("block has no trace ids".to_owned());
    };
    let shard_of_id: Option<Vec<u32>> = trace_ids
        .iter()
        .map(|trace_id| shard_of(trace_id, shards))
        .collect();
    ids.iter()
        .map(|id| shard_of_id.as_ref()?.get(*id as usize).copied())
        .collect::<Option<Vec<u32>>>()
        .ok_or_else(|| "block has a trace id that is not 32 digits".to_owned())
}

fn data_of<'b, 'a>(block: &'b Block<'a>, field: Field) -> Option<&'b Data<'a>> {
    let column = block
        .columns
        .iter()
        .find(|column| column.name == field.name())?;
    Some(&column.data)
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

        let runs = day_runs(&segment, 0);

        let run = |first, end, day| DayRun {
            first,
            end,
            day,
            shard: 0,
        };
        assert_eq!(runs, Ok(vec![run(0, 2, 0), run(2, 4, 1), run(4, 5, -1)]));
    }

    #[test]
    fn rows_without_trace_ids_belong_to_no_shard_of_a_cluster() {
        let segment = record(&block_of(&[1, 2]), 2, Codec::Lz4);

        assert_eq!(
            day_runs(&segment, 2),
            Err("block has no trace ids".to_owned())
        );
    }

    #[test]
    fn block_that_does_not_match_its_record_header_is_an_error() {
        let whole = block_of(&[1, 2, 3]);
        for raw in [&whole[..20], &whole[..40], b"", &[0xff; 32]] {
            assert!(day_runs(&record(raw, 3, Codec::Lz4), 0).is_err());
        }
        assert!(day_runs(&record(&whole, 4, Codec::Lz4), 0).is_err());
    }
}
