//! Whether two texts are the same, for texts as they mostly are: short. What this compares in line costs
//! a few instructions; a call to the C library's `memcmp` costs more than that before it looks at a byte.

/// Whether `a` and `b` are equal.
#[must_use]
#[inline]
pub fn alike(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        0..4 => a.iter().eq(b),
        4..8 => begins_and_ends_alike::<4>(a, b),
        8..16 => begins_and_ends_alike::<8>(a, b),
        16..32 => begins_and_ends_alike::<16>(a, b),
        32..=64 => begins_and_ends_alike::<32>(a, b),
        _ => a == b,
    }
}

/// Compares two stretches that together cover everything, overlapping in the middle.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a few loads, each size its own")]
fn begins_and_ends_alike<const BYTES: usize>(a: &[u8], b: &[u8]) -> bool {
    let begins = (a.first_chunk::<BYTES>(), b.first_chunk::<BYTES>());
    let ends = (a.last_chunk::<BYTES>(), b.last_chunk::<BYTES>());
    (begins.0 == begins.1) & (ends.0 == ends.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_like_itself_and_unlike_every_other_that_differs_in_one_byte() {
        for length in 0..100 {
            let text: Vec<u8> = (0..length).collect();

            assert!(alike(&text, &text.clone()), "length {length}");
            for at in 0..text.len() {
                let mut other = text.clone();
                other[at] ^= 0x80;
                assert!(!alike(&text, &other), "length {length}, byte {at}");
            }
        }
    }

    #[test]
    fn texts_of_different_length_are_unlike() {
        assert!(!alike(b"abc", b"abcd"));
        assert!(!alike(b"", b"a"));
    }
}
