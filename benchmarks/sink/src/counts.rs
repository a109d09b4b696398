//! What was taken: rows and INSERTs in all, and rows by segment and day, as the writer asks for them.

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
    /// Rows that belong to no segment.
    pub fn plain(count: usize) -> Self {
        Self {
            count,
            by_segment: HashMap::new(),
        }
    }

    /// Rows of a block; its three columns, if it has them.
    pub fn add(&mut self, count: usize, epochs: &[u8], seqs: &[u8], times: &[u8]) {
        self.count += count;
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
struct Taken {
    rows: u64,
    inserts: u64,
    bytes: u64,
    by_segment: BySegment,
}

static TAKEN: LazyLock<Mutex<Taken>> = LazyLock::new(Mutex::default);

/// Keeps the count of an INSERT.
pub fn take(rows: Rows, bytes: usize) {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    taken.rows += rows.count as u64;
    taken.inserts += 1;
    taken.bytes += bytes as u64;
    for (key, count) in rows.by_segment {
        *taken.by_segment.entry(key).or_default() += count;
    }
}

/// All rows, INSERTs and bytes, as JSON.
pub fn json() -> String {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    format!(
        "{{\"rows\": {}, \"inserts\": {}, \"bytes\": {}}}\n",
        taken.rows, taken.inserts, taken.bytes
    )
}

/// Rows of these segments: epoch, number, day, rows.
pub fn of(epochs: &[u64], seqs: &[u64]) -> Vec<(u64, u64, u64, u64)> {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_wanted =
        |(epoch, seq, _): &(u64, u64, u64)| epochs.contains(epoch) && seqs.contains(seq);
    taken
        .by_segment
        .iter()
        .filter(|(key, _)| is_wanted(key))
        .map(|((epoch, seq, day), rows)| (*epoch, *seq, *day, *rows))
        .collect()
}
