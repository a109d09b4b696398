//! Length limit for names that senders choose and that become keys in tables, sums and the ledger.
//!
//! ```text
//! up to 256 bytes    as sent
//! longer             the first 221 bytes, or up to three fewer │ … │ XXH3-128 of the whole text, 32 hex digits
//! ```
//!
//! The hash has no secret key, so that every receiver shortens a name in the same way, also after a restart. A sender
//! can construct two names with the same hash, but that only merges two of its own names, and the attributes keep
//! both in full.

use std::borrow::Cow;

use twox_hash::XxHash3_128;

/// Maximum length of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 256;
const HASH_DIGITS: usize = 32;
const PREFIX_BYTES_MAX: usize = KEY_BYTES_MAX - '…'.len_utf8() - HASH_DIGITS;

/// Returns the text as a key: shortened if it is too long.
#[must_use]
#[inline]
pub fn bounded(text: &str) -> Cow<'_, str> {
    if text.len() <= KEY_BYTES_MAX {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(shortened(text))
    }
}

#[cold]
fn shortened(text: &str) -> String {
    // A slice of `str` exists only at a character boundary, which is at most three bytes away.
    let mut ends = (0..=PREFIX_BYTES_MAX).rev();
    let prefix = ends.find_map(|end| text.get(..end)).unwrap_or_default();
    let hash = XxHash3_128::oneshot(text.as_bytes());
    format!("{prefix}…{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_256_bytes_is_unchanged() {
        let text = "x".repeat(KEY_BYTES_MAX);

        assert_eq!(bounded(&text), text);
    }

    #[test]
    fn longer_text_is_cut_to_256_bytes_and_ends_with_its_hash() {
        let text = "x".repeat(KEY_BYTES_MAX + 1);

        let key = bounded(&text);

        assert_eq!(key.len(), KEY_BYTES_MAX);
        assert_eq!(
            key,
            format!("{}…dadc14ca338a8c9f9d7697cc4f0af996", "x".repeat(221))
        );
    }

    #[test]
    fn long_texts_that_differ_anywhere_stay_different() {
        let texts = ["a", "b"].map(|end| "x".repeat(4 << 20) + end);

        assert_ne!(bounded(&texts[0]), bounded(&texts[1]));
    }

    #[test]
    fn text_is_cut_between_characters() {
        for shift in 0..4 {
            let text = "x".repeat(shift) + &"🦀".repeat(100);

            let key = bounded(&text);

            let (prefix, _) = key.split_once('…').unwrap();
            assert!(text.starts_with(prefix));
            assert!((KEY_BYTES_MAX - 3..=KEY_BYTES_MAX).contains(&key.len()));
        }
    }
}
