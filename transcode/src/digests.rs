//! Set of delivery digests, with 16-byte slots in memory or in a file.
//!
//! Open addressing: a digest is in its home slot or, if that is taken, in the next free slot. The home slot depends
//! on a secret salt and on every bit of the digest, so that no sender can construct bodies that compete for the same
//! slot. At most two thirds of the slots are full, so a digest takes 24 to 48 bytes.
//!
//! [`Digests`] is the set in memory, which can grow. [`Tags`] is the in-memory index of a set whose slots are in a
//! file, one byte per slot: it decides for most unknown digests without reading the file.

/// Length of a digest and of a slot in bytes.
pub const DIGEST_BYTES: usize = 16;
const SLOTS_MIN: usize = 1 << 10;
const EMPTY_TAG: u8 = 0;

/// A slot: a digest, or [`EMPTY`].
type Slot = u128;
const EMPTY: Slot = 0;

/// Converts concatenated digests to slot values. The zero digest becomes 1, because 0 marks an empty slot.
fn slot_values(digests: &[u8]) -> impl Iterator<Item = Slot> {
    slots_of(digests).map(|digest| digest.max(1))
}

fn slots_of(bytes: &[u8]) -> impl Iterator<Item = Slot> {
    let (whole, _) = bytes.as_chunks::<DIGEST_BYTES>();
    whole.iter().map(|slot| Slot::from_le_bytes(*slot))
}

/// Salted function from digests to slots and tags.
#[derive(Clone, Copy)]
struct Placement {
    factor: u128,
}

impl Placement {
    const fn new(salt: [u8; 16]) -> Self {
        // Only an odd factor makes the multiplication reversible, so that different digests stay different.
        let factor = u128::from_le_bytes(salt) | 1;
        Self { factor }
    }

    /// Hashes a digest. A single multiplication would give digests that agree in their lowest bits the same
    /// slot, whatever the salt is: a bit of a product depends only on the lower bits of its factors.
    const fn mix(self, digest: Slot) -> u128 {
        let once = digest.wrapping_mul(self.factor);
        (once ^ (once >> 64)).wrapping_mul(self.factor)
    }

    /// Returns the slots in which to look for a digest, in order, beginning with its home slot.
    fn probe_sequence(self, digest: Slot, slot_count: usize) -> impl Iterator<Item = usize> {
        // Scales the upper 64 bits to the number of slots, which is faster than a division.
        let home = ((self.mix(digest) >> 64) * slot_count as u128) >> 64;
        let home = usize::try_from(home).unwrap_or_default();
        (home..slot_count).chain(0..home)
    }

    /// Returns the in-memory tag of a digest. Its bits do not influence the home slot, so that digests with the
    /// same home slot seldom share a tag.
    fn tag(self, digest: Slot) -> u8 {
        if digest == EMPTY {
            return EMPTY_TAG;
        }
        let [_, _, _, _, tag, ..] = self.mix(digest).to_be_bytes();
        // 0 is the tag of an empty slot.
        tag.max(1)
    }
}

/// Growing set of digests in memory.
pub struct Digests {
    placement: Placement,
    slots: Vec<Slot>,
    entries: usize,
}

impl Digests {
    /// Returns an empty set.
    #[must_use]
    pub fn new(salt: [u8; 16]) -> Self {
        Self {
            placement: Placement::new(salt),
            slots: vec![EMPTY; SLOTS_MIN],
            entries: 0,
        }
    }

    /// Returns the number of digests in the set.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Adds these digests; known digests are ignored.
    pub fn add(&mut self, digests: &[u8]) {
        for digest in slot_values(digests) {
            if self.insert(digest) {
                self.entries += 1;
                // In fuller sets the searches visit many more slots.
                if self.entries * 3 > self.slots.len() * 2 {
                    self.grow();
                }
            }
        }
    }

    /// Returns the indices of the digests that are in the set.
    #[must_use]
    pub fn known(&self, digests: &[u8]) -> Vec<usize> {
        let is_in = |digest| self.find(digest).is_some_and(|(_, slot)| slot != EMPTY);
        let numbered = slot_values(digests).enumerate();
        numbered
            .filter(|&(_, digest)| is_in(digest))
            .map(|(index, _)| index)
            .collect()
    }

    /// Returns the size of all slots in bytes.
    #[must_use]
    pub const fn slots_bytes(&self) -> usize {
        self.slots.len() * DIGEST_BYTES
    }

    /// Writes all slots, in their on-disk format, to a buffer of [`Self::slots_bytes`] bytes.
    pub fn write_slots(&self, out: &mut [u8]) {
        let (cells, _) = out.as_chunks_mut::<DIGEST_BYTES>();
        for (cell, slot) in cells.iter_mut().zip(&self.slots) {
            *cell = slot.to_le_bytes();
        }
    }

    /// Returns the slot of a digest, or the free slot to insert it into, with its content.
    fn find(&self, digest: Slot) -> Option<(usize, Slot)> {
        let probe_sequence = self.placement.probe_sequence(digest, self.slots.len());
        probe_sequence
            .filter_map(|place| Some((place, *self.slots.get(place)?)))
            .find(|&(_, slot)| slot == EMPTY || slot == digest)
    }

    fn insert(&mut self, digest: Slot) -> bool {
        let Some((place, EMPTY)) = self.find(digest) else {
            return false;
        };
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = digest;
        }
        true
    }

    fn grow(&mut self) {
        let twice = vec![EMPTY; self.slots.len() * 2];
        for digest in std::mem::replace(&mut self.slots, twice) {
            if digest != EMPTY {
                self.insert(digest);
            }
        }
    }
}

/// In-memory index of a set of digests in a file: one byte per slot.
pub struct Tags {
    placement: Placement,
    tags: Vec<u8>,
}

impl Tags {
    /// Returns an index of no slots.
    #[must_use]
    pub const fn new(salt: [u8; 16]) -> Self {
        Self {
            placement: Placement::new(salt),
            tags: Vec::new(),
        }
    }

    /// Adds the next slots, in the format of [`Digests::write_slots`].
    pub fn extend(&mut self, slots: &[u8]) {
        self.tags
            .extend(slots_of(slots).map(|slot| self.placement.tag(slot)));
    }

    /// Returns the indices of the digests that are in the set. `slot_equals` returns whether a slot of the file
    /// contains these bytes; for unknown digests it is called for about one slot in a hundred.
    ///
    /// # Errors
    /// If `slot_equals` fails.
    pub fn known<E>(
        &self,
        digests: &[u8],
        slot_equals: impl Fn(usize, [u8; DIGEST_BYTES]) -> Result<bool, E>,
    ) -> Result<Vec<usize>, E> {
        let mut known = Vec::new();
        for (index, digest) in slot_values(digests).enumerate() {
            let bytes = digest.to_le_bytes();
            if self.is_in(digest, |slot| slot_equals(slot, bytes))? {
                known.push(index);
            }
        }
        Ok(known)
    }

    fn is_in<E>(
        &self,
        digest: Slot,
        slot_equals: impl Fn(usize) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let wanted = self.placement.tag(digest);
        let probe_sequence = self.placement.probe_sequence(digest, self.tags.len());
        let tags = probe_sequence.filter_map(|slot| Some((slot, *self.tags.get(slot)?)));
        // An empty slot ends the search, because digests are never removed from a set.
        for (slot, tag) in tags.take_while(|&(_, tag)| tag != EMPTY_TAG) {
            // Different digests can share a tag, so the file decides.
            if tag == wanted && slot_equals(slot)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::{DIGEST_BYTES, Digests, Placement, Tags};
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::HashSet;
    use std::convert::Infallible;

    const SALT: [u8; 16] = [7; 16];

    fn tags_of(set: &Digests, cut: usize) -> (Tags, Vec<u8>) {
        let mut slots = vec![0; set.slots_bytes()];
        set.write_slots(&mut slots);
        let mut tags = Tags::new(SALT);
        for part in slots.chunks(cut * DIGEST_BYTES) {
            tags.extend(part);
        }
        (tags, slots)
    }

    fn known(tags: &Tags, slots: &[u8], digests: &[u8], comparisons: &Cell<usize>) -> Vec<usize> {
        let slot_equals = |slot: usize, digest: [u8; DIGEST_BYTES]| {
            comparisons.set(comparisons.get() + 1);
            Ok::<_, Infallible>(slots[slot * DIGEST_BYTES..].starts_with(&digest))
        };
        tags.known(digests, slot_equals).unwrap()
    }

    fn digest_of(number: u64) -> [u8; DIGEST_BYTES] {
        twox_hash::XxHash3_128::oneshot(&number.to_le_bytes()).to_le_bytes()
    }

    proptest! {
        #[test]
        fn set_in_memory_and_its_tags_behave_like_a_hash_set(
            inserted in prop::collection::vec((0_u64..2_000).prop_map(digest_of), 0..1_500),
            others in prop::collection::vec((0_u64..4_000).prop_map(digest_of), 0..100),
            cut in 1_usize..2_000,
        ) {
            let mut set = Digests::new(SALT);
            set.add(inserted.as_flattened());
            let (tags, slots) = tags_of(&set, cut);
            let model: HashSet<_> = inserted.iter().collect();

            let queried = [inserted.as_slice(), &others].concat();
            let expected: Vec<_> = (0..queried.len()).filter(|&index| model.contains(&queried[index])).collect();
            prop_assert_eq!(set.len(), model.len());
            prop_assert_eq!(set.known(queried.as_flattened()), expected.clone());
            prop_assert_eq!(known(&tags, &slots, queried.as_flattened(), &Cell::default()), expected);
        }
    }

    #[test]
    fn digest_of_zeros_is_stored_like_any_other() {
        let mut set = Digests::new(SALT);
        assert!(set.known(&[0; DIGEST_BYTES]).is_empty());
        set.add(&[0; DIGEST_BYTES]);
        let (tags, slots) = tags_of(&set, 1);

        assert_eq!(set.known(&[0; DIGEST_BYTES]), [0]);
        assert_eq!(
            known(&tags, &slots, &[0; DIGEST_BYTES], &Cell::default()),
            [0]
        );
    }

    #[test]
    fn unknown_digests_are_rarely_compared_with_slots() {
        let mut set = Digests::new(SALT);
        set.add(
            (0..20_000)
                .map(digest_of)
                .collect::<Vec<_>>()
                .as_flattened(),
        );
        let (tags, slots) = tags_of(&set, 4_096);
        let others: Vec<_> = (20_000..40_000).map(digest_of).collect();

        let comparisons = Cell::default();
        assert!(known(&tags, &slots, others.as_flattened(), &comparisons).is_empty());
        assert!(
            (1..1_000).contains(&comparisons.get()),
            "{} comparisons",
            comparisons.get()
        );
        assert!(slots.len() <= 48 * set.len(), "{} bytes", slots.len());
    }

    #[test]
    fn chosen_similar_digests_have_different_home_slots_and_tags() {
        let placement = Placement::new(*b"salt of 16 bytes");
        for equal_bits in [0, 32, 64, 96] {
            let chosen = (1..=1_000_u128).map(|number| (number << equal_bits) ^ 0x1234_5678);
            let (home_slots, tags): (HashSet<_>, HashSet<_>) = chosen
                .map(|digest| {
                    (
                        placement.probe_sequence(digest, 1 << 20).next(),
                        placement.tag(digest),
                    )
                })
                .unzip();

            assert!(home_slots.len() > 900, "{} home slots", home_slots.len());
            assert!(tags.len() > 200, "{} tags", tags.len());
        }
    }

    #[test]
    fn error_of_the_comparison_is_returned() {
        let mut set = Digests::new(SALT);
        set.add(&[1; DIGEST_BYTES]);
        let (tags, _) = tags_of(&set, 1);

        assert_eq!(
            tags.known(&[1; DIGEST_BYTES], |_, _| Err("refused")),
            Err("refused")
        );
    }
}
