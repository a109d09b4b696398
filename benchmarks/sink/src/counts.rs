//! Counts of inserted data: total rows and INSERTs, and rows by segment and day, which the writer queries.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

const DAY_NS: u64 = 86_400_000_000_000;

/// Rows by segment epoch, segment number and day since 1970.
type BySegment = HashMap<(u64, u64, u64), u64>;

/// Rows of one INSERT.
#[derive(Default)]
pub struct Rows {
    pub count: usize,
    by_segment: BySegment,
}

impl Rows {
    /// Returns rows that belong to no segment.
    pub fn plain(count: usize) -> Self {
        Self {
            count,
            by_segment: HashMap::new(),
        }
    }

    /// Adds the rows of a block, with its three key columns if it has them.
    pub fn add(&mut self, count: usize, epochs: &[u8], seqs: &[u8], times: &[u8]) {
        self.count += count;
        // Other receivers, and blocks of other tables, have no segment columns.
        if epochs.is_empty() {
            return;
        }
        let number = |column: &[u8], row: usize| {
            let bytes = column.get(row * 8..row * 8 + 8).unwrap_or(&[0; 8]);
            u64::from_le_bytes(bytes.try_into().unwrap_or_default())
        };
        for row in 0..count {
            let key = (
                number(epochs, row),
                number(seqs, row),
                number(times, row) / DAY_NS,
            );
            *self.by_segment.entry(key).or_default() += 1;
        }
    }
}

#[derive(Default)]
struct Totals {
    rows: u64,
    inserts: u64,
    bytes: u64,
    by_segment: BySegment,
}

static TOTALS: LazyLock<Mutex<Totals>> = LazyLock::new(Mutex::default);

/// Adds an INSERT to the totals.
pub fn record(rows: Rows, bytes: usize) {
    // A panic in the thread of one connection must not stop the others from counting.
    let mut totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    totals.rows += rows.count as u64;
    totals.inserts += 1;
    totals.bytes += bytes as u64;
    // Connections share only this lock, once per INSERT: their own threads have counted the rows.
    for (key, count) in rows.by_segment {
        *totals.by_segment.entry(key).or_default() += count;
    }
}

/// Returns all rows, INSERTs and bytes, as JSON.
pub fn json() -> String {
    let totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    format!(
        "{{\"rows\": {}, \"inserts\": {}, \"bytes\": {}}}\n",
        totals.rows, totals.inserts, totals.bytes
    )
}

/// Returns the rows of these segments as (epoch, sequence number, day, rows).
pub fn of(epochs: &[u64], seqs: &[u64]) -> Vec<(u64, u64, u64, u64)> {
    let totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_wanted =
        |(epoch, seq, _): &(u64, u64, u64)| epochs.contains(epoch) && seqs.contains(seq);
    totals
        .by_segment
        .iter()
        .filter(|(key, _)| is_wanted(key))
        .map(|((epoch, seq, day), rows)| (*epoch, *seq, *day, *rows))
        .collect()
}
