//! Columns of events and links: one list per row, each field of the elements in a column of its own.

use super::ids::TraceIds;
use super::map::{MapColumn, MapMark};
use super::text::TextColumn;

/// The events of each row.
#[derive(Default)]
pub struct Events {
    /// The end of each row's events.
    pub ends: Vec<u64>,
    /// Times in nanoseconds since 1970.
    pub times: Vec<i64>,
    /// Names of the events.
    pub names: TextColumn,
    /// Attributes of each event.
    pub attributes: MapColumn,
}

/// A position in the event columns: rows, events, names, attributes.
pub type EventsMark = (usize, usize, (usize, usize), MapMark);

impl Events {
    /// Returns the current end of the columns.
    #[must_use]
    pub fn mark(&self) -> EventsMark {
        (
            self.ends.len(),
            self.times.len(),
            self.names.mark(),
            self.attributes.mark(),
        )
    }

    /// Truncates the columns to an earlier mark.
    pub fn truncate(&mut self, (rows, events, names, attributes): EventsMark) {
        self.ends.truncate(rows);
        self.times.truncate(events);
        self.names.truncate(names);
        self.attributes.truncate(attributes);
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.times.clear();
        self.names.clear();
        self.attributes.clear();
    }
}

/// The links of each row.
#[derive(Default)]
pub struct Links {
    /// The end of each row's links.
    pub ends: Vec<u64>,
    /// The linked traces.
    pub trace_ids: TraceIds,
    /// The linked spans.
    pub span_ids: Vec<[u8; 8]>,
    /// Tracestates as sent.
    pub trace_states: TextColumn,
    /// Attributes of each link.
    pub attributes: MapColumn,
}

/// A position in the link columns: rows, trace ids, span ids, tracestates, attributes.
pub type LinksMark = (usize, (usize, usize), usize, (usize, usize), MapMark);

impl Links {
    /// Returns the current end of the columns.
    #[must_use]
    pub fn mark(&self) -> LinksMark {
        let (traces, states) = (self.trace_ids.mark(), self.trace_states.mark());
        (
            self.ends.len(),
            traces,
            self.span_ids.len(),
            states,
            self.attributes.mark(),
        )
    }

    /// Truncates the columns to an earlier mark.
    pub fn truncate(&mut self, (rows, traces, spans, states, attributes): LinksMark) {
        self.ends.truncate(rows);
        self.trace_ids.truncate(traces);
        self.span_ids.truncate(spans);
        self.trace_states.truncate(states);
        self.attributes.truncate(attributes);
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.trace_ids.clear();
        self.span_ids.clear();
        self.trace_states.clear();
        self.attributes.clear();
    }
}
