//! The columns of a block while it grows. Every column knows where it stands (`mark`) and goes back
//! there (`truncate`): that is how a span or a whole delivery is taken out again, dictionaries included.
//!
//! What a resource or scope says once is kept once and spelled out when the block is written.

pub mod alike;
pub mod clean;
pub mod dictionary;
pub mod ids;
pub mod map;
pub mod map_runs;
pub mod nested;
mod numbers;
mod spellings;
mod table;
pub mod text;

use ids::TraceIds;
use map::{MapColumn, MapMark};
use map_runs::MapRuns;
use nested::{Events, EventsMark, Links, LinksMark};
use text::{RunColumn, Runs, Sparse, TextColumn};

/// A plain column as the others: marked, truncated, cleared.
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

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// All columns of the growing block.
        #[derive(Default)]
        pub struct Columns { $($(#[$doc])* pub $name: $type,)* }

        /// Where all columns stand.
        #[derive(Clone, Copy)]
        pub struct Mark { $($name: <$type as Rewind>::Mark,)* }

        impl Columns {
            /// Where all columns stand.
            #[must_use]
            pub fn mark(&self) -> Mark {
                Mark { $($name: Rewind::mark(&self.$name),)* }
            }

            /// Back to where all columns stood.
            pub fn truncate(&mut self, mark: Mark) {
                $(Rewind::truncate(&mut self.$name, mark.$name);)*
            }

            /// Forgets everything; memory is kept for the next block.
            pub fn clear(&mut self) {
                $(Rewind::clear(&mut self.$name);)*
            }
        }
    };
}

columns! {
    /// Start, nanoseconds since 1970: one for each row, so this column counts the rows.
    timestamps: Vec<i64>,
    /// Sixteen bytes.
    trace_ids: TraceIds,
    /// Eight bytes.
    span_ids: Vec<[u8; 8]>,
    /// Eight bytes; all zero: a root.
    parent_span_ids: Vec<[u8; 8]>,
    /// W3C tracestate.
    trace_states: TextColumn,
    /// What the span did.
    names: TextColumn,
    /// Number of the kind, inside the enum.
    kinds: Vec<u8>,
    /// `service.name` of the resource.
    services: RunColumn,
    /// Attributes of the resource.
    resources: MapRuns,
    /// Name of the instrumentation scope.
    scope_names: RunColumn,
    /// Its version.
    scope_versions: RunColumn,
    /// Attributes of the span.
    attributes: MapColumn,
    /// Nanoseconds.
    durations: Vec<u64>,
    /// Number of the status, inside the enum.
    status_codes: Vec<u8>,
    /// What the status says.
    status_messages: TextColumn,
    /// Events.
    events: Events,
    /// Links.
    links: Links,
    /// Whose span it is.
    projects: RunColumn,
    /// Which deployment of the project.
    deployments: RunColumn,
    /// Who sent it.
    drains: RunColumn,
    /// When it came: milliseconds since 1970, for so many rows.
    received_ms: Vec<(i64, u32)>,
    /// W3C flags.
    flags: Vec<u32>,
    /// What sender and limits dropped.
    dropped_attributes: Sparse<u32>,
    /// What sender and limits dropped.
    dropped_events: Sparse<u32>,
    /// What sender and limits dropped.
    dropped_links: Sparse<u32>,
    /// Attributes of the scope.
    scopes: MapRuns,
    /// Schema URL of the resource.
    resource_urls: RunColumn,
    /// Schema URL of the scope.
    scope_urls: RunColumn,
    /// How many spans this one stands for; absent: unknown.
    weights: Sparse<f64>,
    /// The sampling threshold in force; absent: unknown.
    thresholds: Sparse<u64>,
    /// Why it was kept.
    reasons: RunColumn,
}

impl Columns {
    /// Rows so far.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.timestamps.len()
    }
}
