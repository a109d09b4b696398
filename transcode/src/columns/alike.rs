//! Whether two texts are the same, for texts as they mostly are: short. What this compares in line costs
//! a few instructions; a call to the C library's `memcmp` costs more than that before it looks at a byte.
//! And where to look for a text that may have been met lately.

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
    begins.0 == begins.1 && ends.0 == ends.1
}

/// How many places a memory has.
pub const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 10;

/// The place of a text in a memory of what was met lately: its length and its end, which says more than
/// its beginning, decide. Equal texts have equal places, and others seldom.
#[must_use]
#[inline]
pub fn place(text: &[u8]) -> usize {
    let end = match (text.last_chunk(), text.first_chunk(), text.last_chunk()) {
        (Some(end), _, _) => u64::from_le_bytes(*end),
        (_, Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last))
        }
        _ => text.iter().fold(1, |end, byte| end << 8 | u64::from(*byte)),
    };
    place_of(end ^ (text.len() as u64) << 56)
}

/// The place of a number: neighbours lie apart, and so do numbers that differ in their highest bits only.
#[must_use]
#[inline]
pub fn place_of(number: u64) -> usize {
    let folded = number ^ number >> 32;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACE_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_at_the_end_mostly_have_places_of_their_own() {
        let places = (0..PLACES / 4).map(|id| place(format!("GET /orders/{id}").as_bytes()));
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        places.dedup();

        assert!(places.len() > PLACES / 5, "{} places", places.len());
        assert!(places.iter().all(|place| *place < PLACES));
    }

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
