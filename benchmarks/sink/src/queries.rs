//! Queries that receivers send: the server version, and the row counts of segments. Other queries return
//! nothing.

use crate::counts;
use crate::cursor::{put_text, put_varint};

pub const VERSION: &str = "26.9.1.1";

/// URL parameters of a request.
pub type Parameters = Vec<(String, String)>;

/// Returns the result in Native format, or as text if the client requests text.
pub fn answer(sql: &str, parameters: &Parameters, wants_native: bool) -> Vec<u8> {
    if sql.contains("groupArray((SegmentEpoch, SegmentSeq, day, spans))") {
        return segment_rows(parameters);
    }
    if sql.contains("groupArray((Drain, ProjectId, hour, spans, checksum))") {
        return segment_sum(parameters);
    }
    if sql.contains("FROM system.processes") {
        return array_block("Array(String)", 0);
    }
    if !sql.contains("version()") {
        return Vec::new();
    }
    if !wants_native {
        return format!("{VERSION}\tUTC\n").into_bytes();
    }
    let mut out = single_value_block("version()", "String");
    put_text(&mut out, VERSION);
    out
}

fn segment_rows(parameters: &Parameters) -> Vec<u8> {
    let rows = counts::of(
        &numbers(parameters, "param_epochs"),
        &numbers(parameters, "param_seqs"),
    );
    let kind = "Array(Tuple(UInt64, UInt64, String, UInt64))";
    let mut out = array_block(kind, rows.len() as u64);
    put_numbers(&mut out, rows.iter().map(|row| row.0));
    put_numbers(&mut out, rows.iter().map(|row| row.1));
    for row in &rows {
        put_text(&mut out, &day_text(row.2));
    }
    put_numbers(&mut out, rows.iter().map(|row| row.3));
    out
}

/// Answers with one group for all rows of the segment: the sink keeps neither their drain and project nor a
/// checksum, which the receiver only writes to its ledger.
fn segment_sum(parameters: &Parameters) -> Vec<u8> {
    let rows = counts::of(
        &numbers(parameters, "param_epoch"),
        &numbers(parameters, "param_seq"),
    );
    let kind = "Array(Tuple(String, String, UInt32, UInt64, UInt64))";
    let mut out = array_block(kind, 1);
    put_text(&mut out, "");
    put_text(&mut out, "");
    out.extend_from_slice(&0_u32.to_le_bytes());
    put_numbers(
        &mut out,
        std::iter::once(rows.iter().map(|row| row.3).sum()),
    );
    put_numbers(&mut out, std::iter::once(0));
    out
}

/// Begins a block with one array of this many elements, which the caller appends.
fn array_block(kind: &str, elements: u64) -> Vec<u8> {
    let mut out = single_value_block("found", kind);
    put_numbers(&mut out, std::iter::once(elements));
    out
}

/// Begins a block of one column and one row, whose value the caller appends.
fn single_value_block(name: &str, kind: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, 1);
    put_varint(&mut out, 1);
    put_text(&mut out, name);
    put_text(&mut out, kind);
    out
}

fn put_numbers(out: &mut Vec<u8>, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn numbers(parameters: &Parameters, name: &str) -> Vec<u64> {
    let text = parameters.iter().find(|(key, _)| key == name);
    text.map_or("", |(_, value)| value)
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

/// Formats days since 1970 as a partition name: `20260131`. Civil calendar, with years that begin in March.
fn day_text(day: u64) -> String {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day_of_month:02}")
}
