//! Column of trace ids: spans of a trace arrive together, so each distinct id is stored once.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::dictionary::id_from;

/// One trace id per row.
#[derive(Default)]
pub struct TraceIds {
    /// The distinct ids, in order of first appearance.
    pub distinct: Vec<[u8; 16]>,
    /// The number of each row's id in `distinct`.
    pub ids: Vec<u32>,
    table: HashTable<u32>,
    seed: RandomState,
}

impl TraceIds {
    /// Adds a row.
    #[inline]
    pub fn push(&mut self, trace_id: [u8; 16]) {
        // Most spans have the trace of the previous span.
        // In an empty column the id 0 does not exist, so the comparison fails.
        let last = self.ids.last().copied().unwrap_or_default();
        let id = if self.distinct.get(last as usize) == Some(&trace_id) {
            last
        } else {
            self.id_of(trace_id)
        };
        self.ids.push(id);
    }

    fn hash(&self, trace_id: [u8; 16]) -> u64 {
        self.seed.hash_one(u128::from_le_bytes(trace_id))
    }

    fn id_of(&mut self, trace_id: [u8; 16]) -> u32 {
        let hash = self.hash(trace_id);
        let known_id = self.table.find(hash, |id| {
            self.distinct.get(*id as usize) == Some(&trace_id)
        });
        if let Some(id) = known_id {
            return *id;
        }
        let id = id_from(self.distinct.len());
        self.distinct.push(trace_id);
        // Borrows the fields separately, because `rehash` reads the ids while the table grows.
        let Self {
            distinct,
            table,
            seed,
            ..
        } = self;
        let rehash = |id: &u32| {
            let known = distinct.get(*id as usize).copied().unwrap_or_default();
            seed.hash_one(u128::from_le_bytes(known))
        };
        table.insert_unique(hash, id, rehash);
        id
    }

    /// Returns the current end of the column: distinct ids and rows.
    #[must_use]
    pub fn mark(&self) -> (usize, usize) {
        (self.distinct.len(), self.ids.len())
    }

    /// Truncates the column to an earlier mark.
    pub fn truncate(&mut self, (distinct, rows): (usize, usize)) {
        for position in distinct..self.distinct.len() {
            let removed_id = self.distinct.get(position).copied().unwrap_or_default();
            let id = id_from(position);
            if let Ok(entry) = self
                .table
                .find_entry(self.hash(removed_id), |known| *known == id)
            {
                entry.remove();
            }
        }
        self.distinct.truncate(distinct);
        self.ids.truncate(rows);
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.distinct.clear();
        self.ids.clear();
        self.table.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_trace_id_keeps_its_number() {
        let mut column = TraceIds::default();

        for byte in [1, 1, 2, 1, 3, 2] {
            column.push([byte; 16]);
        }

        assert_eq!(column.ids, [0, 0, 1, 0, 2, 1]);
    }

    #[test]
    fn truncated_ids_are_removed() {
        let mut column = TraceIds::default();
        column.push([1; 16]);
        let mark = column.mark();
        column.push([2; 16]);

        column.truncate(mark);
        column.push([3; 16]);
        column.push([2; 16]);

        assert_eq!(column.distinct, [[1; 16], [3; 16], [2; 16]]);
        assert_eq!(column.ids, [0, 1, 2]);
    }
}
