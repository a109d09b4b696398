//! Formatting of attribute values as stored text: one format per type, shared by both decoders.
//!
//! Scalars are written bare (`true`, `-5`, `0.1`); arrays and key-value lists as compact JSON in arrival
//! order. Doubles use the shortest digits that round-trip, formatted as in JavaScript and the OpenTelemetry
//! Collector (`1`, not `1.0`; `1e+21`).

use std::io::Write as _;

pub use crate::base64::encode as push_base64;

/// Placeholder in the JSON of an attribute value for an array or list that is nested too deep. With a limit of 64 it
/// replaces the 65th level; scalars in the 64th level are kept.
pub const TOO_DEEP: &[u8] = "\"…\"".as_bytes();

/// A value of fixed size, before it is formatted.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// `boolValue`.
    Bool(bool),
    /// `intValue`.
    Int(i64),
    /// `doubleValue`.
    Double(f64),
}

impl Number {
    /// Appends the stored text.
    pub fn push(self, out: &mut Vec<u8>) {
        match self {
            Self::Bool(value) => push_bool(out, value),
            Self::Int(value) => push_int(out, value),
            Self::Double(value) => push_double(out, value),
        }
    }

    /// Returns the kind and the bits. Numbers with equal kind and bits have the same stored text.
    #[must_use]
    #[inline]
    pub const fn bits(self) -> (u8, u64) {
        match self {
            Self::Bool(value) => (1, value as u64),
            Self::Int(value) => (2, value.cast_unsigned()),
            Self::Double(value) => (3, value.to_bits()),
        }
    }
}

/// Returns `true` or `false`.
#[must_use]
pub const fn of_bool(value: bool) -> &'static [u8] {
    if value { b"true" } else { b"false" }
}

/// Appends `true` or `false`.
pub fn push_bool(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(of_bool(value));
}

/// Appends the decimal digits.
pub fn push_int(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends the shortest digits that round-trip; `NaN`, `Infinity`, `-Infinity`, `-0`.
pub fn push_double(out: &mut Vec<u8>, value: f64) {
    let magnitude = value.abs();
    if !value.is_finite() {
        out.extend_from_slice(name_of_non_finite(value).as_bytes());
    } else if (1e16..1e21).contains(&magnitude) || (1e-6..1e-5).contains(&magnitude) {
        // Writing into a Vec cannot fail.
        // In these ranges `zmij` writes an exponent and JavaScript does not.
        let _ = write!(out, "{value}");
    } else {
        let mut digits = zmij::Buffer::new();
        let digits = digits.format_finite(value);
        out.extend_from_slice(digits.strip_suffix(".0").unwrap_or(digits).as_bytes());
    }
}

/// Appends a double as a JSON element: a number if JSON has one, else its name in quotes.
pub fn push_json_double(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        push_double(out, value);
    } else {
        push_json_string(out, name_of_non_finite(value).as_bytes());
    }
}

fn name_of_non_finite(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

/// Appends a JSON string. Bytes that are not UTF-8 stay unchanged; the column sanitises them.
pub fn push_json_string(out: &mut Vec<u8>, raw: &[u8]) {
    out.push(b'"');
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|&byte| needs_escape(byte)) {
        let Some((plain, [byte, after @ ..])) = rest.split_at_checked(at) else {
            break;
        };
        out.extend_from_slice(plain);
        push_escape(out, *byte);
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            out.extend_from_slice(if byte < 0x10 { b"\\u000" } else { b"\\u001" });
            let low = byte & 0x0f;
            return out.push(if low < 10 {
                b'0' + low
            } else {
                b'a' + low - 10
            });
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Returns a prefix of `raw`, cut between two characters, that is long enough to exceed `bytes_max` of
/// stored text if `raw` does. This limits the work for a string of which only a part is stored.
#[must_use]
pub fn bounded_prefix(raw: &[u8], bytes_max: usize) -> &[u8] {
    const CHARACTER_BYTES_MAX: usize = 4;
    let starts_character = |at: &usize| raw.get(*at).is_some_and(|byte| byte & 0xc0 != 0x80);
    let longest = bytes_max.saturating_add(CHARACTER_BYTES_MAX);
    let end = (bytes_max.saturating_add(1)..=longest)
        .rev()
        .find(starts_character);
    raw.get(..end.unwrap_or(longest)).unwrap_or(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn doubles_are_formatted_as_in_javascript_except_minus_zero() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (1e21, "1e+21"),
            (-1.25e300, "-1.25e+300"),
            (0.000_01, "0.00001"),
            (1.5e-6, "0.0000015"),
            (1e-7, "1e-7"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(written(|out| push_double(out, value)), text);
        }
    }

    #[test]
    fn non_finite_double_is_quoted_inside_json() {
        assert_eq!(written(|out| push_json_double(out, f64::NAN)), "\"NaN\"");
        assert_eq!(
            written(|out| push_json_double(out, f64::NEG_INFINITY)),
            "\"-Infinity\""
        );
        assert_eq!(written(|out| push_json_double(out, 2.5)), "2.5");
    }

    #[test]
    fn integers_and_booleans_are_written_bare() {
        assert_eq!(
            written(|out| push_int(out, i64::MIN)),
            "-9223372036854775808"
        );
        assert_eq!(written(|out| push_bool(out, true)), "true");
        assert_eq!(written(|out| push_bool(out, false)), "false");
    }

    #[test]
    fn strings_get_only_the_escapes_that_json_requires() {
        let text = written(|out| {
            push_json_string(out, "a\"b\\c/\n\r\t\u{8}\u{c}\0\u{1f}\u{7f}é<".as_bytes());
        });

        assert_eq!(
            text,
            "\"a\\\"b\\\\c/\\n\\r\\t\\b\\f\\u0000\\u001f\u{7f}é<\""
        );
    }

    #[test]
    fn invalid_utf8_is_not_changed_by_escaping() {
        let mut out = Vec::new();
        push_json_string(&mut out, b"\xff\"");

        assert_eq!(out, b"\"\xff\\\"\"");
    }

    #[test]
    fn prefix_of_a_long_text_ends_between_characters_past_the_limit() {
        let text = "aé€😀".repeat(9);
        for bytes_max in 0..text.len() + 2 {
            let enough = bounded_prefix(text.as_bytes(), bytes_max);

            assert!(std::str::from_utf8(enough).is_ok());
            assert!(enough.len() > bytes_max || enough.len() == text.len());
            assert!(enough.len() <= bytes_max + 4);
        }
    }

    proptest! {
        #[test]
        fn double_round_trips(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());

            let text = written(|out| push_double(out, value));

            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), bits);
        }
    }
}
