//! Fast path: compares the input with the usual output of exporters, a word at a time. The general reader reads
//! all other input, starting where the fast path started.
//!
//! An attribute usually is `{"key":"…","value":{"stringValue":"…"}}`, perhaps with blanks; a count has few
//! digits; ids are hex digits and times nineteen decimal digits; and a span has the members of the previous
//! spans, in the same order and with the same white space, except that some may be missing.

use super::cursor::Cursor;
use super::field::Field;
use super::reader::Reader;
use super::stop::ReadResult;
use super::{number, scan};
use crate::columns::slots::bytes_equal;
use crate::identity;
use crate::visit::Visitor;

/// Longer attributes are not looked up in the attribute cache.
const COMPACT_BYTES_MAX: usize = 255;

/// Encoded member names of previous spans, from the comma to the colon, indexed by the preceding
/// field.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    names: [(&'a [u8], Field); Field::Unknown as usize + 1],
}

impl Default for Layout<'_> {
    fn default() -> Self {
        Self {
            names: [(b"", Field::Unknown); Field::Unknown as usize + 1],
        }
    }
}

impl<V: Visitor> Reader<'_, '_, V> {
    /// Returns the field of a span's next member, after the field `before`; `None` after the end of the span.
    #[inline]
    pub fn span_member(&mut self, before: Option<Field>) -> ReadResult<Option<Field>> {
        let rest = self.cursor.rest();
        let slot = before.unwrap_or_default() as usize;
        if let Some(&(name, field)) = self.layout.names.get(slot)
            && !name.is_empty()
            && rest
                .get(..name.len())
                .is_some_and(|next| bytes_equal(next, name))
        {
            // These bytes were validated when they were remembered, quotes and colon included.
            self.cursor.advance(name.len());
            return Ok(Some(field));
        }
        let field = self.field(&mut before.is_none())?;
        let name_bytes = rest.len() - self.cursor.rest().len();
        if let Some(slot) = self.layout.names.get_mut(slot)
            && let Some((name, _)) = rest.split_at_checked(name_bytes)
        {
            *slot = remembered(name, field);
        }
        Ok(field)
    }
}

/// Returns the name to remember. A name that needs a warning is not remembered, so that the general reader repeats
/// the warning for every span.
fn remembered(name: &[u8], field: Option<Field>) -> (&[u8], Field) {
    match field {
        Some(field) if !name.contains(&b'_') => (name, field),
        _ => (b"", Field::Unknown),
    }
}

impl<'a> Cursor<'a> {
    /// Returns the bytes of the next element of a list of attributes, if it contains no blanks and
    /// its value contains no brace.
    #[inline]
    pub fn next_compact_attribute(&self, is_first: bool) -> Option<&'a [u8]> {
        let rest = self.rest();
        let rest = if is_first {
            rest
        } else {
            rest.strip_prefix(b",")?
        };
        let window = rest.get(..COMPACT_BYTES_MAX).unwrap_or(rest);
        if window.first() != Some(&b'{') {
            return None;
        }
        let attribute = window.get(..scan::brace(window) + 2)?;
        attribute.ends_with(b"}}").then_some(attribute)
    }

    /// Reads the key and the value of an attribute whose value is stored exactly as sent; otherwise consumes
    /// nothing.
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
        // The general reader refuses the body with the right message.
        if !self.can_nest(2) {
            return None;
        }
        // Nothing is consumed before this line, so every `None` above leaves the input to the general reader.
        self.advance(whole.len() - rest.len());
        Some((key, value))
    }

    /// Returns the next `BYTES` bytes if quotes surround them; consumes nothing.
    #[inline]
    fn quoted<const BYTES: usize>(&self) -> Option<&'a [u8; BYTES]> {
        let (text, after) = self.rest().strip_prefix(b"\"")?.split_first_chunk()?;
        (after.first() == Some(&b'"')).then_some(text)
    }

    /// Reads a trace id of hex digits; otherwise consumes nothing.
    #[inline]
    pub fn predicted_trace_id(&mut self) -> Option<[u8; 16]> {
        let id = identity::plain(self.quoted::<32>()?)?;
        // 32 digits and two quotes
        self.advance(34);
        Some(id)
    }

    /// Reads a span id of hex digits; otherwise consumes nothing.
    #[inline]
    pub fn predicted_span_id(&mut self) -> Option<[u8; 8]> {
        let id = identity::plain(self.quoted::<16>()?)?;
        // 16 digits and two quotes
        self.advance(18);
        Some(id)
    }

    /// Reads a nineteen-digit time in quotes; otherwise consumes nothing.
    #[inline]
    pub fn predicted_time(&mut self) -> Option<u64> {
        let time = number::nineteen_digits(self.quoted()?)?;
        // 19 digits and two quotes
        self.advance(21);
        Some(time)
    }

    /// Reads a status without a message; otherwise consumes nothing.
    #[inline]
    pub fn predicted_status(&mut self) -> Option<i32> {
        let digit = match self.rest() {
            [
                b'{',
                b'"',
                b'c',
                b'o',
                b'd',
                b'e',
                b'"',
                b':',
                digit @ b'0'..=b'9',
                b'}',
                ..,
            ] => *digit,
            _ => return None,
        };
        // the length of `{"code":1}`
        self.advance(10);
        Some(i32::from(digit - b'0'))
    }

    /// Reads an empty list; otherwise consumes nothing.
    #[inline]
    pub fn predicted_empty_list(&mut self) -> bool {
        let is_empty = self.rest().starts_with(b"[]") && self.can_nest(1);
        self.advance(if is_empty { 2 } else { 0 });
        is_empty
    }

    /// Reads a number of one to nine digits; otherwise consumes nothing.
    #[inline]
    pub fn predicted_count(&mut self) -> Option<u32> {
        // Nine digits always fit into 32 bits.
        const DIGITS_MAX: usize = 9;
        self.peek();
        let (mut value, mut digits) = (0, 0);
        for byte in self.rest() {
            match byte {
                b'0'..=b'9' if digits < DIGITS_MAX => value = value * 10 + u32::from(byte - b'0'),
                b',' | b'}' => break,
                // a fraction, an exponent or a blank is left to the general reader
                _ => return None,
            }
            digits += 1;
        }
        let is_plain =
            // Leading zeros are left to the general reader, which checks them.
            digits == 1 || value >= 10_u32.pow(u32::try_from(digits).ok()?.checked_sub(1)?);
        is_plain.then(|| self.advance(digits))?;
        Some(value)
    }
}

/// Returns the input after these bytes or, with blanks between them, after these tokens.
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

/// Returns a string without escapes, whose opening quote was consumed, and the input after it.
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
