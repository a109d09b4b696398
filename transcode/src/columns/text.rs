//! Columns with one string per row, stored as a dictionary id per row or per run of equal rows.

use super::dictionary::{Dictionary, id_from};
use crate::tally::Tally;

/// One string per row, often equal to that of the previous row.
#[derive(Default)]
pub struct TextColumn {
    /// The distinct strings.
    pub dictionary: Dictionary,
    /// Dictionary id of each row's string.
    pub ids: Vec<u32>,
}

impl TextColumn {
    /// Adds a row.
    #[inline]
    pub fn push(&mut self, raw: &[u8], bytes_max: usize, tally: &mut Tally) {
        let id = match self.ids.last() {
            // Consecutive spans often have the same text.
            Some(&last) if self.dictionary.is(last, raw) => last,
            _ => self.dictionary.id_of(raw, bytes_max, tally),
        };
        self.ids.push(id);
    }

    /// Returns the current end of the column: strings and rows.
    #[must_use]
    pub fn mark(&self) -> (usize, usize) {
        (self.dictionary.len(), self.ids.len())
    }

    /// Truncates the column to an earlier mark.
    pub fn truncate(&mut self, (texts, rows): (usize, usize)) {
        self.dictionary.truncate(texts);
        self.ids.truncate(rows);
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.dictionary.clear();
        self.ids.clear();
    }
}

/// One value for consecutive rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Dictionary id of the value.
    pub id: u32,
    /// Number of rows that have the value.
    pub rows: u32,
}

/// Values for runs of rows, repeated per row only when the block is written.
#[derive(Default)]
pub struct Runs {
    /// The runs, in order.
    pub runs: Vec<Run>,
}

impl Runs {
    /// Adds `rows` rows with this value.
    #[inline]
    pub fn push(&mut self, id: u32, rows: u32) {
        match self.runs.last_mut() {
            _ if rows == 0 => {}
            Some(last) if last.id == id => last.rows += rows,
            _ => self.runs.push(Run { id, rows }),
        }
    }

    /// Returns the current end: the number of runs and the length of the last run.
    #[must_use]
    pub fn mark(&self) -> (usize, u32) {
        (self.runs.len(), self.runs.last().map_or(0, |run| run.rows))
    }

    /// Truncates the runs to an earlier mark.
    pub fn truncate(&mut self, (runs, last_rows): (usize, u32)) {
        self.runs.truncate(runs);
        // The last run may have grown since the mark.
        if let Some(last) = self.runs.last_mut() {
            last.rows = last_rows;
        }
    }

    /// Removes all runs.
    pub fn clear(&mut self) {
        self.runs.clear();
    }
}

/// One string per run of rows.
#[derive(Default)]
pub struct RunColumn {
    /// The distinct strings.
    pub dictionary: Dictionary,
    /// The runs of rows that have each string.
    pub runs: Runs,
}

impl RunColumn {
    /// Adds one row with a string that needs no sanitising.
    #[inline]
    pub fn push_text(&mut self, text: &str) {
        let last = self.runs.runs.last().map_or(0, |run| run.id);
        let id = if self.dictionary.is(last, text.as_bytes()) {
            last
        } else {
            self.dictionary.id_of_text(text)
        };
        self.runs.push(id, 1);
    }

    /// Returns the current end of the column.
    #[must_use]
    pub fn mark(&self) -> (usize, (usize, u32)) {
        (self.dictionary.len(), self.runs.mark())
    }

    /// Truncates the column to an earlier mark.
    pub fn truncate(&mut self, (texts, runs): (usize, (usize, u32))) {
        self.dictionary.truncate(texts);
        self.runs.truncate(runs);
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.dictionary.clear();
        self.runs.clear();
    }
}

/// Values that most rows lack: pairs of row and value.
pub struct Sparse<T> {
    /// Rows that have a value, ascending.
    pub cells: Vec<(u32, T)>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { cells: Vec::new() }
    }
}

impl<T> Sparse<T> {
    /// Sets the value of a row.
    #[inline]
    pub fn push(&mut self, row: usize, value: T) {
        self.cells.push((id_from(row), value));
    }

    /// Returns the current end of the column.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.cells.len()
    }

    /// Truncates the column to an earlier mark.
    pub fn truncate(&mut self, mark: usize) {
        self.cells.truncate(mark);
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.cells.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_repeat_in_a_pattern_get_the_right_numbers() {
        let (mut column, mut tally) = (TextColumn::default(), Tally::default());

        for raw in [b"a", b"b", b"a", b"b", b"b", b"a"] {
            column.push(raw, 10, &mut tally);
        }

        assert_eq!(column.ids, [0, 1, 0, 1, 1, 0]);
    }

    #[test]
    fn truncated_text_column_equals_one_without_the_removed_rows() {
        let (mut column, mut tally) = (TextColumn::default(), Tally::default());
        column.push(b"a", 10, &mut tally);
        let mark = column.mark();
        column.push(b"gone", 10, &mut tally);
        column.push(b"a", 10, &mut tally);

        column.truncate(mark);
        column.push(b"b", 10, &mut tally);
        column.push(b"gone", 10, &mut tally);

        assert_eq!(column.ids, [0, 1, 2]);
        assert_eq!(
            column.dictionary.texts().collect::<Vec<_>>(),
            ["a", "b", "gone"]
        );
    }

    #[test]
    fn equal_neighbours_are_one_run_and_truncating_shortens_it() {
        let mut runs = Runs::default();
        runs.push(4, 2);
        let mark = runs.mark();
        runs.push(4, 3);
        runs.push(5, 1);
        runs.push(6, 0);
        assert_eq!(runs.runs, [Run { id: 4, rows: 5 }, Run { id: 5, rows: 1 }]);

        runs.truncate(mark);

        assert_eq!(runs.runs, [Run { id: 4, rows: 2 }]);
    }
}
