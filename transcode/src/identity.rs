//! Ids: decoded where the bytes say one thing only, never guessed.
//!
//! A trace id is 16 bytes and a span id 8, neither all zero; what else it was sent as (hex text in
//! protobuf; base64 or a dashed UUID in JSON) is told apart by length alone, read, and warned about.

use crate::base64;
use crate::visit::{Rejection, Warning};

/// Why an id of `N` bytes is none.
#[derive(Clone, Copy)]
enum Fault {
    Missing,
    Malformed,
    Zero,
}

impl Fault {
    fn of_trace_id(self) -> Rejection {
        match self {
            Self::Missing => Rejection::TraceIdMissing,
            Self::Malformed => Rejection::TraceIdMalformed,
            Self::Zero => Rejection::TraceIdZero,
        }
    }

    fn of_span_id(self) -> Rejection {
        match self {
            Self::Missing => Rejection::SpanIdMissing,
            Self::Malformed => Rejection::SpanIdMalformed,
            Self::Zero => Rejection::SpanIdZero,
        }
    }
}

/// A protobuf trace id.
///
/// # Errors
/// Absent, of another length, or all zero.
#[inline]
pub fn trace_id_from_bytes(
    raw: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; 16], Rejection> {
    from_bytes(raw, warn).map_err(Fault::of_trace_id)
}

/// A protobuf span id.
///
/// # Errors
/// Absent, of another length, or all zero.
#[inline]
pub fn span_id_from_bytes(
    raw: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; 8], Rejection> {
    from_bytes(raw, warn).map_err(Fault::of_span_id)
}

/// A protobuf parent id: `None` for a root, and, with a warning, for what is no id.
#[inline]
pub fn parent_from_bytes(raw: &[u8], warn: &mut impl FnMut(Warning)) -> Option<[u8; 8]> {
    parent(from_bytes(raw, warn), warn)
}

/// A JSON trace id.
///
/// # Errors
/// Absent, neither hex, base64 nor UUID, or all zero.
#[inline]
pub fn trace_id_from_text(
    text: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; 16], Rejection> {
    match undashed(text) {
        Some(digits) => from_hex(&digits)
            .inspect(|_| warn(Warning::IdUuid))
            .and_then(non_zero),
        None => from_text(text, warn),
    }
    .map_err(Fault::of_trace_id)
}

/// A JSON span id.
///
/// # Errors
/// Absent, neither hex nor base64, or all zero.
#[inline]
pub fn span_id_from_text(
    text: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; 8], Rejection> {
    from_text(text, warn).map_err(Fault::of_span_id)
}

/// A JSON parent id: `None` for a root, and, with a warning, for what is no id.
#[inline]
pub fn parent_from_text(text: &[u8], warn: &mut impl FnMut(Warning)) -> Option<[u8; 8]> {
    parent(from_text(text, warn), warn)
}

#[inline]
fn parent(id: Result<[u8; 8], Fault>, warn: &mut impl FnMut(Warning)) -> Option<[u8; 8]> {
    if matches!(id, Err(Fault::Malformed)) {
        warn(Warning::ParentDropped);
    }
    id.ok()
}

#[inline]
fn from_bytes<const N: usize>(
    raw: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; N], Fault> {
    match <[u8; N]>::try_from(raw) {
        Ok(id) => non_zero(id),
        Err(_) if raw.is_empty() => Err(Fault::Missing),
        Err(_) => from_hex(raw)
            .inspect(|_| warn(Warning::IdAsciiHex))
            .and_then(non_zero),
    }
}

#[inline]
fn from_text<const N: usize>(
    text: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; N], Fault> {
    if text.is_empty() {
        Err(Fault::Missing)
    } else if text.len() == 2 * N {
        from_hex(text).and_then(non_zero)
    } else {
        from_base64(text)
            .inspect(|_| warn(Warning::IdBase64))
            .and_then(non_zero)
    }
}

#[inline]
fn non_zero<const N: usize>(id: [u8; N]) -> Result<[u8; N], Fault> {
    if id == [0; N] {
        Err(Fault::Zero)
    } else {
        Ok(id)
    }
}

fn from_hex<const N: usize>(text: &[u8]) -> Result<[u8; N], Fault> {
    if text.len() != 2 * N {
        return Err(Fault::Malformed);
    }
    let mut id = [0; N];
    let (halves, _) = id.as_chunks_mut::<8>();
    let (digits, _) = text.as_chunks::<16>();
    let mut are_hex = true;
    for (half, digits) in halves.iter_mut().zip(digits) {
        are_hex &= eight_bytes(digits, half);
    }
    if are_hex {
        Ok(id)
    } else {
        Err(Fault::Malformed)
    }
}

/// Sixteen hex digits at once, without a branch or a table, so that the compiler does all of them in parallel;
/// false if one is none.
#[inline]
fn eight_bytes(digits: &[u8; 16], bytes: &mut [u8; 8]) -> bool {
    let (mut values, mut are_hex) = ([0; 16], true);
    for (value, character) in values.iter_mut().zip(digits) {
        let digit = character.wrapping_sub(b'0');
        let letter = (character | 0x20).wrapping_sub(b'a');
        *value = if digit < 10 {
            digit
        } else {
            letter.wrapping_add(10)
        };
        are_hex &= digit < 10 || letter < 6;
    }
    let (pairs, _) = values.as_chunks::<2>();
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = high << 4 | low & 0x0f;
    }
    are_hex
}

/// The id that a text of the right length spells in hex, unless it is all zeros.
#[inline]
pub fn plain<const DIGITS: usize, const BYTES: usize>(text: &[u8; DIGITS]) -> Option<[u8; BYTES]> {
    from_hex(text).and_then(non_zero).ok()
}

fn from_base64<const N: usize>(text: &[u8]) -> Result<[u8; N], Fault> {
    let padded_chars = N.div_ceil(3) * 4;
    let bare_chars = (N * 4).div_ceil(3);
    if text.len() != padded_chars && text.len() != bare_chars {
        return Err(Fault::Malformed);
    }
    let mut id = [0; N];
    let mut slots = id.iter_mut();
    let mut byte_count = 0;
    let is_base64 = base64::decode(text, |byte| {
        byte_count += 1;
        if let Some(slot) = slots.next() {
            *slot = byte;
        }
    });
    if is_base64 && byte_count == N {
        Ok(id)
    } else {
        Err(Fault::Malformed)
    }
}

/// The 32 digits of `8-4-4-4-12`, if that is how the text looks.
fn undashed(text: &[u8]) -> Option<[u8; 32]> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    if text.len() != 36 || !DASHES.iter().all(|&at| text.get(at) == Some(&b'-')) {
        return None;
    }
    let mut digits = [0; 32];
    let characters = text
        .iter()
        .enumerate()
        .filter(|(at, _)| !DASHES.contains(at));
    for (digit, (_, &character)) in digits.iter_mut().zip(characters) {
        *digit = character;
    }
    Some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Warning::{IdAsciiHex, IdBase64, IdUuid, ParentDropped};

    const TRACE: [u8; 16] = 0x5b8e_fff7_9803_8103_d269_b633_813f_c60c_u128.to_be_bytes();
    const SPAN: [u8; 8] = 0xeee1_9b7e_c3c1_b174_u64.to_be_bytes();

    type Told<T> = (T, Vec<Warning>);

    fn told<T>(read: impl FnOnce(&mut Vec<Warning>) -> T) -> Told<T> {
        let mut warnings = Vec::new();
        (read(&mut warnings), warnings)
    }

    fn trace_bytes(raw: &[u8]) -> Told<Result<[u8; 16], Rejection>> {
        told(|warnings| trace_id_from_bytes(raw, &mut |warning| warnings.push(warning)))
    }

    fn trace_text(text: &str) -> Told<Result<[u8; 16], Rejection>> {
        told(|warnings| trace_id_from_text(text.as_bytes(), &mut |warning| warnings.push(warning)))
    }

    fn span_text(text: &str) -> Told<Result<[u8; 8], Rejection>> {
        told(|warnings| span_id_from_text(text.as_bytes(), &mut |warning| warnings.push(warning)))
    }

    fn span_bytes(raw: &[u8]) -> Told<Result<[u8; 8], Rejection>> {
        told(|warnings| span_id_from_bytes(raw, &mut |warning| warnings.push(warning)))
    }

    fn parents(raw: &[u8]) -> [Told<Option<[u8; 8]>>; 2] {
        [
            told(|warnings| parent_from_bytes(raw, &mut |warning| warnings.push(warning))),
            told(|warnings| parent_from_text(raw, &mut |warning| warnings.push(warning))),
        ]
    }

    #[test]
    fn raw_bytes_are_ids_as_they_are() {
        assert_eq!(trace_bytes(&TRACE), (Ok(TRACE), vec![]));
        assert_eq!(span_bytes(&SPAN), (Ok(SPAN), vec![]));
        assert_eq!(parents(&SPAN)[0], (Some(SPAN), vec![]));
    }

    #[test]
    fn hex_text_in_protobuf_is_read_and_warned_about() {
        assert_eq!(
            trace_bytes(b"5b8efff798038103d269b633813fc60c"),
            (Ok(TRACE), vec![IdAsciiHex])
        );
        assert_eq!(
            span_bytes(b"EEE19B7EC3C1B174"),
            (Ok(SPAN), vec![IdAsciiHex])
        );
        assert_eq!(
            parents(b"eee19b7ec3c1b174")[0],
            (Some(SPAN), vec![IdAsciiHex])
        );
    }

    #[test]
    fn hex_in_json_is_an_id_in_any_case() {
        assert_eq!(
            trace_text("5B8EFFF798038103d269b633813fc60c"),
            (Ok(TRACE), vec![])
        );
        assert_eq!(span_text("eee19b7ec3C1B174"), (Ok(SPAN), vec![]));
        assert_eq!(parents(b"EEE19b7ec3c1b174")[1], (Some(SPAN), vec![]));
    }

    #[test]
    fn base64_in_json_is_read_and_warned_about() {
        for text in [
            "W47/95gDgQPSabYzgT/GDA==",
            "W47/95gDgQPSabYzgT/GDA",
            "W47_95gDgQPSabYzgT_GDA",
        ] {
            assert_eq!(trace_text(text), (Ok(TRACE), vec![IdBase64]), "{text}");
        }
        assert_eq!(span_text("7uGbfsPBsXQ="), (Ok(SPAN), vec![IdBase64]));
        assert_eq!(span_text("7uGbfsPBsXQ"), (Ok(SPAN), vec![IdBase64]));
    }

    #[test]
    fn a_dashed_uuid_is_read_as_trace_id_and_warned_about() {
        assert_eq!(
            trace_text("5b8efff7-9803-8103-d269-b633813fc60c"),
            (Ok(TRACE), vec![IdUuid])
        );
    }

    #[test]
    fn an_absent_id_is_missing_and_an_absent_parent_makes_a_root() {
        assert_eq!(trace_bytes(b""), (Err(Rejection::TraceIdMissing), vec![]));
        assert_eq!(trace_text(""), (Err(Rejection::TraceIdMissing), vec![]));
        assert_eq!(span_bytes(b""), (Err(Rejection::SpanIdMissing), vec![]));
        assert_eq!(span_text(""), (Err(Rejection::SpanIdMissing), vec![]));
        assert_eq!(parents(b""), [(None, vec![]), (None, vec![])]);
    }

    #[test]
    fn zeros_are_no_identity_and_a_zero_parent_makes_a_root() {
        assert_eq!(trace_bytes(&[0; 16]), (Err(Rejection::TraceIdZero), vec![]));
        assert_eq!(
            trace_text(&"0".repeat(32)),
            (Err(Rejection::TraceIdZero), vec![])
        );
        assert_eq!(span_bytes(&[0; 8]), (Err(Rejection::SpanIdZero), vec![]));
        assert_eq!(
            span_text(&"0".repeat(16)),
            (Err(Rejection::SpanIdZero), vec![])
        );
        assert_eq!(parents(&[0; 8])[0], (None, vec![]));
        assert_eq!(parents(b"0000000000000000")[1], (None, vec![]));
    }

    #[test]
    fn anything_else_is_malformed_without_a_guess() {
        for raw in [
            &TRACE[..15],
            &[7; 17],
            &[0; 15],
            &[0; 32],
            b"5b8efff798038103d269b633813fc60g",
        ] {
            assert_eq!(
                trace_bytes(raw),
                (Err(Rejection::TraceIdMalformed), vec![]),
                "{raw:?}"
            );
        }
        for text in [
            "5b8efff798038103d269b633813fc60",
            "5b8efff798038103d269b633813fc60cc",
            "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
            "W47/95gDgQPSabYzgT/GDB==",
            "W47/95gDgQPSabYzgT/GDAAA",
            "5b8efff7-9803-8103-d269-b633813fc60g",
            "5b8efff79-803-8103-d269-b633813fc60c",
        ] {
            assert_eq!(
                trace_text(text),
                (Err(Rejection::TraceIdMalformed), vec![]),
                "{text}"
            );
        }
        assert_eq!(
            span_bytes(&SPAN[..7]),
            (Err(Rejection::SpanIdMalformed), vec![])
        );
        assert_eq!(
            span_text("eee19b7ec3c1b17"),
            (Err(Rejection::SpanIdMalformed), vec![])
        );
        for (parent, warnings) in parents(b"abc") {
            assert_eq!((parent, warnings), (None, vec![ParentDropped]));
        }
    }
}
