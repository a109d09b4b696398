//! Attribute maps that hold for whole stretches of rows: those of resources and scopes.

use super::dictionary::id_from;
use super::map::{MapColumn, MapMark};
use super::text::Runs;

/// One map for whole stretches of rows.
#[derive(Default)]
pub struct MapRuns {
    /// The maps, one for each resource or scope.
    pub maps: MapColumn,
    /// Which map holds where.
    pub runs: Runs,
}

impl MapRuns {
    /// The map closed last holds for `rows` rows.
    pub fn push(&mut self, rows: u32) {
        let map = id_from(self.maps.ends.len()).saturating_sub(1);
        self.runs.push(map, rows);
    }

    /// Where the column stands.
    #[must_use]
    pub fn mark(&self) -> (MapMark, (usize, u32)) {
        (self.maps.mark(), self.runs.mark())
    }

    /// Back to where the column stood.
    pub fn truncate(&mut self, (maps, runs): (MapMark, (usize, u32))) {
        self.maps.truncate(maps);
        self.runs.truncate(runs);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.maps.clear();
        self.runs.clear();
    }
}
