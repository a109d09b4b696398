//! Hints for bodies that are not a JSON object. They name the probable format, so that the sender knows what to
//! change.

use crate::refusal::Refusal;

/// Returns the length of a UTF-8 byte order mark at the beginning of the body.
pub(super) fn byte_order_mark(body: &[u8]) -> usize {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    // JSON forbids the mark, but RFC 8259 lets a parser ignore it.
    if body.starts_with(MARK) {
        MARK.len()
    } else {
        0
    }
}

/// Refuses a body that does not begin with a JSON object; `first` is its first byte that is not white space.
#[cold]
pub(super) fn not_an_object(body: &[u8], first: Option<u8>) -> Refusal {
    let reason = known_mistake(body).unwrap_or(match first {
        None => "an empty body; expected one JSON object",
        Some(b'[') => "a list; expected one JSON object; send each request by itself",
        Some(b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
            "a bare value; expected one JSON object"
        }
        Some(_) => "not JSON; expected one JSON object",
    });
    Refusal::malformed("body", reason)
}

/// Recognises a common mistake by the first bytes. Also used after a later error: protobuf begins with
/// a line feed, and its second byte may be a brace.
#[cold]
pub(super) fn known_mistake(body: &[u8]) -> Option<&'static str> {
    Some(match body {
        [0x1f, 0x8b, ..] => "gzip; expected JSON, or Content-Encoding: gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd; expected JSON, or Content-Encoding: zstd",
        // a protobuf length can be a zero byte too
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, ..] | [_, 0, ..] if !is_protobuf(body) => {
            "UTF-16 or UTF-32; expected JSON in UTF-8"
        }
        _ if is_protobuf(body) => {
            "protobuf; expected JSON, or Content-Type: application/x-protobuf"
        }
        _ => return None,
    })
}

/// Returns whether the body begins with a field 1 whose length fits the body, and contains a byte that JSON
/// does not allow.
fn is_protobuf(body: &[u8]) -> bool {
    let [0x0a, rest @ ..] = body else {
        return false;
    };
    let digits = rest
        .iter()
        .take(5)
        .take_while(|byte| **byte >= 0x80)
        .count();
    let declared = rest
        .iter()
        .take(digits + 1)
        .rev()
        .fold(0u64, |sum, byte| sum << 7 | u64::from(byte & 0x7f));
    let content = rest.get(digits + 1..).unwrap_or_default();
    // JSON may begin with a line feed too; only a control character proves that it is not JSON.
    let is_foreign = |byte: &u8| *byte < b' ' && !byte.is_ascii_whitespace();
    declared <= content.len() as u64 && body.iter().take(64).any(is_foreign)
}

/// Refuses content after the single expected document.
#[cold]
pub(super) fn trailing(is_ndjson: bool, at: usize) -> Refusal {
    let expected = if is_ndjson {
        "one JSON object per line"
    } else {
        "one JSON object; send several, one per line, as application/x-ndjson"
    };
    Refusal::malformed(
        "body",
        format!("more content after the document at byte {at}; expected {expected}"),
    )
}
