//! Finding where a JSON string ends, eight bytes at a time.

const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
const QUOTES: u64 = u64::from_ne_bytes([b'"'; 8]);
const BACKSLASHES: u64 = u64::from_ne_bytes([b'\\'; 8]);
const BRACES: u64 = u64::from_ne_bytes([b'}'; 8]);
const SPACES: u64 = u64::from_ne_bytes([b' '; 8]);

/// The first place at or after `at` of a quote, a backslash or a control character; else the end.
#[inline]
pub(super) fn special(bytes: &[u8], at: usize) -> usize {
    let mut rest = bytes.get(at..).unwrap_or_default();
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        let found = specials(u64::from_le_bytes(*chunk));
        if found != 0 {
            return bytes.len() - rest.len() + (found.trailing_zeros() / 8) as usize;
        }
        rest = tail;
    }
    let is_special = |&byte: &u8| byte < b' ' || byte == b'"' || byte == b'\\';
    bytes.len() - rest.len() + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// The first place of a closing brace; else the end.
#[inline]
pub(super) fn brace(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((chunk, tail)) = rest.split_first_chunk::<16>() {
        // No early end, so that all sixteen are looked at at once.
        if chunk
            .iter()
            .fold(false, |seen, byte| seen | (*byte == b'}'))
        {
            break;
        }
        rest = tail;
    }
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        let braces = u64::from_le_bytes(*chunk) ^ BRACES;
        let found = braces.wrapping_sub(ONES) & !braces & TOPS;
        if found != 0 {
            return bytes.len() - rest.len() + (found.trailing_zeros() / 8) as usize;
        }
        rest = tail;
    }
    let found = rest.iter().position(|byte| *byte == b'}');
    bytes.len() - rest.len() + found.unwrap_or(rest.len())
}

/// The top bit of the first special byte, counted from the least significant, is set and none below
/// it; those above mean nothing.
#[inline]
fn specials(word: u64) -> u64 {
    let quotes = word ^ QUOTES;
    let backslashes = word ^ BACKSLASHES;
    (quotes.wrapping_sub(ONES) & !quotes
        | backslashes.wrapping_sub(ONES) & !backslashes
        | word.wrapping_sub(SPACES) & !word)
        & TOPS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_special_byte_is_found_wherever_it_lies(
            bytes: Vec<u8>, plain in 0usize..40, at in 0usize..50,
        ) {
            let mut text = vec![b'x'; plain];
            text.extend(bytes);
            let expected = (at..text.len())
                .find(|&place| text[place] < 0x20 || text[place] == b'"' || text[place] == b'\\');

            prop_assert_eq!(special(&text, at), expected.unwrap_or(text.len()));
        }

        #[test]
        fn the_first_brace_is_found_wherever_it_lies(text in "[a-z}]{0,80}") {
            let expected = text.find('}');

            prop_assert_eq!(brace(text.as_bytes()), expected.unwrap_or(text.len()));
        }
    }
}
