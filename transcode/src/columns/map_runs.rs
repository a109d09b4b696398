//! Column of attribute maps that apply to runs of rows: those of resources and scopes.

use super::dictionary::id_from;
use super::map::{MapColumn, MapMark};
use super::text::Runs;

/// One attribute map per run of rows.
#[derive(Default)]
pub struct MapRuns {
    /// The maps, one per resource or scope.
    pub maps: MapColumn,
    /// The runs of rows that each map applies to.
    pub runs: Runs,
}

impl MapRuns {
    /// Applies the map closed last to the next `rows` rows.
    pub fn push(&mut self, rows: u32) {
        let map = id_from(self.maps.ends.len()).saturating_sub(1);
        self.runs.push(map, rows);
    }

    /// Returns the current end of the column.
    #[must_use]
    pub fn mark(&self) -> (MapMark, (usize, u32)) {
        (self.maps.mark(), self.runs.mark())
    }

    /// Truncates the column to an earlier mark.
    pub fn truncate(&mut self, (maps, runs): (MapMark, (usize, u32))) {
        self.maps.truncate(maps);
        self.runs.truncate(runs);
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.maps.clear();
        self.runs.clear();
    }
}
