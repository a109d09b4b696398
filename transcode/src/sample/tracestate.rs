//! The `ot` member of a W3C tracestate: reads and rewrites upstream sampling information.
//!
//! ```text
//! vendor=x,ot=th:c;rv:9b8233f7e3a151;p:8
//! ```
//!
//! Malformed fields count as absent. Other members and fields are preserved, in order.

use super::threshold::{DIGITS, from_hex, hex, hex_in_full};

/// Maximum length of the `ot` value, set by the OpenTelemetry specification.
const OT_BYTES_MAX: usize = 256;

/// Sampling information that a span arrived with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) randomness: Option<u64>,
    pub(super) threshold: Option<u64>,
}

impl Arrival {
    pub(super) fn read(trace_state: &[u8]) -> Self {
        let mut arrival = Self::default();
        if trace_state.is_empty() {
            return arrival;
        }
        for field in raw_fields(trace_state) {
            match field {
                [b't', b'h', b':', digits @ ..] => {
                    // The first valid occurrence of a field counts.
                    arrival.threshold = arrival.threshold.or_else(|| from_hex(digits));
                }
                [b'r', b'v', b':', digits @ ..] => {
                    arrival.randomness = arrival.randomness.or_else(|| randomness(digits));
                }
                _ => {}
            }
        }
        arrival
    }

    /// Returns whether upstream left no sampling information.
    pub(super) fn is_unmarked(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the names of fields that are present but malformed, and so count as absent.
pub(super) fn malformed_fields(trace_state: &[u8]) -> Vec<&'static str> {
    let arrival = Arrival::read(trace_state);
    let is_present = |name: &[u8]| raw_fields(trace_state).any(|field| field.starts_with(name));
    [
        ("th", arrival.threshold.is_none() && is_present(b"th:")),
        ("rv", arrival.randomness.is_none() && is_present(b"rv:")),
    ]
    .into_iter()
    .filter_map(|(name, is_unread)| is_unread.then_some(name))
    .collect()
}

fn randomness(digits: &[u8]) -> Option<u64> {
    // Unlike `th`, `rv` has no trailing zeros to add: it always has all digits.
    from_hex(digits).filter(|_| digits.len() == DIGITS as usize)
}

/// Writes the tracestate with a new threshold, or without. `new_randomness` is set for a span that arrived
/// without randomness. The member comes first, as W3C requires of a changed member.
pub(super) fn write(
    trace_state: &[u8],
    threshold: Option<u64>,
    new_randomness: Option<u64>,
    out: &mut Vec<u8>,
) {
    out.clear();
    if let Some(threshold) = threshold {
        field(out, b"th", hex(threshold).as_bytes());
    }
    if let Some(randomness) = new_randomness {
        field(out, b"rv", hex_in_full(randomness).as_bytes());
    }
    for (key, value) in fields(trace_state) {
        // Valid randomness is kept, because this decision used it and later stages must too.
        if key != b"th" && (key != b"rv" || randomness(value).is_some()) {
            field(out, key, value);
        }
    }
    // W3C allows each key once, so further `ot` members are dropped.
    for member in members(trace_state).filter(|member| ot_value(member).is_none()) {
        if !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(member);
    }
}

fn field(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend_from_slice(if out.is_empty() { b"ot=" } else { b";" });
    out.extend_from_slice(key);
    out.push(b':');
    out.extend_from_slice(value);
}

/// Splits a string at a separator.
fn parts(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = memchr::memchr(separator, text);
        rest = end.and_then(|end| text.get(end + 1..));
        end.map_or(Some(text), |end| text.get(..end))
    })
}

fn members(trace_state: &[u8]) -> impl Iterator<Item = &[u8]> {
    parts(trace_state, b',')
        .map(<[u8]>::trim_ascii)
        .filter(|part| !part.is_empty())
}

fn ot_value(member: &[u8]) -> Option<&[u8]> {
    member.strip_prefix(b"ot=")
}

/// Iterates over the fields of the first `ot` member, well-formed or not.
fn raw_fields(trace_state: &[u8]) -> impl Iterator<Item = &[u8]> {
    let value = members(trace_state)
        .find_map(ot_value)
        // over the limit, the whole member counts as malformed
        .filter(|value| value.len() <= OT_BYTES_MAX)
        .unwrap_or_default();
    parts(value, b';')
}

/// Iterates over the well-formed fields of the first `ot` member.
fn fields(trace_state: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    raw_fields(trace_state).filter_map(key_and_value)
}

fn key_and_value(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', field)?;
    let (key, value) = (field.get(..colon)?, field.get(colon + 1..)?);
    let is_valid_key = key.first()?.is_ascii_lowercase()
        && key
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_valid_value = value
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    (is_valid_key && is_valid_value).then_some((key, value))
}
