//! Decoder of Native blocks: column after column, every value checked.

use crate::counts::Rows;
use crate::cursor::{Cursor, Flaw};
use crate::kinds::{self, Kind};

/// Decodes all blocks in the bytes.
pub fn blocks(bytes: &[u8]) -> Result<Rows, Flaw> {
    let (mut cursor, mut rows) = (Cursor { rest: bytes }, Rows::default());
    while !cursor.rest.is_empty() {
        block(&mut cursor, &mut rows)?;
    }
    Ok(rows)
}

/// Decodes one block. Returns its row count.
pub fn block(cursor: &mut Cursor, rows: &mut Rows) -> Result<usize, Flaw> {
    let (columns, count) = (cursor.varint()?, cursor.varint()?);
    let (mut epochs, mut seqs, mut times): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
    for _ in 0..columns {
        let name = cursor.text()?;
        let kind = kinds::parse(cursor.text()?)?;
        let before = cursor.rest;
        // Columns of a block without rows have no data, not even a prefix.
        if count > 0 {
            prefix(cursor, &kind)?;
            values(cursor, &kind, count)?;
        }
        match name {
            "SegmentEpoch" => epochs = before,
            "SegmentSeq" => seqs = before,
            "Timestamp" => times = before,
            _ => {}
        }
    }
    rows.add(count, epochs, seqs, times);
    Ok(count)
}

fn prefix(cursor: &mut Cursor, kind: &Kind) -> Result<(), Flaw> {
    match kind {
        Kind::LowCardinality(_) => cursor.take(8).map(|_| ()),
        Kind::Array(inner) | Kind::Nullable(inner) => prefix(cursor, inner),
        Kind::Map(key, value) => {
            prefix(cursor, key)?;
            prefix(cursor, value)
        }
        Kind::Fixed(_) | Kind::Text => Ok(()),
    }
}

fn values(cursor: &mut Cursor, kind: &Kind, count: usize) -> Result<(), Flaw> {
    match kind {
        Kind::Fixed(width) => cursor.take(width * count).map(|_| ()),
        Kind::Text => (0..count).try_for_each(|_| cursor.skip_text()),
        Kind::Nullable(inner) => {
            cursor.take(count)?;
            values(cursor, inner, count)
        }
        Kind::Array(inner) => {
            let inside = last_offset(cursor, count)?;
            values(cursor, inner, inside)
        }
        Kind::Map(key, value) => {
            let inside = last_offset(cursor, count)?;
            values(cursor, key, inside)?;
            values(cursor, value, inside)
        }
        Kind::LowCardinality(inner) => low_cardinality(cursor, inner, count),
    }
}

/// Reads the ends of `count` arrays and returns the last. Each must be at least the previous end.
fn last_offset(cursor: &mut Cursor, count: usize) -> Result<usize, Flaw> {
    let mut last = 0;
    for _ in 0..count {
        let offset = cursor.size()?;
        if offset < last {
            return Err(Flaw::Invalid("array ends before it begins".into()));
        }
        last = offset;
    }
    Ok(last)
}

fn low_cardinality(cursor: &mut Cursor, inner: &Kind, count: usize) -> Result<(), Flaw> {
    // Without values there is only the prefix.
    if count == 0 {
        return Ok(());
    }
    // The low byte is the type of the index; the other bits are flags.
    let width = 1 << (cursor.u64()? & 0xff);
    let keys = cursor.size()?;
    values(cursor, inner, keys)?;
    let indexes = cursor.size()?;
    if indexes != count {
        return Err(Flaw::Invalid(format!(
            "{indexes} indexes for {count} values"
        )));
    }
    let bytes = cursor.take(width * indexes)?;
    let is_known = |index: &[u8]| {
        let value = index
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        value < keys
    };
    if bytes.chunks_exact(width).all(is_known) {
        Ok(())
    } else {
        Err(Flaw::Invalid("dictionary index out of range".into()))
    }
}
