//! Sanitises strings for storage: valid UTF-8, at most the allowed length.

use std::borrow::Cow;

use crate::tally::Tally;
use crate::visit::Warning;

/// Returns the longest prefix of `raw` that has at most `bytes_max` bytes and does not split a character.
fn cut(raw: &[u8], bytes_max: usize) -> &[u8] {
    let is_continuation = |at: usize| raw.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let mut end = bytes_max.min(raw.len());
    // A character has at most three continuation bytes; longer runs are invalid and replaced later.
    for _ in 0..3 {
        if end > 0 && is_continuation(end) {
            end -= 1;
        }
    }
    raw.get(..end).unwrap_or_default()
}

/// Returns the text to store and warns about each change. Called only for strings that are not in the
/// dictionary yet, so a repeated string costs no second check.
#[cold]
pub fn clean<'a>(raw: &'a [u8], bytes_max: usize, tally: &mut Tally) -> Cow<'a, str> {
    let short = cut(raw, bytes_max);
    if short.len() < raw.len() {
        tally.warn(Warning::TextCut);
    }
    if let Ok(text) = simdutf8::basic::from_utf8(short) {
        return Cow::Borrowed(text);
    }
    tally.warn(Warning::InvalidUtf8);
    let replaced = String::from_utf8_lossy(short);
    // U+FFFD has three bytes and may replace one, so the text may exceed the limit again.
    let fitting = cut(replaced.as_bytes(), bytes_max).len();
    Cow::Owned(replaced.get(..fitting).unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(raw: &[u8], bytes_max: usize) -> (String, Vec<(&'static str, u32)>) {
        let mut tally = Tally::default();
        let text = clean(raw, bytes_max, &mut tally).into_owned();
        (text, tally.reasons())
    }

    #[test]
    fn valid_text_is_unchanged() {
        assert_eq!(cleaned("grün".as_bytes(), 10), ("grün".to_owned(), vec![]));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(
            cleaned("grün".as_bytes(), 3),
            ("gr".to_owned(), vec![("text_cut", 1)])
        );
        assert_eq!(
            cleaned("a🦀".as_bytes(), 4),
            ("a".to_owned(), vec![("text_cut", 1)])
        );
        assert_eq!(cleaned("a🦀".as_bytes(), 5), ("a🦀".to_owned(), vec![]));
    }

    #[test]
    fn invalid_utf8_becomes_replacement_characters() {
        assert_eq!(
            cleaned(b"a\xFFb", 9),
            ("a\u{FFFD}b".to_owned(), vec![("invalid_utf8", 1)])
        );
    }

    #[test]
    fn text_with_replacement_characters_stays_within_the_limit() {
        let (text, reasons) = cleaned(b"a\xFF\xFF\xFF", 4);

        assert_eq!(text, "a\u{FFFD}");
        assert_eq!(reasons, vec![("invalid_utf8", 1)]);
    }
}
