//! A set of digests, 16 bytes a slot: whole in memory while it grows, by a byte a slot once it lies in a file.
//!
//! Open addressing: a digest lies in its home slot or in the next free one behind it. The home depends on a
//! salt that nobody outside knows, and on every bit of the digest, so that no sender can choose bodies which all
//! want the same slot. Never more than two thirds are full: an entry costs 24 to 48 bytes.
//!
//! [`Tags`] are what is kept in memory of a set whose slots lie elsewhere: most digests that are not in it are
//! told apart without a look there.

/// Bytes of a digest, and of a slot.
pub const DIGEST_BYTES: usize = 16;
const SLOTS_MIN: usize = 1 << 10;
const EMPTY_TAG: u8 = 0;

/// A digest as it lies in a slot.
type Slot = u128;
const EMPTY: Slot = 0;

/// As many digests as there are whole ones, as they are put into slots: none looks like an empty one.
fn lying(digests: &[u8]) -> impl Iterator<Item = Slot> {
    slots_of(digests).map(|digest| digest.max(1))
}

fn slots_of(bytes: &[u8]) -> impl Iterator<Item = Slot> {
    let (whole, _) = bytes.as_chunks::<DIGEST_BYTES>();
    whole.iter().map(|slot| Slot::from_le_bytes(*slot))
}

/// How the home of a digest is found.
#[derive(Clone, Copy)]
pub enum Layout {
    /// By the highest bits of what is mixed twice.
    Twice,
    /// By the remainder of what is mixed once, as the first version did: digests that agree in their lowest
    /// bits share a home then, whatever the salt is.
    Once,
}

/// Where digests belong: what the salt makes of them.
#[derive(Clone, Copy)]
struct Homes {
    factor: u128,
    layout: Layout,
}

impl Homes {
    const fn new(salt: [u8; 16], layout: Layout) -> Self {
        let factor = u128::from_le_bytes(salt) | 1;
        Self { factor, layout }
    }

    const fn mixed(self, digest: Slot) -> u128 {
        let once = digest.wrapping_mul(self.factor);
        match self.layout {
            Layout::Once => once,
            Layout::Twice => (once ^ (once >> 64)).wrapping_mul(self.factor),
        }
    }

    /// The slots where a digest may lie among so many, its home first.
    fn places(self, digest: Slot, slot_count: usize) -> impl Iterator<Item = usize> {
        let high = self.mixed(digest) >> 64;
        let home = match self.layout {
            Layout::Once => high % slot_count.max(1) as u128,
            Layout::Twice => (high * slot_count as u128) >> 64,
        };
        let home = usize::try_from(home).unwrap_or_default();
        (home..slot_count).chain(0..home)
    }

    /// What is kept of a digest in memory: bits in the middle, which the home depends on in neither layout.
    fn tag(self, digest: Slot) -> u8 {
        if digest == EMPTY {
            return EMPTY_TAG;
        }
        let [_, _, _, _, tag, ..] = self.mixed(digest).to_be_bytes();
        tag.max(1)
    }
}

/// A set that grows.
pub struct Digests {
    homes: Homes,
    slots: Vec<Slot>,
    entries: usize,
}

impl Digests {
    /// One with nothing in it.
    #[must_use]
    pub fn new(salt: [u8; 16]) -> Self {
        Self {
            homes: Homes::new(salt, Layout::Twice),
            slots: vec![EMPTY; SLOTS_MIN],
            entries: 0,
        }
    }

    /// How many are in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Put these in; twice is once.
    pub fn add(&mut self, digests: &[u8]) {
        for digest in lying(digests) {
            if self.put(digest) {
                self.entries += 1;
                if self.entries * 3 > self.slots.len() * 2 {
                    self.grow();
                }
            }
        }
    }

    /// Which of these are in it, by number.
    #[must_use]
    pub fn known(&self, digests: &[u8]) -> Vec<usize> {
        let is_in = |digest| self.found(digest).is_some_and(|(_, slot)| slot != EMPTY);
        let numbered = lying(digests).enumerate();
        numbered
            .filter(|&(_, one)| is_in(one))
            .map(|(number, _)| number)
            .collect()
    }

    /// Bytes of all slots.
    #[must_use]
    pub const fn slots_bytes(&self) -> usize {
        self.slots.len() * DIGEST_BYTES
    }

    /// Write all slots as they lie in a file, into so many bytes.
    pub fn write_slots(&self, out: &mut [u8]) {
        let (places, _) = out.as_chunks_mut::<DIGEST_BYTES>();
        for (place, slot) in places.iter_mut().zip(&self.slots) {
            *place = slot.to_le_bytes();
        }
    }

    /// The slot where a digest lies, or would, and what is there.
    fn found(&self, digest: Slot) -> Option<(usize, Slot)> {
        let places = self.homes.places(digest, self.slots.len());
        places
            .filter_map(|place| Some((place, *self.slots.get(place)?)))
            .find(|&(_, slot)| slot == EMPTY || slot == digest)
    }

    fn put(&mut self, digest: Slot) -> bool {
        let Some((place, EMPTY)) = self.found(digest) else {
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
                self.put(digest);
            }
        }
    }
}

/// What is kept in memory of a set whose slots lie elsewhere.
pub struct Tags {
    homes: Homes,
    tags: Vec<u8>,
}

impl Tags {
    /// Of no slots yet.
    #[must_use]
    pub const fn new(salt: [u8; 16], layout: Layout) -> Self {
        Self {
            homes: Homes::new(salt, layout),
            tags: Vec::new(),
        }
    }

    /// The next slots, as `Digests::write_slots` wrote them.
    pub fn extend(&mut self, slots: &[u8]) {
        self.tags
            .extend(slots_of(slots).map(|slot| self.homes.tag(slot)));
    }

    /// Which of these are in the set, by number. `lies_at` tells whether a slot holds these bytes: it is asked
    /// about one slot in some hundred beside those that do.
    ///
    /// # Errors
    ///
    /// What `lies_at` raises.
    pub fn known<E>(
        &self,
        digests: &[u8],
        lies_at: impl Fn(usize, [u8; DIGEST_BYTES]) -> Result<bool, E>,
    ) -> Result<Vec<usize>, E> {
        let mut known = Vec::new();
        for (number, digest) in lying(digests).enumerate() {
            let bytes = digest.to_le_bytes();
            if self.is_in(digest, |place| lies_at(place, bytes))? {
                known.push(number);
            }
        }
        Ok(known)
    }

    fn is_in<E>(
        &self,
        digest: Slot,
        lies_at: impl Fn(usize) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let wanted = self.homes.tag(digest);
        let places = self.homes.places(digest, self.tags.len());
        let tags = places.filter_map(|place| Some((place, *self.tags.get(place)?)));
        for (place, tag) in tags.take_while(|&(_, tag)| tag != EMPTY_TAG) {
            if tag == wanted && lies_at(place)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::{DIGEST_BYTES, Digests, Homes, Layout, Tags};
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::HashSet;
    use std::convert::Infallible;

    const SALT: [u8; 16] = [7; 16];

    fn tags_of(set: &Digests, cut: usize) -> (Tags, Vec<u8>) {
        let mut slots = vec![0; set.slots_bytes()];
        set.write_slots(&mut slots);
        let mut tags = Tags::new(SALT, Layout::Twice);
        for some in slots.chunks(cut * DIGEST_BYTES) {
            tags.extend(some);
        }
        (tags, slots)
    }

    fn known(tags: &Tags, slots: &[u8], digests: &[u8], asked: &Cell<usize>) -> Vec<usize> {
        let lies_at = |place: usize, digest: [u8; DIGEST_BYTES]| {
            asked.set(asked.get() + 1);
            Ok::<_, Infallible>(slots[place * DIGEST_BYTES..].starts_with(&digest))
        };
        tags.known(digests, lies_at).unwrap()
    }

    fn spread(number: u64) -> [u8; DIGEST_BYTES] {
        twox_hash::XxHash3_128::oneshot(&number.to_le_bytes()).to_le_bytes()
    }

    proptest! {
        #[test]
        fn it_is_a_set_in_memory_and_by_its_tags(
            put in prop::collection::vec((0_u64..2_000).prop_map(spread), 0..1_500),
            asked in prop::collection::vec((0_u64..4_000).prop_map(spread), 0..100),
            cut in 1_usize..2_000,
        ) {
            let mut set = Digests::new(SALT);
            set.add(put.as_flattened());
            let (tags, slots) = tags_of(&set, cut);
            let model: HashSet<_> = put.iter().collect();

            let asked = [put.as_slice(), &asked].concat();
            let expected: Vec<_> = (0..asked.len()).filter(|&at| model.contains(&asked[at])).collect();
            prop_assert_eq!(set.len(), model.len());
            prop_assert_eq!(set.known(asked.as_flattened()), expected.clone());
            prop_assert_eq!(known(&tags, &slots, asked.as_flattened(), &Cell::default()), expected);
        }
    }

    #[test]
    fn a_digest_of_zeros_is_one_like_any_other() {
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
    fn few_slots_are_looked_at_for_what_is_not_there() {
        let mut set = Digests::new(SALT);
        set.add((0..20_000).map(spread).collect::<Vec<_>>().as_flattened());
        let (tags, slots) = tags_of(&set, 4_096);
        let others: Vec<_> = (20_000..40_000).map(spread).collect();

        let asked = Cell::default();
        assert!(known(&tags, &slots, others.as_flattened(), &asked).is_empty());
        assert!((1..1_000).contains(&asked.get()), "{} looks", asked.get());
        assert!(slots.len() <= 48 * set.len(), "{} bytes", slots.len());
    }

    #[test]
    fn digests_that_somebody_chose_to_be_alike_have_homes_and_tags_of_their_own() {
        let homes = Homes::new(*b"a salt of theirs", Layout::Twice);
        for alike_bits in [0, 32, 64, 96] {
            let chosen = (1..=1_000_u128).map(|number| (number << alike_bits) ^ 0x1234_5678);
            let (found, tags): (HashSet<_>, HashSet<_>) = chosen
                .map(|digest| (homes.places(digest, 1 << 20).next(), homes.tag(digest)))
                .unzip();

            assert!(found.len() > 900, "{} homes", found.len());
            assert!(tags.len() > 200, "{} tags", tags.len());
        }
    }

    #[test]
    fn what_a_look_raises_is_raised() {
        let mut set = Digests::new(SALT);
        set.add(&[1; DIGEST_BYTES]);
        let (tags, _) = tags_of(&set, 1);

        assert_eq!(
            tags.known(&[1; DIGEST_BYTES], |_, _| Err("refused")),
            Err("refused")
        );
    }
}
