//! What exporters nearly always write, compared with that prediction a word at a time. Anything else is
//! left to the general reading, from its beginning.
//!
//! An attribute looks like `{"key":"…","value":{"stringValue":"…"}}`, perhaps with blanks; a count has few
//! digits; and a span has the members of the span before it, in the same order and spelling.

use super::cursor::Cursor;
use super::field::Field;
use super::reader::Reader;
use super::stop::Outcome;
use super::{number, scan};
use crate::visit::Visitor;

/// Members of a span that are remembered.
const MEMBERS_MAX: usize = 24;

/// How the names of the span before were spelled, from the comma to the colon, in their order.
#[derive(Debug, Default)]
pub(super) struct Layout<'a> {
    names: [(&'a [u8], Field); MEMBERS_MAX],
}

impl<V: Visitor> Reader<'_, '_, V> {
    /// The field of the next member of a span, its `ordinal`-th; `None` behind the span.
    #[inline]
    pub fn span_member(&mut self, ordinal: usize) -> Outcome<Option<Field>> {
        let rest = self.cursor.rest();
        if let Some(&(name, field)) = self.layout.names.get(ordinal)
            && !name.is_empty()
            && rest.starts_with(name)
        {
            self.cursor.advance(name.len());
            return Ok(Some(field));
        }
        let field = self.field(&mut (ordinal == 0))?;
        let name_bytes = rest.len() - self.cursor.rest().len();
        if let Some(slot) = self.layout.names.get_mut(ordinal)
            && let Some((name, _)) = rest.split_at_checked(name_bytes)
        {
            *slot = remembered(name, field);
        }
        Ok(field)
    }
}

/// A name worth remembering: one that is warned about must be looked at each time.
fn remembered(name: &[u8], field: Option<Field>) -> (&[u8], Field) {
    match field {
        Some(field) if !name.contains(&b'_') => (name, field),
        _ => (b"", Field::Unknown),
    }
}

impl<'a> Cursor<'a> {
    /// Key and stored text of an attribute whose value is stored as it is spelled; else reads nothing.
    #[inline]
    pub fn predicted_attribute(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let whole = self.rest();
        let rest = after(whole, b"{\"key\":\"", &["{", "\"key\"", ":", "\""])?;
        let (key, rest) = plain_string(rest)?;
        let rest = after(rest, b",\"value\":{\"", &[",", "\"value\"", ":", "{", "\""])?;
        let (value, rest) = match rest.first()? {
            b's' => plain_string(after(
                rest,
                b"stringValue\":\"",
                &["stringValue\"", ":", "\""],
            )?)?,
            b'i' => plain_int(after(rest, b"intValue\":", &["intValue\"", ":", ""])?)?,
            b'b' => plain_bool(after(rest, b"boolValue\":", &["boolValue\"", ":", ""])?)?,
            b'd' => plain_double(after(rest, b"doubleValue\":", &["doubleValue\"", ":", ""])?)?,
            _ => return None,
        };
        let rest = after(rest, b"}}", &["}", "}"])?;
        if !self.has_room_for(2) {
            return None;
        }
        self.advance(whole.len() - rest.len());
        Some((key, value))
    }

    /// A number of one to nine digits; else reads nothing.
    #[inline]
    pub fn predicted_count(&mut self) -> Option<u32> {
        const DIGITS_MAX: usize = 9;
        self.peek();
        let (mut value, mut digits) = (0, 0);
        for byte in self.rest() {
            match byte {
                b'0'..=b'9' if digits < DIGITS_MAX => value = value * 10 + u32::from(byte - b'0'),
                b',' | b'}' => break,
                _ => return None,
            }
            digits += 1;
        }
        let is_plain =
            digits == 1 || value >= 10_u32.pow(u32::try_from(digits).ok()?.checked_sub(1)?);
        is_plain.then(|| self.advance(digits))?;
        Some(value)
    }
}

/// What follows these bytes; or, with blanks before any of them, these tokens.
#[inline]
fn after<'b>(rest: &'b [u8], compact: &[u8], tokens: &[&str]) -> Option<&'b [u8]> {
    rest.strip_prefix(compact)
        .or_else(|| after_blanks(rest, tokens))
}

fn after_blanks<'b>(rest: &'b [u8], tokens: &[&str]) -> Option<&'b [u8]> {
    tokens.iter().try_fold(rest, |mut rest, token| {
        while let [b' ' | b'\n' | b'\r' | b'\t', after @ ..] = rest {
            rest = after;
        }
        rest.strip_prefix(token.as_bytes())
    })
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
