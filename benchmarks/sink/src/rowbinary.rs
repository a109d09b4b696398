//! Decoder of `RowBinary`: row after row of the exporter's table, every value checked.

use crate::counts::Rows;
use crate::cursor::{Cursor, Flaw};
use crate::kinds::{self, Kind};

/// Names and types of the columns that the OpenTelemetry exporters insert into, in their order.
pub const COLUMNS: [(&str, &str); 22] = [
    ("Timestamp", "DateTime64(9)"),
    ("TraceId", "String"),
    ("SpanId", "String"),
    ("ParentSpanId", "String"),
    ("TraceState", "String"),
    ("SpanName", "LowCardinality(String)"),
    ("SpanKind", "LowCardinality(String)"),
    ("ServiceName", "LowCardinality(String)"),
    ("ResourceAttributes", "Map(LowCardinality(String), String)"),
    ("ScopeName", "String"),
    ("ScopeVersion", "String"),
    ("SpanAttributes", "Map(LowCardinality(String), String)"),
    ("Duration", "UInt64"),
    ("StatusCode", "LowCardinality(String)"),
    ("StatusMessage", "String"),
    ("Events.Timestamp", "Array(DateTime64(9))"),
    ("Events.Name", "Array(LowCardinality(String))"),
    (
        "Events.Attributes",
        "Array(Map(LowCardinality(String), String))",
    ),
    ("Links.TraceId", "Array(String)"),
    ("Links.SpanId", "Array(String)"),
    ("Links.TraceState", "Array(String)"),
    (
        "Links.Attributes",
        "Array(Map(LowCardinality(String), String))",
    ),
];

/// Decodes all rows in the bytes.
pub fn rows(bytes: &[u8]) -> Result<Rows, Flaw> {
    let kinds: Vec<Kind> = COLUMNS
        .iter()
        .map(|(_, kind)| kinds::parse(kind))
        .collect::<Result<_, _>>()?;
    let (mut cursor, mut count) = (Cursor { rest: bytes }, 0);
    while !cursor.rest.is_empty() {
        kinds.iter().try_for_each(|kind| value(&mut cursor, kind))?;
        count += 1;
    }
    Ok(Rows::plain(count))
}

fn value(cursor: &mut Cursor, kind: &Kind) -> Result<(), Flaw> {
    match kind {
        Kind::Fixed(width) => cursor.take(*width).map(|_| ()),
        Kind::Text => cursor.skip_text(),
        Kind::LowCardinality(inner) => value(cursor, inner),
        Kind::Nullable(inner) => match cursor.byte()? {
            0 => value(cursor, inner),
            _ => Ok(()),
        },
        Kind::Array(inner) => {
            let count = cursor.varint()?;
            (0..count).try_for_each(|_| value(cursor, inner))
        }
        Kind::Map(key, inner) => {
            let count = cursor.varint()?;
            (0..count).try_for_each(|_| value(cursor, key).and_then(|()| value(cursor, inner)))
        }
    }
}
