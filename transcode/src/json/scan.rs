//! Search for the end of a JSON string, eight bytes at a time.

const LOW_BITS: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);
const QUOTES: u64 = u64::from_ne_bytes([b'"'; 8]);
const BACKSLASHES: u64 = u64::from_ne_bytes([b'\\'; 8]);
const BRACES: u64 = u64::from_ne_bytes([b'}'; 8]);
const SPACES: u64 = u64::from_ne_bytes([b' '; 8]);

/// Returns the position of the first quote, backslash or control character at or after `at`, or the end.
#[inline]
pub(super) fn special(bytes: &[u8], at: usize) -> usize {
    let mut rest = bytes.get(at..).unwrap_or_default();
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        let matches = specials(u64::from_le_bytes(*chunk));
        if matches != 0 {
            return bytes.len() - rest.len() + (matches.trailing_zeros() / 8) as usize;
        }
        rest = tail;
    }
    let is_special = |&byte: &u8| byte < b' ' || byte == b'"' || byte == b'\\';
    bytes.len() - rest.len() + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// Returns the position of the first closing brace, or the end.
#[inline]
pub(super) fn brace(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((chunk, tail)) = rest.split_first_chunk::<16>() {
        // No early exit, so that the compiler compares all sixteen bytes at once.
        let is_brace = chunk.iter().map(|byte| u8::from(*byte == b'}'));
        if is_brace.fold(0, |seen, is| seen | is) != 0 {
            break;
        }
        rest = tail;
    }
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        let braces = u64::from_le_bytes(*chunk) ^ BRACES;
        let matches = braces.wrapping_sub(LOW_BITS) & !braces & HIGH_BITS;
        if matches != 0 {
            return bytes.len() - rest.len() + (matches.trailing_zeros() / 8) as usize;
        }
        rest = tail;
    }
    let position = rest.iter().position(|byte| *byte == b'}');
    bytes.len() - rest.len() + position.unwrap_or(rest.len())
}

/// Sets the top bit of the first special byte (counted from the least significant) and of no byte before it; the bits
/// after it are undefined.
#[inline]
fn specials(word: u64) -> u64 {
    let quotes = word ^ QUOTES;
    let backslashes = word ^ BACKSLASHES;
    (quotes.wrapping_sub(LOW_BITS) & !quotes
        | backslashes.wrapping_sub(LOW_BITS) & !backslashes
        | word.wrapping_sub(SPACES) & !word)
        & HIGH_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn first_special_byte_is_found_at_every_position(
            bytes: Vec<u8>, plain in 0usize..40, at in 0usize..50,
        ) {
            let mut text = vec![b'x'; plain];
            text.extend(bytes);
            let expected = (at..text.len())
                .find(|&position| text[position] < 0x20 || text[position] == b'"' || text[position] == b'\\');

            prop_assert_eq!(special(&text, at), expected.unwrap_or(text.len()));
        }

        #[test]
        fn first_brace_is_found_at_every_position(text in "[a-z}]{0,80}") {
            let expected = text.find('}');

            prop_assert_eq!(brace(text.as_bytes()), expected.unwrap_or(text.len()));
        }
    }
}
