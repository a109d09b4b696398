//! Strings with their escapes decoded. A string without escapes is borrowed from the body; others are
//! written to an arena that lives as long as the span (or resource, or scope) they belong to.

use std::ops::Range;

/// A string in the body or in the arena.
#[derive(Clone, Debug)]
pub(super) enum Text<'a> {
    Body(&'a [u8]),
    Arena(Range<usize>),
}

impl Default for Text<'_> {
    fn default() -> Self {
        Self::Body(b"")
    }
}

impl<'a> Text<'a> {
    #[inline]
    pub fn bytes<'t>(&self, arena: &'t [u8]) -> &'t [u8]
    where
        'a: 't,
    {
        match self {
            Self::Body(bytes) => bytes,
            Self::Arena(range) => arena.get(range.clone()).unwrap_or_default(),
        }
    }
}

/// A string has an invalid escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadEscape;

/// Appends the decoded string. Returns whether it contained half a surrogate pair, written as U+FFFD.
pub(super) fn unescape(raw: &[u8], out: &mut Vec<u8>) -> Result<bool, BadEscape> {
    let mut has_lone_surrogate = false;
    let mut rest = raw;
    while let Some((plain, escape)) =
        memchr::memchr(b'\\', rest).and_then(|at| rest.split_at_checked(at))
    {
        out.extend_from_slice(plain);
        let (character, after) = escaped(escape)?;
        has_lone_surrogate |= character.is_none();
        let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = after;
    }
    out.extend_from_slice(rest);
    Ok(has_lone_surrogate)
}

/// Returns an error unless every escape of `raw` is valid in JSON.
pub(super) fn check_escapes(raw: &[u8]) -> Result<(), BadEscape> {
    let mut rest = raw;
    while let Some((_, escape)) =
        memchr::memchr(b'\\', rest).and_then(|at| rest.split_at_checked(at))
    {
        (_, rest) = escaped(escape)?;
    }
    Ok(())
}

/// Decodes the escape at the beginning of `escape` (`None` for half a surrogate pair). Returns the rest, too.
fn escaped(escape: &[u8]) -> Result<(Option<char>, &[u8]), BadEscape> {
    let [b'\\', kind, after @ ..] = escape else {
        return Err(BadEscape);
    };
    let character = match kind {
        b'"' | b'\\' | b'/' => char::from(*kind),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(after),
        _ => return Err(BadEscape),
    };
    Ok((Some(character), after))
}

/// Decodes four hex digits, and the second half of the pair after a high surrogate.
fn unicode(digits: &[u8]) -> Result<(Option<char>, &[u8]), BadEscape> {
    let (unit, after) = unit(digits)?;
    if !(0xd800..0xdc00).contains(&unit) {
        // `from_u32` returns `None` for a low surrogate without a high one before it.
        return Ok((char::from_u32(unit), after));
    }
    // A high surrogate needs a low one. Otherwise it is replaced, and the next escape is decoded separately.
    let Some(low_digits) = after.strip_prefix(b"\\u") else {
        return Ok((None, after));
    };
    match self::unit(low_digits)? {
        (low @ 0xdc00..0xe000, after_pair) => {
            let pair = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
            Ok((char::from_u32(pair), after_pair))
        }
        _ => Ok((None, after)),
    }
}

fn unit(digits: &[u8]) -> Result<(u32, &[u8]), BadEscape> {
    let (four, after) = digits.split_first_chunk::<4>().ok_or(BadEscape)?;
    let mut unit = 0;
    for digit in four {
        unit = unit << 4 | char::from(*digit).to_digit(16).ok_or(BadEscape)?;
    }
    Ok((unit, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> Result<(String, bool), BadEscape> {
        let mut out = Vec::new();
        let has_lone_surrogate = unescape(raw.as_bytes(), &mut out)?;
        assert_eq!(check_escapes(raw.as_bytes()), Ok(()));
        Ok((String::from_utf8(out).unwrap(), has_lone_surrogate))
    }

    #[test]
    fn every_escape_is_decoded() {
        let (text, has_lone_surrogate) =
            read(r#"a\"\\\/\b\f\n\r\t\u0000\u00e9\u20AC\ud83d\ude00z"#).unwrap();

        assert_eq!(text, "a\"\\/\u{8}\u{c}\n\r\t\0é€😀z");
        assert!(!has_lone_surrogate);
    }

    #[test]
    fn half_a_surrogate_pair_becomes_one_replacement_character() {
        for (raw, text) in [
            (r"\ud83d", "\u{fffd}"),
            (r"\ude00", "\u{fffd}"),
            (r"\ud83dx", "\u{fffd}x"),
            (r"\ud83d\n", "\u{fffd}\n"),
            (r"\ud83dA", "\u{fffd}A"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
            (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(read(raw), Ok((text.to_owned(), true)), "{raw}");
        }
    }

    #[test]
    fn other_escapes_are_invalid() {
        for raw in [
            r"\x41",
            r"\",
            r"\u12",
            r"\u12g4",
            r"\'",
            r"\U0041",
            r"\ud83d\u12",
            r"\u+123",
            r"\0",
        ] {
            assert_eq!(
                unescape(raw.as_bytes(), &mut Vec::new()),
                Err(BadEscape),
                "{raw}"
            );
            assert_eq!(check_escapes(raw.as_bytes()), Err(BadEscape), "{raw}");
        }
    }
}
