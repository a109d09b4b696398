//! The attribute as every exporter writes it, `{"key":"…","value":{"stringValue":"…"}}`, compared with
//! that prediction a word at a time. Anything else is left to the general reading, from its beginning.

use super::cursor::Cursor;
use super::{number, scan};

impl<'a> Cursor<'a> {
    /// Key and stored text of an attribute whose value is stored as it is spelled; else reads nothing.
    #[inline]
    pub fn predicted_attribute(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let whole = self.rest();
        let rest = whole.strip_prefix(b"{\"key\":\"")?;
        let (key, rest) = plain_string(rest)?;
        let rest = rest.strip_prefix(b",\"value\":{\"")?;
        let (value, rest) = match rest.first()? {
            b's' => plain_string(rest.strip_prefix(b"stringValue\":\"")?)?,
            b'i' => plain_int(rest.strip_prefix(b"intValue\":")?)?,
            b'b' => plain_bool(rest.strip_prefix(b"boolValue\":")?)?,
            b'd' => plain_double(rest.strip_prefix(b"doubleValue\":")?)?,
            _ => return None,
        };
        let rest = rest.strip_prefix(b"}}")?;
        if !self.has_room_for(2) {
            return None;
        }
        self.advance(whole.len() - rest.len());
        Some((key, value))
    }
}

/// A string without escapes, its opening quote consumed; and what follows it.
#[inline]
fn plain_string(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    match rest.split_at_checked(scan::special(rest, 0))? {
        (text, [b'"', after @ ..]) => Some((text, after)),
        _ => None,
    }
}

#[inline]
fn plain_int(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (digits, after) = match rest {
        [b'"', quoted @ ..] => plain_string(quoted)?,
        _ => rest.split_at_checked(number::literal(rest)?.len())?,
    };
    number::is_canonical_int(digits).then_some((digits, after))
}

#[inline]
fn plain_bool(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let word_bytes = if rest.starts_with(b"true") { 4 } else { 5 };
    let (word, after) = rest.split_at_checked(word_bytes)?;
    matches!(word, b"true" | b"false").then_some((word, after))
}

#[inline]
fn plain_double(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (literal, after) = rest.split_at_checked(number::literal(rest)?.len())?;
    number::is_canonical_double(literal).then_some((literal, after))
}
