//! Decoder of trace and span ids. Accepts every encoding that is unambiguous; never guesses.
//!
//! A trace id has 16 bytes and a span id 8, not all zero. Other encodings that senders use (hex text in
//! protobuf; base64 or a dashed UUID in JSON) are distinguished by their length, accepted, and warned
//! about.

use crate::base64;
use crate::visit::{Rejection, Warning};

/// The reason why bytes are not a valid id of `N` bytes.
#[derive(Clone, Copy)]
enum IdError {
    Missing,
    Malformed,
    Zero,
}

impl IdError {
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

/// Decodes a protobuf trace id.
///
/// # Errors
/// If it is absent, has another length, or is all zero.
#[inline]
pub fn trace_id_from_bytes(
    raw: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; 16], Rejection> {
    from_bytes(raw, warn).map_err(IdError::of_trace_id)
}

/// Decodes a protobuf span id.
///
/// # Errors
/// If it is absent, has another length, or is all zero.
#[inline]
pub fn span_id_from_bytes(
    raw: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; 8], Rejection> {
    from_bytes(raw, warn).map_err(IdError::of_span_id)
}

/// Decodes a protobuf parent id. Returns `None` for a root span and, with a warning, for an invalid id.
#[inline]
pub fn parent_from_bytes(raw: &[u8], warn: &mut impl FnMut(Warning)) -> Option<[u8; 8]> {
    parent(from_bytes(raw, warn), warn)
}

/// Decodes a JSON trace id.
///
/// # Errors
/// If it is absent, neither hex, base64 nor UUID, or all zero.
#[inline]
pub fn trace_id_from_text(
    text: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; 16], Rejection> {
    // No other encoding of a trace id has 36 characters, so a UUID is unambiguous.
    match undashed(text) {
        Some(digits) => from_hex(&digits)
            .inspect(|_| warn(Warning::IdUuid))
            .and_then(non_zero),
        None => from_text(text, warn),
    }
    .map_err(IdError::of_trace_id)
}

/// Decodes a JSON span id.
///
/// # Errors
/// If it is absent, neither hex nor base64, or all zero.
#[inline]
pub fn span_id_from_text(
    text: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; 8], Rejection> {
    from_text(text, warn).map_err(IdError::of_span_id)
}

/// Decodes a JSON parent id. Returns `None` for a root span and, with a warning, for an invalid id.
#[inline]
pub fn parent_from_text(text: &[u8], warn: &mut impl FnMut(Warning)) -> Option<[u8; 8]> {
    parent(from_text(text, warn), warn)
}

#[inline]
fn parent(id: Result<[u8; 8], IdError>, warn: &mut impl FnMut(Warning)) -> Option<[u8; 8]> {
    // A missing or zero parent id means a root span.
    if matches!(id, Err(IdError::Malformed)) {
        warn(Warning::ParentDropped);
    }
    id.ok()
}

#[inline]
fn from_bytes<const N: usize>(
    raw: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; N], IdError> {
    match <[u8; N]>::try_from(raw) {
        Ok(id) => non_zero(id),
        Err(_) if raw.is_empty() => Err(IdError::Missing),
        Err(_) => from_hex(raw)
            .inspect(|_| warn(Warning::IdAsciiHex))
            .and_then(non_zero),
    }
}

#[inline]
fn from_text<const N: usize>(
    text: &[u8],
    warn: &mut impl FnMut(Warning),
) -> Result<[u8; N], IdError> {
    if text.is_empty() {
        Err(IdError::Missing)
    } else if text.len() == 2 * N {
        // The length distinguishes the encodings: 16 bytes are 32 hex digits or 22 or 24 base64 digits.
        from_hex(text).and_then(non_zero)
    } else {
        from_base64(text)
            .inspect(|_| warn(Warning::IdBase64))
            .and_then(non_zero)
    }
}

#[inline]
fn non_zero<const N: usize>(id: [u8; N]) -> Result<[u8; N], IdError> {
    if id == [0; N] {
        Err(IdError::Zero)
    } else {
        Ok(id)
    }
}

fn from_hex<const N: usize>(text: &[u8]) -> Result<[u8; N], IdError> {
    // Splitting into chunks below would ignore excess digits.
    if text.len() != 2 * N {
        return Err(IdError::Malformed);
    }
    let mut id = [0; N];
    let (halves, _) = id.as_chunks_mut::<8>();
    let (digits, _) = text.as_chunks::<16>();
    // No early exit: nearly all ids are valid, and a branch per digit costs more.
    let mut are_hex = true;
    for (half, digits) in halves.iter_mut().zip(digits) {
        are_hex &= eight_bytes(digits, half);
    }
    if are_hex {
        Ok(id)
    } else {
        Err(IdError::Malformed)
    }
}

/// Decodes sixteen hex digits at once, without a branch or a table, so that the compiler vectorises the
/// loop. Returns false if a character is not a hex digit.
#[inline]
fn eight_bytes(digits: &[u8; 16], bytes: &mut [u8; 8]) -> bool {
    let (mut values, mut are_hex) = ([0; 16], true);
    for (value, character) in values.iter_mut().zip(digits) {
        let digit = character.wrapping_sub(b'0');
        // Bit 5 is the only difference between upper-case and lower-case letters; both are accepted.
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

/// Decodes an id from hex text of the right length; `None` if it is invalid or all zero.
#[inline]
pub fn plain<const DIGITS: usize, const BYTES: usize>(text: &[u8; DIGITS]) -> Option<[u8; BYTES]> {
    from_hex(text).and_then(non_zero).ok()
}

fn from_base64<const N: usize>(text: &[u8]) -> Result<[u8; N], IdError> {
    let padded_chars = N.div_ceil(3) * 4;
    let bare_chars = (N * 4).div_ceil(3);
    if text.len() != padded_chars && text.len() != bare_chars {
        return Err(IdError::Malformed);
    }
    let mut id = [0; N];
    let decoded = base64::decode(text, &mut id).ok_or(IdError::Malformed)?;
    decoded.try_into().map_err(|_| IdError::Malformed)
}

/// Returns the 32 digits of a UUID in the form `8-4-4-4-12`.
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

    type WithWarnings<T> = (T, Vec<Warning>);

    fn with_warnings<T>(read: impl FnOnce(&mut Vec<Warning>) -> T) -> WithWarnings<T> {
        let mut warnings = Vec::new();
        (read(&mut warnings), warnings)
    }

    fn trace_bytes(raw: &[u8]) -> WithWarnings<Result<[u8; 16], Rejection>> {
        with_warnings(|warnings| trace_id_from_bytes(raw, &mut |warning| warnings.push(warning)))
    }

    fn trace_text(text: &str) -> WithWarnings<Result<[u8; 16], Rejection>> {
        with_warnings(|warnings| {
            trace_id_from_text(text.as_bytes(), &mut |warning| warnings.push(warning))
        })
    }

    fn span_text(text: &str) -> WithWarnings<Result<[u8; 8], Rejection>> {
        with_warnings(|warnings| {
            span_id_from_text(text.as_bytes(), &mut |warning| warnings.push(warning))
        })
    }

    fn span_bytes(raw: &[u8]) -> WithWarnings<Result<[u8; 8], Rejection>> {
        with_warnings(|warnings| span_id_from_bytes(raw, &mut |warning| warnings.push(warning)))
    }

    fn parents(raw: &[u8]) -> [WithWarnings<Option<[u8; 8]>>; 2] {
        [
            with_warnings(|warnings| parent_from_bytes(raw, &mut |warning| warnings.push(warning))),
            with_warnings(|warnings| parent_from_text(raw, &mut |warning| warnings.push(warning))),
        ]
    }

    #[test]
    fn raw_bytes_are_accepted_as_ids() {
        assert_eq!(trace_bytes(&TRACE), (Ok(TRACE), vec![]));
        assert_eq!(span_bytes(&SPAN), (Ok(SPAN), vec![]));
        assert_eq!(parents(&SPAN)[0], (Some(SPAN), vec![]));
    }

    #[test]
    fn hex_text_in_protobuf_is_decoded_with_a_warning() {
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
    fn hex_in_json_is_accepted_in_upper_and_lower_case() {
        assert_eq!(
            trace_text("5B8EFFF798038103d269b633813fc60c"),
            (Ok(TRACE), vec![])
        );
        assert_eq!(span_text("eee19b7ec3C1B174"), (Ok(SPAN), vec![]));
        assert_eq!(parents(b"EEE19b7ec3c1b174")[1], (Some(SPAN), vec![]));
    }

    #[test]
    fn base64_in_json_is_decoded_with_a_warning() {
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
    fn dashed_uuid_is_decoded_as_a_trace_id_with_a_warning() {
        assert_eq!(
            trace_text("5b8efff7-9803-8103-d269-b633813fc60c"),
            (Ok(TRACE), vec![IdUuid])
        );
    }

    #[test]
    fn absent_id_is_missing_and_absent_parent_means_root() {
        assert_eq!(trace_bytes(b""), (Err(Rejection::TraceIdMissing), vec![]));
        assert_eq!(trace_text(""), (Err(Rejection::TraceIdMissing), vec![]));
        assert_eq!(span_bytes(b""), (Err(Rejection::SpanIdMissing), vec![]));
        assert_eq!(span_text(""), (Err(Rejection::SpanIdMissing), vec![]));
        assert_eq!(parents(b""), [(None, vec![]), (None, vec![])]);
    }

    #[test]
    fn zero_id_is_rejected_and_zero_parent_means_root() {
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
    fn other_bytes_are_malformed() {
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
