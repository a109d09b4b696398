//! Comparison of short byte strings, and slot numbers for the caches of recent strings and numbers.
//!
//! Most compared strings are short. The inline comparison costs a few instructions; a call to the C library's
//! `memcmp` costs more than that before it reads a byte.

/// Returns whether `a` and `b` are equal.
#[must_use]
#[inline]
pub fn bytes_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        // too short for two overlapping loads
        0..4 => a.iter().eq(b),
        4..8 => first_and_last_bytes_equal::<4>(a, b),
        8..16 => first_and_last_bytes_equal::<8>(a, b),
        16..32 => first_and_last_bytes_equal::<16>(a, b),
        32..=64 => first_and_last_bytes_equal::<32>(a, b),
        // here reading the bytes costs more than the call
        _ => a == b,
    }
}

/// Compares the first and the last `BYTES` bytes, which together cover everything and may overlap.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a few loads, each size its own")]
fn first_and_last_bytes_equal<const BYTES: usize>(a: &[u8], b: &[u8]) -> bool {
    let begins = (a.first_chunk::<BYTES>(), b.first_chunk::<BYTES>());
    let ends = (a.last_chunk::<BYTES>(), b.last_chunk::<BYTES>());
    begins.0 == begins.1 && ends.0 == ends.1
}

/// Number of slots in a cache of recent values.
pub const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;

/// Returns the cache slot of a string, computed from its length and its end, which varies more than its
/// beginning. Equal strings have equal slots; different strings seldom share a slot.
#[must_use]
#[inline]
pub fn text_slot(text: &[u8]) -> usize {
    let end = match (text.last_chunk(), text.first_chunk(), text.last_chunk()) {
        (Some(end), _, _) => u64::from_le_bytes(*end),
        // A string of 4 to 7 bytes: its first and last four bytes cover it and may overlap.
        (_, Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last))
        }
        _ => text.iter().fold(1, |end, byte| end << 8 | u64::from(*byte)),
    };
    number_slot(end ^ (text.len() as u64) << 56)
}

/// Returns the cache slot of a number. Neighbouring numbers, and numbers that differ in high bits only, are
/// spread out.
#[must_use]
#[inline]
pub fn number_slot(number: u64) -> usize {
    // Fibonacci hashing: the factor is 2^64 divided by the golden ratio. Folding lets high bits count as
    // well.
    let folded = number ^ number >> 32;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOT_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_at_the_end_mostly_have_different_slots() {
        let slots = (0..SLOTS / 4).map(|id| text_slot(format!("GET /orders/{id}").as_bytes()));
        let mut slots: Vec<_> = slots.collect();
        slots.sort_unstable();
        slots.dedup();

        assert!(slots.len() > SLOTS / 5, "{} slots", slots.len());
        assert!(slots.iter().all(|slot| *slot < SLOTS));
    }

    #[test]
    fn texts_that_differ_in_one_byte_are_not_equal() {
        for length in 0..100 {
            let text: Vec<u8> = (0..length).collect();

            assert!(bytes_equal(&text, &text.clone()), "length {length}");
            for at in 0..text.len() {
                let mut other = text.clone();
                other[at] ^= 0x80;
                assert!(!bytes_equal(&text, &other), "length {length}, byte {at}");
            }
        }
    }

    #[test]
    fn texts_of_different_length_are_not_equal() {
        assert!(!bytes_equal(b"abc", b"abcd"));
        assert!(!bytes_equal(b"", b"a"));
    }
}
