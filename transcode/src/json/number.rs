//! Parser of JSON numbers. Integers are converted exactly, never by way of a double.

/// Returns the JSON number at the beginning of `bytes`. It ends at the first byte that cannot continue it;
/// the caller checks what follows.
#[inline]
pub(super) fn literal(bytes: &[u8]) -> Option<&[u8]> {
    let sign = usize::from(bytes.first() == Some(&b'-'));
    let integer = match bytes.get(sign)? {
        // After a leading zero the integer ends: JSON does not allow `007`.
        b'0' => 1,
        _ => digits_at(bytes, sign),
    };
    if integer == 0 {
        return None;
    }
    let mut end = sign + integer;
    if bytes.get(end) == Some(&b'.') {
        end += 1 + Some(digits_at(bytes, end + 1)).filter(|&count| count > 0)?;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end += 1 + sign + Some(digits_at(bytes, end + 1 + sign)).filter(|&count| count > 0)?;
    }
    bytes.get(..end)
}

#[inline]
fn digits_at(bytes: &[u8], at: usize) -> usize {
    let digits = bytes.get(at..).unwrap_or_default();
    digits
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(digits.len())
}

/// A number, as found in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberText<'a> {
    pub literal: &'a [u8],
    /// Whether JSON allows this notation.
    pub is_json: bool,
}

/// Returns the number in a string; also accepts `+1`, `007`, `.5`, `5.` and surrounding blanks.
pub(super) fn from_text(text: &[u8]) -> Option<NumberText<'_>> {
    if literal(text) == Some(text) {
        return Some(NumberText {
            literal: text,
            is_json: true,
        });
    }
    let trimmed = text.trim_ascii();
    is_number(trimmed).then_some(NumberText {
        literal: trimmed,
        is_json: false,
    })
}

fn is_number(text: &[u8]) -> bool {
    let (_, unsigned) = split_sign(text);
    let (mantissa, exponent) = split_at_either(unsigned, *b"eE");
    let (integer, fraction) = split_at_either(mantissa, *b"..");
    let fraction = fraction.unwrap_or_default();
    let are_digits = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit);
    let exponent_is_number = exponent.is_none_or(|exponent| {
        let (_, digits) = split_sign(exponent);
        !digits.is_empty() && are_digits(digits)
    });
    integer.len() + fraction.len() > 0
        && are_digits(integer)
        && are_digits(fraction)
        && exponent_is_number
}

fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

fn split_at_either(text: &[u8], marks: [u8; 2]) -> (&[u8], Option<&[u8]>) {
    let at = text.iter().position(|byte| marks.contains(byte));
    match at.and_then(|at| text.split_at_checked(at)) {
        Some((before, [_, after @ ..])) => (before, Some(after)),
        _ => (text, None),
    }
}

/// A number, converted to an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntegerValue {
    /// The number is an integer.
    Exact(i128),
    /// The number has a fraction; this is the next lower integer.
    Floor(i128),
    /// Its magnitude is far beyond 64 bits.
    Huge { negative: bool },
}

/// Stands for integers that do not fit into 64 bits.
// Above every uint64, and small enough that multiplying by ten never overflows an i128.
const HUGE: i128 = 1 << 65;

/// Returns the integer value of a number in any notation (`1.0`, `2e0`, `120e-1`).
pub(super) fn to_integer(literal: &[u8]) -> IntegerValue {
    let (negative, unsigned) = split_sign(literal);
    let (mantissa, exponent) = split_at_either(unsigned, *b"eE");
    let (integer, fraction) = split_at_either(mantissa, *b"..");
    let integer_digits = i64::try_from(integer.len()).unwrap_or(i64::MAX);
    let mut integer_digits_left = integer_digits.saturating_add(exponent.map_or(0, exponent_of));
    let (mut magnitude, mut has_fraction) = (0i128, false);
    for digit in integer.iter().chain(fraction.unwrap_or_default()) {
        if integer_digits_left > 0 {
            magnitude = magnitude * 10 + i128::from(digit - b'0');
        } else {
            has_fraction |= *digit != b'0';
        }
        integer_digits_left = integer_digits_left.saturating_sub(1);
        if magnitude > HUGE {
            return IntegerValue::Huge { negative };
        }
    }
    // Without the second condition, `0e999999999` would keep a thread busy for long.
    while integer_digits_left > 0 && magnitude != 0 {
        magnitude *= 10;
        integer_digits_left -= 1;
        if magnitude > HUGE {
            return IntegerValue::Huge { negative };
        }
    }
    match (negative, has_fraction) {
        (false, false) => IntegerValue::Exact(magnitude),
        (true, false) => IntegerValue::Exact(-magnitude),
        (false, true) => IntegerValue::Floor(magnitude),
        (true, true) => IntegerValue::Floor(-magnitude - 1),
    }
}

/// Parses an exponent; saturates, since such large exponents all have the same effect.
fn exponent_of(text: &[u8]) -> i64 {
    let (negative, digits) = split_sign(text);
    let magnitude = digits.iter().fold(0i64, |sum, digit| {
        // never i64::MIN, so that the negation below cannot overflow
        sum.saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
    });
    if negative { -magnitude } else { magnitude }
}

/// Returns the nearest double; infinite beyond the range.
pub(super) fn double(literal: &[u8]) -> f64 {
    std::str::from_utf8(literal)
        .ok()
        .and_then(|text| text.parse().ok())
        // never NaN: the callers checked the notation, and Rust parses all that they accept
        .unwrap_or(f64::NAN)
}

/// Maximum number of digits for which every integer fits into 64 bits.
const SAFE_DIGITS: usize = 19;

/// Returns the number if the text consists of one to nineteen digits.
#[inline]
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > SAFE_DIGITS {
        return None;
    }
    let (mut value, mut rest) = (0u64, text);
    while let Some((eight, tail)) = rest.split_first_chunk::<8>() {
        value = value * 100_000_000 + eight_digits(u64::from_le_bytes(*eight))?;
        rest = tail;
    }
    for digit in rest {
        value = value * 10 + u64::from(Some(digit.wrapping_sub(b'0')).filter(|&digit| digit < 10)?);
    }
    Some(value)
}

/// Parses exactly nineteen digits, the length of a current time in nanoseconds.
#[inline]
pub(super) fn nineteen_digits(text: &[u8; SAFE_DIGITS]) -> Option<u64> {
    // Reads the words at offsets 0, 8 and 11; the last word repeats five digits of the second and adds three.
    let [first, second, last] = [0, 8, 11].map(|at| text.get(at..at + 8)?.first_chunk().copied());
    let [first, second, last] = [first?, second?, last?].map(u64::from_le_bytes);
    let last = eight_digits(last)? % 1000;
    Some((eight_digits(first)? * 100_000_000 + eight_digits(second)?) * 1000 + last)
}

/// Converts eight ASCII digits at once, the first in the lowest byte: combines neighbours into pairs, pairs
/// into groups of four, these into the number.
#[inline]
fn eight_digits(word: u64) -> Option<u64> {
    const ZEROS: u64 = u64::from_ne_bytes([b'0'; 8]);
    const HIGH_NIBBLES: u64 = u64::from_ne_bytes([0xf0; 8]);
    const SIXES: u64 = u64::from_ne_bytes([6; 8]);
    // The high nibble of a digit is 3, and still 3 after adding 6.
    if (word & HIGH_NIBBLES) != ZEROS || (word.wrapping_add(SIXES) & HIGH_NIBBLES) != ZEROS {
        return None;
    }
    let digit_values = word - ZEROS;
    let pairs = (digit_values * 10 + (digit_values >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

/// Returns whether these digits are the canonical form of an int64, so that they can be stored as sent.
#[inline]
pub(super) fn is_canonical_int(text: &[u8]) -> bool {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let has_no_leading_zero = match unsigned {
        [b'0'] => text.len() == 1,
        [first, ..] => *first != b'0',
        [] => false,
    };
    // Eighteen digits always fit into an int64; nineteen may not.
    has_no_leading_zero && unsigned.len() < SAFE_DIGITS && digits(unsigned).is_some()
}

/// Returns whether this JSON number is the canonical form of its double. Two decimals of fifteen digits are
/// never the same double, so no shorter form exists.
#[inline]
pub(super) fn is_canonical_double(literal: &[u8]) -> bool {
    const EXACT_DIGITS: usize = 15;
    let unsigned = literal.strip_prefix(b"-").unwrap_or(literal);
    let has_exponent = unsigned.iter().any(u8::is_ascii_alphabetic);
    match split_at_either(unsigned, *b"..") {
        (integer, None) => integer.len() <= EXACT_DIGITS && integer != b"0" && !has_exponent,
        (integer, Some(fraction)) => {
            // The canonical form of a very small double has an exponent.
            let is_tiny = integer == b"0" && fraction.first() == Some(&b'0');
            let has_no_trailing_zero = fraction.last() != Some(&b'0');
            integer.len() + fraction.len() <= EXACT_DIGITS
                && !is_tiny
                && has_no_trailing_zero
                && !has_exponent
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;
    use proptest::prelude::*;

    #[test]
    fn literals_are_the_numbers_of_json() {
        for (bytes, literal_text) in [
            ("0", Some("0")),
            ("-0", Some("-0")),
            ("01", Some("0")),
            ("12,", Some("12")),
            ("-1.50e+07}", Some("-1.50e+07")),
            ("1E5", Some("1E5")),
            ("1..", None),
            ("1.", None),
            ("1.e5", None),
            ("1e", None),
            ("1e+", None),
            ("-", None),
            ("-a", None),
            ("+1", None),
            (".5", None),
            ("", None),
        ] {
            assert_eq!(
                literal(bytes.as_bytes()),
                literal_text.map(str::as_bytes),
                "{bytes}"
            );
        }
    }

    #[test]
    fn text_may_hold_a_number_that_json_does_not_allow() {
        for (text, is_json) in [
            ("1e3", true),
            ("-5", true),
            ("+1", false),
            ("007", false),
            (" 5 ", false),
        ] {
            let number = from_text(text.as_bytes()).unwrap();

            assert_eq!(number.is_json, is_json, "{text}");
        }
        assert_eq!(
            from_text(b".5").map(|number| double(number.literal)),
            Some(0.5)
        );
        assert_eq!(
            from_text(b"5.").map(|number| double(number.literal)),
            Some(5.0)
        );
        for text in [
            "", " ", ".", "-", "e5", "1e", "0x10", "1 2", "1_000", "NaN", "--1", "1.2.3",
        ] {
            assert_eq!(from_text(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn integers_are_recognised_in_every_notation() {
        for (literal, expected) in [
            ("0", IntegerValue::Exact(0)),
            ("-0", IntegerValue::Exact(0)),
            ("-0.0", IntegerValue::Exact(0)),
            ("1.0", IntegerValue::Exact(1)),
            ("2e0", IntegerValue::Exact(2)),
            ("1e3", IntegerValue::Exact(1000)),
            ("120e-1", IntegerValue::Exact(12)),
            ("1.5e1", IntegerValue::Exact(15)),
            ("+7", IntegerValue::Exact(7)),
            ("007", IntegerValue::Exact(7)),
            (
                "9007199254740993",
                IntegerValue::Exact(9_007_199_254_740_993),
            ),
            ("18446744073709551615", IntegerValue::Exact(u64::MAX.into())),
            ("-9223372036854775808", IntegerValue::Exact(i64::MIN.into())),
            ("1.5", IntegerValue::Floor(1)),
            ("-1.5", IntegerValue::Floor(-2)),
            ("15e-1", IntegerValue::Floor(1)),
            ("1e-400", IntegerValue::Floor(0)),
            ("1e21", IntegerValue::Huge { negative: false }),
            (
                "-1e99999999999999999999",
                IntegerValue::Huge { negative: true },
            ),
            ("0e99999999999999999999", IntegerValue::Exact(0)),
            ("0e-99999999999999999999", IntegerValue::Exact(0)),
        ] {
            assert_eq!(to_integer(literal.as_bytes()), expected, "{literal}");
        }
    }

    proptest! {
        #[test]
        fn digits_are_read_exactly(value: u64) {
            let text = value.to_string();
            let expected = (text.len() < 20).then_some(value);

            prop_assert_eq!(digits(text.as_bytes()), expected);
            if let Ok(nineteen) = text.as_bytes().try_into() {
                prop_assert_eq!(nineteen_digits(nineteen), Some(value));
            }
        }

        #[test]
        fn text_with_another_character_is_not_parsed_as_digits(text in "[0-9]{0,18}[^0-9][0-9]{0,18}") {
            prop_assert_eq!(digits(text.as_bytes()), None);
            if let Ok(nineteen) = text.as_bytes().try_into() {
                prop_assert_eq!(nineteen_digits(nineteen), None);
            }
        }

        #[test]
        fn canonical_literal_equals_the_stored_text(literal in "-?(0|[1-9][0-9]{0,16})(\\.[0-9]{1,16})?(e[1-9])?") {
            let mut as_double = Vec::new();
            text::push_double(&mut as_double, double(literal.as_bytes()));

            if is_canonical_double(literal.as_bytes()) {
                prop_assert_eq!(String::from_utf8(as_double).unwrap(), literal.clone());
            }
            if is_canonical_int(literal.as_bytes()) {
                prop_assert_eq!(literal.parse::<i64>().unwrap().to_string(), literal);
            }
        }
    }
}
