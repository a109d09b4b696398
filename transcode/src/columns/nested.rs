//! Events and links: a list a row, each field of the list a column of its own.

use super::ids::TraceIds;
use super::map::{MapColumn, MapMark};
use super::text::TextColumn;

/// The events of each row.
#[derive(Default)]
pub struct Events {
    /// Where each row's events end.
    pub ends: Vec<u64>,
    /// Nanoseconds since 1970.
    pub times: Vec<i64>,
    /// What happened.
    pub names: TextColumn,
    /// Each event's attributes.
    pub attributes: MapColumn,
}

/// Where events stand: rows, events, names, attributes.
pub type EventsMark = (usize, usize, (usize, usize), MapMark);

impl Events {
    /// Where the columns stand.
    #[must_use]
    pub fn mark(&self) -> EventsMark {
        (
            self.ends.len(),
            self.times.len(),
            self.names.mark(),
            self.attributes.mark(),
        )
    }

    /// Back to where they stood.
    pub fn truncate(&mut self, (rows, events, names, attributes): EventsMark) {
        self.ends.truncate(rows);
        self.times.truncate(events);
        self.names.truncate(names);
        self.attributes.truncate(attributes);
    }

    /// Forgets everything.
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
    /// Where each row's links end.
    pub ends: Vec<u64>,
    /// The linked traces.
    pub trace_ids: TraceIds,
    /// The linked spans.
    pub span_ids: Vec<[u8; 8]>,
    /// As sent.
    pub trace_states: TextColumn,
    /// Each link's attributes.
    pub attributes: MapColumn,
}

/// Where links stand: rows, traces, spans, states, attributes.
pub type LinksMark = (usize, (usize, usize), usize, (usize, usize), MapMark);

impl Links {
    /// Where the columns stand.
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

    /// Back to where they stood.
    pub fn truncate(&mut self, (rows, traces, spans, states, attributes): LinksMark) {
        self.ends.truncate(rows);
        self.trace_ids.truncate(traces);
        self.span_ids.truncate(spans);
        self.trace_states.truncate(states);
        self.attributes.truncate(attributes);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.trace_ids.clear();
        self.span_ids.clear();
        self.trace_states.clear();
        self.attributes.clear();
    }
}
