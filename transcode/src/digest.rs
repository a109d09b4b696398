//! Keyed digest that identifies a delivery: 128-bit `HighwayHash`.
//!
//! ```text
//! digest = HighwayHash-128(key, drain 0 kind 0 body)        body: decompressed
//! ```
//!
//! Invariant: the key is random and stays in the data directory. Without the key, a sender cannot construct two
//! bodies with the same digest, and so cannot make the receiver drop a delivery as a duplicate.

use highway::{HighwayHash, HighwayHasher, Key};

/// Digest key of one data directory.
#[derive(Clone)]
pub struct DigestKey([u64; 4]);

impl DigestKey {
    /// Length of a key in bytes.
    pub const BYTES: usize = 32;

    /// Reads a key; `None` if it has another length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words = <&[[u8; 8]; 4]>::try_from(words).ok()?;
        rest.is_empty()
            .then(|| Self::from_words(words.map(u64::from_le_bytes)))
    }

    /// Returns the key that consists of four words.
    #[must_use]
    pub const fn from_words(words: [u64; 4]) -> Self {
        Self(words)
    }

    /// Returns the digest of a delivery. Deliveries with the same digest are duplicates.
    #[must_use]
    pub fn digest(&self, drain: &str, kind: &str, body: &[u8]) -> u128 {
        let mut hasher = HighwayHasher::new(Key(self.0));
        // A zero byte ends drain and kind, so that different parts never concatenate to the same bytes.
        for part in [drain.as_bytes(), &[0], kind.as_bytes(), &[0], body] {
            hasher.append(part);
        }
        let [low, high] = hasher.finalize128();
        u128::from(low) | (u128::from(high) << 64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twox_hash::XxHash3_128;

    fn key(first: u8) -> DigestKey {
        let bytes: Vec<u8> = (first..).take(DigestKey::BYTES).collect();
        DigestKey::from_bytes(&bytes).unwrap()
    }

    #[test]
    fn bodies_crafted_to_collide_without_a_key_have_different_digests() {
        // XXH3 multiplies the two halves of (word XOR secret). A half that is zero hides the other half, and the
        // remaining sum is easy to collide.
        let crafted = |low: [u8; 2]| {
            let mut input = [0; 300];
            input[..8].copy_from_slice(&[low[0], 0, 0, 0, 0x23, 0xA4, 0x4B, 0xBE]);
            input[64..72].copy_from_slice(&[low[1], 0, 0, 0, 0xF7, 0x21, 0xAD, 0x1C]);
            input
        };
        let (first, second) = (crafted([1, 2]), crafted([2, 1]));
        assert_eq!(XxHash3_128::oneshot(&first), XxHash3_128::oneshot(&second));

        assert_ne!(
            key(0).digest("", "", &first),
            key(0).digest("", "", &second)
        );
    }

    #[test]
    fn digest_depends_on_key_drain_kind_and_body() {
        let digests = [
            key(0).digest("drain", "json", b"body"),
            key(1).digest("drain", "json", b"body"),
            key(0).digest("other", "json", b"body"),
            key(0).digest("drain", "protobuf", b"body"),
            key(0).digest("drain", "json", b"other"),
        ];

        for (at, digest) in digests.iter().enumerate() {
            assert!(!digests[..at].contains(digest), "{at}");
        }
        assert_eq!(key(0).digest("drain", "json", b"body"), digests[0]);
    }

    #[test]
    fn digest_equals_the_published_test_vector() {
        // The test vector of `HighwayHash` for 64 bytes 0, 1, 2 …, whose key is 0, 1, 2 … too.
        let input: Vec<u8> = (0..64).collect();
        let mut hasher = HighwayHasher::new(Key(key(0).0));
        hasher.append(&input);

        assert_eq!(hasher.finalize64(), 0x7554_2C5D_4CD2_A6FF);
    }

    #[test]
    fn key_of_another_length_is_refused() {
        for length in [0, 31, 33, 64] {
            assert!(DigestKey::from_bytes(&vec![1; length]).is_none());
        }
    }
}
