//! Columns of the block being built. Every column can report its current end (`mark`) and be truncated
//! to it (`truncate`), dictionaries included, to remove a span or a delivery.
//!
//! Values of a resource or scope are stored once and repeated per row only when the block is written.

mod attribute_cache;
pub mod clean;
pub mod dictionary;
pub mod ids;
pub mod map;
pub mod map_runs;
pub mod nested;
mod numbers;
pub mod slots;
mod table;
pub mod text;

use ids::TraceIds;
use map::{MapColumn, MapMark};
use map_runs::MapRuns;
use nested::{Events, EventsMark, Links, LinksMark};
use text::{RunColumn, Runs, Sparse, TextColumn};

/// A plain column with the interface of the others: mark, truncate, clear.
trait Rewind {
    type Mark: Copy;
    fn mark(&self) -> Self::Mark;
    fn truncate(&mut self, mark: Self::Mark);
    fn clear(&mut self);
}

macro_rules! rewind {
    ($($column:ty => $mark:ty;)*) => {$(
        impl Rewind for $column {
            type Mark = $mark;
            fn mark(&self) -> $mark { <$column>::mark(self) }
            fn truncate(&mut self, mark: $mark) { <$column>::truncate(self, mark); }
            fn clear(&mut self) { <$column>::clear(self); }
        }
    )*};
}

rewind! {
    TextColumn => (usize, usize);
    TraceIds => (usize, usize);
    Runs => (usize, u32);
    RunColumn => (usize, (usize, u32));
    MapColumn => MapMark;
    MapRuns => (MapMark, (usize, u32));
    Events => EventsMark;
    Links => LinksMark;
    Sparse<u32> => usize;
    Sparse<u64> => usize;
    Sparse<f64> => usize;
}

impl<T> Rewind for Vec<T> {
    type Mark = usize;
    fn mark(&self) -> usize {
        self.len()
    }
    fn truncate(&mut self, mark: usize) {
        self.truncate(mark);
    }
    fn clear(&mut self) {
        self.clear();
    }
}

// One list defines the columns, their marks and their removal, so that no column can be forgotten.
macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// All columns of the block being built.
        #[derive(Default)]
        pub struct Columns { $($(#[$doc])* pub $name: $type,)* }

        /// The end of every column at one point in time.
        #[derive(Clone, Copy)]
        pub struct Mark { $($name: <$type as Rewind>::Mark,)* }

        impl Columns {
            /// Returns the current end of all columns.
            #[must_use]
            pub fn mark(&self) -> Mark {
                Mark { $($name: Rewind::mark(&self.$name),)* }
            }

            /// Truncates all columns to an earlier mark.
            pub fn truncate(&mut self, mark: Mark) {
                $(Rewind::truncate(&mut self.$name, mark.$name);)*
            }

            /// Removes all rows; keeps the memory for the next block.
            pub fn clear(&mut self) {
                $(Rewind::clear(&mut self.$name);)*
            }
        }
    };
}

columns! {
    /// Start time, nanoseconds since 1970. The length of this column is the number of rows.
    timestamps: Vec<i64>,
    /// Trace id, sixteen bytes.
    trace_ids: TraceIds,
    /// Span id, eight bytes.
    span_ids: Vec<[u8; 8]>,
    /// Parent span id, eight bytes; all zero for a root span.
    parent_span_ids: Vec<[u8; 8]>,
    /// W3C tracestate.
    trace_states: TextColumn,
    /// Name of the operation.
    names: TextColumn,
    /// Number of the span kind in the enum.
    kinds: Vec<u8>,
    /// `service.name` of the resource.
    services: RunColumn,
    /// Attributes of the resource.
    resources: MapRuns,
    /// Name of the instrumentation scope.
    scope_names: RunColumn,
    /// Version of the instrumentation scope.
    scope_versions: RunColumn,
    /// Attributes of the span.
    attributes: MapColumn,
    /// Duration in nanoseconds.
    durations: Vec<u64>,
    /// Number of the status code in the enum.
    status_codes: Vec<u8>,
    /// Message of the status.
    status_messages: TextColumn,
    /// Events.
    events: Events,
    /// Links.
    links: Links,
    /// Project of the span.
    projects: RunColumn,
    /// Deployment of the project.
    deployments: RunColumn,
    /// Drain that delivered the span.
    drains: RunColumn,
    /// Receive time in milliseconds since 1970, and the number of rows it applies to.
    received_ms: Vec<(i64, u32)>,
    /// W3C trace flags.
    flags: Vec<u32>,
    /// Attributes dropped by the sender or by limits.
    dropped_attributes: Sparse<u32>,
    /// Events dropped by the sender or by limits.
    dropped_events: Sparse<u32>,
    /// Links dropped by the sender or by limits.
    dropped_links: Sparse<u32>,
    /// Attributes of the scope.
    scopes: MapRuns,
    /// Schema URL of the resource.
    resource_urls: RunColumn,
    /// Schema URL of the scope.
    scope_urls: RunColumn,
    /// Number of spans that this span represents; absent if unknown.
    weights: Sparse<f64>,
    /// Effective sampling threshold; absent if unknown.
    thresholds: Sparse<u64>,
    /// Reason of the sampling decision.
    reasons: RunColumn,
}

impl Columns {
    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.timestamps.len()
    }
}
