//! Serialises the collected columns as one Native block (see [`crate::put`] for the format).
//!
//! Invariant: a block has all columns of [`crate::schema`], in that order: readers infer the columns of a segment
//! from its first block.

use crate::columns::Columns;
use crate::columns::ids::TraceIds;
use crate::columns::map::MapColumn;
use crate::columns::map_runs::MapRuns;
use crate::columns::text::{RunColumn, Sparse, TextColumn};
use crate::put;
use crate::schema::{Field, KINDS, STATUSES};

/// Identity of a segment, stored in every row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Random id of the intake epoch.
    pub epoch: u64,
    /// Number of the segment within the epoch.
    pub seq: u64,
}

/// Appends the columns, which must hold at least one row, as one block.
pub fn write(out: &mut Vec<u8>, columns: &Columns, segment: Segment) {
    let rows = columns.rows();
    put::varint(out, Field::ALL.len() as u64);
    put::varint(out, rows as u64);
    for field in Field::ALL {
        put::text(out, field.name().as_bytes());
        put::text(out, field.wire_type().as_bytes());
        data(out, *field, columns, segment);
    }
}

fn data(out: &mut Vec<u8>, field: Field, columns: &Columns, segment: Segment) {
    let (events, links) = (&columns.events, &columns.links);
    match field {
        Field::Timestamp => put::fixed(
            out,
            columns.timestamps.iter().map(|time| time.to_le_bytes()),
        ),
        Field::TraceId => trace_ids(out, &columns.trace_ids),
        Field::SpanId => put::fixed(out, columns.span_ids.iter().map(put::hex::<8, 16>)),
        Field::ParentSpanId => put::fixed(out, columns.parent_span_ids.iter().copied().map(parent)),
        Field::TraceState => texts(out, &columns.trace_states),
        Field::SpanName => texts(out, &columns.names),
        Field::SpanKind => names(out, &KINDS, &columns.kinds),
        Field::ServiceName => runs(out, &columns.services),
        Field::ResourceAttributes => map_runs(out, &columns.resources),
        Field::ScopeName => runs(out, &columns.scope_names),
        Field::ScopeVersion => runs(out, &columns.scope_versions),
        Field::SpanAttributes => maps(out, None, &columns.attributes),
        Field::Duration => put::fixed(
            out,
            columns
                .durations
                .iter()
                .map(|duration| duration.to_le_bytes()),
        ),
        Field::StatusCode => names(out, &STATUSES, &columns.status_codes),
        Field::StatusMessage => texts(out, &columns.status_messages),
        Field::EventsTimestamp => {
            put::ends(out, &events.ends);
            put::fixed(out, events.times.iter().map(|time| time.to_le_bytes()));
        }
        Field::EventsName => text_lists(out, &events.ends, &events.names),
        Field::EventsAttributes => maps(out, Some(&events.ends), &events.attributes),
        Field::LinksTraceId => {
            prefix(out, 1);
            put::ends(out, &links.ends);
            trace_id_codes(out, &links.trace_ids);
        }
        Field::LinksSpanId => {
            put::ends(out, &links.ends);
            put::fixed(out, links.span_ids.iter().map(put::hex::<8, 16>));
        }
        Field::LinksTraceState => text_lists(out, &links.ends, &links.trace_states),
        Field::LinksAttributes => maps(out, Some(&links.ends), &links.attributes),
        _ => receiver_data(out, field, columns, segment),
    }
}

/// Appends one of the columns that this receiver adds to those of the OpenTelemetry exporter's table.
fn receiver_data(out: &mut Vec<u8>, field: Field, columns: &Columns, segment: Segment) {
    let rows = columns.rows();
    match field {
        Field::ProjectId => runs(out, &columns.projects),
        Field::DeploymentId => runs(out, &columns.deployments),
        Field::Drain => runs(out, &columns.drains),
        Field::ReceivedAt => {
            for (time, rows) in &columns.received_ms {
                repeated(out, time.to_le_bytes(), *rows as usize);
            }
        }
        Field::SegmentEpoch => repeated(out, segment.epoch.to_le_bytes(), rows),
        Field::SegmentSeq => repeated(out, segment.seq.to_le_bytes(), rows),
        Field::TraceFlags => put::fixed(out, columns.flags.iter().map(|flags| flags.to_le_bytes())),
        Field::DroppedAttributesCount => sparse(out, &columns.dropped_attributes, rows, |count| {
            count.to_le_bytes()
        }),
        Field::DroppedEventsCount => sparse(out, &columns.dropped_events, rows, |count| {
            count.to_le_bytes()
        }),
        Field::DroppedLinksCount => sparse(out, &columns.dropped_links, rows, |count| {
            count.to_le_bytes()
        }),
        Field::ScopeAttributes => map_runs(out, &columns.scopes),
        Field::ResourceSchemaUrl => runs(out, &columns.resource_urls),
        Field::ScopeSchemaUrl => runs(out, &columns.scope_urls),
        Field::SampleWeight => nullable(out, &columns.weights, rows, f64::to_le_bytes),
        Field::SampleThreshold => nullable(out, &columns.thresholds, rows, |threshold| {
            threshold.to_le_bytes()
        }),
        Field::SampleReason => runs(out, &columns.reasons),
        // Unreachable: `data` writes all other columns.
        _ => {}
    }
}

fn prefix(out: &mut Vec<u8>, dictionaries: usize) {
    for _ in 0..dictionaries {
        put::number(out, put::DICTIONARY_VERSION);
    }
}

/// Returns the parent span id as hex digits, or zero bytes for a root span: `ClickHouse` converts these zero bytes
/// of a `FixedString` to the empty string.
fn parent(id: [u8; 8]) -> [u8; 16] {
    if id == [0; 8] { [0; 16] } else { put::hex(&id) }
}

fn repeated<const WIDTH: usize>(out: &mut Vec<u8>, value: [u8; WIDTH], rows: usize) {
    put::fixed(out, std::iter::repeat_n(value, rows));
}

fn sparse<T: Copy, const WIDTH: usize>(
    out: &mut Vec<u8>,
    column: &Sparse<T>,
    rows: usize,
    bytes: impl Fn(T) -> [u8; WIDTH],
) {
    let start = out.len();
    // Only rows with a value other than 0 are in the sparse column.
    out.resize(start + rows * WIDTH, 0);
    let (cells, _) = out
        .get_mut(start..)
        .unwrap_or_default()
        .as_chunks_mut::<WIDTH>();
    for (row, value) in &column.cells {
        if let Some(cell) = cells.get_mut(*row as usize) {
            *cell = bytes(*value);
        }
    }
}

fn nullable<T: Copy, const WIDTH: usize>(
    out: &mut Vec<u8>,
    column: &Sparse<T>,
    rows: usize,
    bytes: impl Fn(T) -> [u8; WIDTH],
) {
    let start = out.len();
    // Nearly all values are null: mark every row as null, then unmark the others.
    out.resize(start + rows, 1);
    for (row, _) in &column.cells {
        if let Some(is_null) = out.get_mut(start + *row as usize) {
            *is_null = 0;
        }
    }
    // The format stores a value for null rows too; readers ignore it.
    sparse(out, column, rows, bytes);
}

fn texts(out: &mut Vec<u8>, column: &TextColumn) {
    prefix(out, 1);
    put::codes(out, &column.dictionary, &column.ids);
}

fn text_lists(out: &mut Vec<u8>, ends: &[u64], column: &TextColumn) {
    prefix(out, 1);
    put::ends(out, ends);
    put::codes(out, &column.dictionary, &column.ids);
}

fn names(out: &mut Vec<u8>, names: &[&str], numbers: &[u8]) {
    prefix(out, 1);
    // The numbers are the indexes: with fewer than 256 names an index is one byte.
    put::dictionary(out, names.iter().map(|name| name.as_bytes()), numbers.len());
    out.extend_from_slice(numbers);
}

fn trace_ids(out: &mut Vec<u8>, column: &TraceIds) {
    prefix(out, 1);
    trace_id_codes(out, column);
}

fn trace_id_codes(out: &mut Vec<u8>, column: &TraceIds) {
    // No row has a link: a dictionary head here would be read as the beginning of the next column.
    if column.ids.is_empty() {
        return;
    }
    let width = put::Width::of(column.distinct.len());
    put::number(out, put::DICTIONARY_FLAGS | width as u64);
    put::number(out, column.distinct.len() as u64);
    put::fixed(
        out,
        column.distinct.iter().map(|id| {
            // The first byte is the length of the text: 32 hex digits.
            let mut text = [32; 33];
            text.get_mut(1..)
                .unwrap_or_default()
                .copy_from_slice(&put::hex::<16, 32>(id));
            text
        }),
    );
    put::number(out, column.ids.len() as u64);
    put::indexes(out, width, &column.ids);
}

fn runs(out: &mut Vec<u8>, column: &RunColumn) {
    prefix(out, 1);
    // A column of runs does not store its number of rows, so the caller passes it.
    let rows = column.runs.runs.iter().map(|run| run.rows as usize).sum();
    let width = put::dictionary_head(out, &column.dictionary, rows);
    put::run_indexes(out, width, &column.runs.runs);
}

fn maps(out: &mut Vec<u8>, lists: Option<&[u64]>, column: &MapColumn) {
    prefix(out, 2);
    // Writes nothing for the maps of spans, which are not elements of a list.
    put::ends(out, lists.unwrap_or_default());
    put::ends(out, &column.ends);
    put::codes(out, &column.keys, &column.key_ids);
    put::codes(out, &column.values, &column.value_ids);
}

fn map_runs(out: &mut Vec<u8>, column: &MapRuns) {
    prefix(out, 2);
    let (maps, runs) = (&column.maps, &column.runs.runs);
    let mut entries = 0;
    for run in runs {
        // All rows of a run have the same map, so each row advances the end by the size of that map.
        let size = maps.entries(run.id).0.len();
        let first = entries;
        put::fixed(
            out,
            (0..run.rows as usize).map(|row| ((first + (row + 1) * size) as u64).to_le_bytes()),
        );
        entries += size * run.rows as usize;
    }
    // A `LowCardinality` without rows is its prefix alone, and the prefixes are written above.
    if entries == 0 {
        return;
    }
    let width = put::dictionary_head(out, &maps.keys, entries);
    for run in runs {
        repeated_indexes(out, width, maps.entries(run.id).0, run.rows);
    }
    let width = put::dictionary_head(out, &maps.values, entries);
    for run in runs {
        repeated_indexes(out, width, maps.entries(run.id).1, run.rows);
    }
}

fn repeated_indexes(out: &mut Vec<u8>, width: put::Width, ids: &[u32], rows: u32) {
    let start = out.len();
    put::indexes(out, width, ids);
    put::repeat_from(out, start, rows);
}
