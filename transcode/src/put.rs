//! Writer of `ClickHouse`'s Native format.
//!
//! ```text
//! block:           columns varint │ rows varint │ per column: name │ type │ data
//! text:            bytes varint │ bytes
//! LowCardinality:  version u64 = 1 ║ index type + flags u64 │ strings u64 │ strings │ rows u64 │ rows × index
//! Array(T):        prefix of T ║ rows × end u64 │ T
//! Map(K, V):       prefix of K, prefix of V ║ rows × end u64 │ K │ V
//! Nullable(T):     rows × u8 (1: null) │ T
//! ```
//!
//! The part before ║ is the prefix: for nested types all prefixes come first. A `LowCardinality` without
//! rows consists of its prefix alone. All numbers are little endian.

use crate::columns::dictionary::Dictionary;
use crate::columns::text::Run;

/// Version of the `LowCardinality` serialisation with a dictionary in each block.
pub const DICTIONARY_VERSION: u64 = 1;
/// Flags of a block that carries its own keys, which replace earlier keys.
pub const DICTIONARY_FLAGS: u64 = 0x600;

/// Size of a dictionary index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// Up to 256 strings.
    U8 = 0,
    /// Up to 65,536 strings.
    U16 = 1,
    /// More than 65,536 strings.
    U32 = 2,
}

impl Width {
    /// Returns the narrowest index for this many strings.
    #[must_use]
    pub fn of(texts: usize) -> Self {
        match texts {
            0..=0x100 => Self::U8,
            0x101..=0x1_0000 => Self::U16,
            _ => Self::U32,
        }
    }
}

/// Appends an unsigned LEB128.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends a string with its length.
pub fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a number.
pub fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends values of a fixed width.
#[inline]
pub fn fixed<const WIDTH: usize>(
    out: &mut Vec<u8>,
    values: impl ExactSizeIterator<Item = [u8; WIDTH]>,
) {
    let start = out.len();
    // One resize instead of a capacity check for each value.
    out.resize(start + values.len() * WIDTH, 0);
    let (cells, _) = out
        .get_mut(start..)
        .unwrap_or_default()
        .as_chunks_mut::<WIDTH>();
    for (cell, value) in cells.iter_mut().zip(values) {
        *cell = value;
    }
}

/// Appends the end of each list.
pub fn ends(out: &mut Vec<u8>, ends: &[u64]) {
    fixed(out, ends.iter().map(|end| end.to_le_bytes()));
}

/// Appends the head of a `LowCardinality` after its prefix. The caller must append its indexes next.
pub fn dictionary<'a>(
    out: &mut Vec<u8>,
    texts: impl ExactSizeIterator<Item = &'a [u8]>,
    rows: usize,
) -> Width {
    let count = texts.len();
    let width = Width::of(count);
    number(out, DICTIONARY_FLAGS | width as u64);
    number(out, count as u64);
    for entry in texts {
        text(out, entry);
    }
    number(out, rows as u64);
    width
}

/// Appends indexes.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the width was chosen so that every index fits"
)]
pub fn indexes(out: &mut Vec<u8>, width: Width, ids: &[u32]) {
    match width {
        Width::U8 => out.extend(ids.iter().map(|id| *id as u8)),
        Width::U16 => fixed(out, ids.iter().map(|id| (*id as u16).to_le_bytes())),
        Width::U32 => fixed(out, ids.iter().map(|id| id.to_le_bytes())),
    }
}

/// Appends the head of a `LowCardinality` with the strings of a dictionary, after its prefix. The caller must append
/// the indexes next.
pub fn dictionary_head(out: &mut Vec<u8>, dictionary: &Dictionary, rows: usize) -> Width {
    let width = Width::of(dictionary.len());
    number(out, DICTIONARY_FLAGS | width as u64);
    number(out, dictionary.len() as u64);
    out.extend_from_slice(dictionary.wire());
    number(out, rows as u64);
    width
}

/// Appends a complete `LowCardinality` after its prefix.
pub fn codes(out: &mut Vec<u8>, dictionary: &Dictionary, ids: &[u32]) {
    // Without rows there is only the prefix.
    if !ids.is_empty() {
        let width = dictionary_head(out, dictionary, ids.len());
        indexes(out, width, ids);
    }
}

/// Repeats the bytes of `out` from `start` to its end until they occur `times` times.
pub fn repeat_from(out: &mut Vec<u8>, start: usize, times: u32) {
    let period = out.len() - start;
    let wanted = start + period * times as usize;
    out.reserve(wanted.saturating_sub(out.len()));
    while out.len() < wanted {
        // Doubles the copied part each time, so that few long copies suffice.
        let copied = (out.len() - start).min(wanted - out.len());
        out.extend_from_within(start..start + copied);
    }
}

/// Appends the index of every row of the runs.
pub fn run_indexes(out: &mut Vec<u8>, width: Width, runs: &[Run]) {
    for run in runs {
        let start = out.len();
        indexes(out, width, &[run.id]);
        repeat_from(out, start, run.rows);
    }
}

/// Returns the lower-case hex digits of an id.
#[must_use]
#[inline]
pub fn hex<const BYTES: usize, const DIGITS: usize>(id: &[u8; BYTES]) -> [u8; DIGITS] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or_default();
    let mut out = [0; DIGITS];
    let (pairs, _) = out.as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(id) {
        *pair = [digit(byte >> 4), digit(byte & 0xF)];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_leb128() {
        let mut out = Vec::new();

        for value in [0, 127, 128, 300, u64::MAX] {
            varint(&mut out, value);
        }

        assert_eq!(out[..6], [0, 127, 0x80, 1, 0xAC, 2]);
        assert_eq!(
            out[6..],
            [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1]
        );
    }

    #[test]
    fn run_indexes_are_repeated_per_row() {
        let mut out = vec![9];

        run_indexes(
            &mut out,
            Width::U16,
            &[Run { id: 1, rows: 3 }, Run { id: 258, rows: 1 }],
        );

        assert_eq!(out, [9, 1, 0, 1, 0, 1, 0, 2, 1]);
    }

    #[test]
    fn ids_are_lower_case_hex() {
        assert_eq!(&hex::<3, 6>(&[0x00, 0xAF, 0x5B]), b"00af5b");
    }

    #[test]
    fn indexes_are_as_narrow_as_the_dictionary_allows() {
        assert_eq!(
            [256, 257, 65_536, 65_537].map(Width::of),
            [Width::U8, Width::U16, Width::U16, Width::U32]
        );
    }
}
