//! Hash table of numbers that are inserted in ascending order and removed in reverse order, as a roll-back
//! does. Removal simply empties the slot: every number that probed past it was inserted later and has been removed
//! already.
//!
//! Invariant: at least half of the slots are free, so every search ends.

/// Minimum number of slots of a table that is not empty.
const SLOTS_MIN: usize = 64;

#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    id: u32,
}

const FREE: Slot = Slot {
    hash: 0,
    id: u32::MAX,
};

/// Result of a search.
pub enum Lookup {
    /// The number.
    Id(u32),
    /// Not in the table; the slot to insert it into.
    Free(usize),
}

/// Numbers by their hash.
#[derive(Default)]
pub struct Table {
    slots: Vec<Slot>,
    taken: usize,
}

impl Table {
    /// Returns the number that has this hash and satisfies the predicate.
    #[inline]
    pub fn find(&self, hash: u32, matches: impl Fn(u32) -> bool) -> Lookup {
        // The number of slots is a power of two. Without slots, `get` below finds nothing.
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(slot) = self.slots.get(at) {
            if slot.id == FREE.id {
                break;
            }
            // Comparing the hashes first avoids reading the string of nearly every other slot.
            if slot.hash == hash && matches(slot.id) {
                return Lookup::Id(slot.id);
            }
            at = (at + 1) & mask;
        }
        Lookup::Free(at)
    }

    /// Inserts a number, higher than all before it, into the slot that [`Table::find`] returned.
    #[inline]
    pub fn put(&mut self, at: usize, hash: u32, id: u32) {
        if self.slots.is_empty() {
            // `at` means nothing in a table without slots, so the slot is searched again.
            self.reset(SLOTS_MIN);
            return self.reinsert(Slot { hash, id });
        }
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Slot { hash, id };
            self.taken += 1;
        }
        if self.taken * 2 >= self.slots.len() {
            self.grow();
        }
    }

    fn reinsert(&mut self, known: Slot) {
        if let Lookup::Free(at) = self.find(known.hash, |_| false)
            && let Some(slot) = self.slots.get_mut(at)
        {
            *slot = known;
            self.taken += 1;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let is_taken = |slot: &Slot| slot.id != FREE.id;
        let mut taken: Vec<_> = self.slots.iter().copied().filter(is_taken).collect();
        // Numbers must be inserted in ascending order; otherwise removing the last number could cut a probe
        // sequence.
        taken.sort_unstable_by_key(|slot| slot.id);
        self.reset(self.slots.len() * 2);
        for slot in taken {
            self.reinsert(slot);
        }
    }

    /// Removes the number inserted last; does nothing if it is not in the table.
    pub fn remove_last(&mut self, hash: u32, id: u32) {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(slot) = self.slots.get_mut(at) {
            if slot.id == id {
                *slot = FREE;
                self.taken -= 1;
            }
            if slot.id == FREE.id {
                break;
            }
            at = (at + 1) & mask;
        }
    }

    /// Removes all numbers. Keeps a table of the size that the last block needed.
    pub fn clear(&mut self) {
        // Leaves room for twice as many numbers before the table grows.
        let slots = (self.taken * 4).next_power_of_two().max(SLOTS_MIN);
        self.reset(slots.min(self.slots.len()));
    }

    fn reset(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, FREE);
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers share a few hashes, so that they collide.
    fn hash_of(id: u32) -> u32 {
        id % 5
    }

    fn put(table: &mut Table, id: u32) {
        let Lookup::Free(at) = table.find(hash_of(id), |known| known == id) else {
            panic!("{id} is already in the table");
        };
        table.put(at, hash_of(id), id);
    }

    fn contains(table: &Table, id: u32) -> bool {
        matches!(table.find(hash_of(id), |known| known == id), Lookup::Id(_))
    }

    #[test]
    fn colliding_numbers_are_found_after_the_table_grows() {
        let mut table = Table::default();

        (0..500).for_each(|id| put(&mut table, id));

        assert!((0..500).all(|id| contains(&table, id)));
        assert!(!contains(&table, 500));
    }

    #[test]
    fn removal_in_reverse_order_keeps_the_other_numbers() {
        let mut table = Table::default();
        (0..200).for_each(|id| put(&mut table, id));

        (70..200)
            .rev()
            .for_each(|id| table.remove_last(hash_of(id), id));

        assert!((0..70).all(|id| contains(&table, id)));
        assert!(!(70..200).any(|id| contains(&table, id)));
    }

    #[test]
    fn removing_a_number_that_was_never_inserted_does_nothing() {
        let mut table = Table::default();
        (0..300)
            .filter(|id| id % 3 == 0)
            .for_each(|id| put(&mut table, id));

        (100..300)
            .rev()
            .for_each(|id| table.remove_last(hash_of(id), id));

        assert!((0..300).all(|id| contains(&table, id) == (id < 100 && id % 3 == 0)));
    }

    #[test]
    fn cleared_table_shrinks_to_the_size_of_the_last_block() {
        let mut table = Table::default();
        (0..10_000).for_each(|id| put(&mut table, id));
        table.clear();
        (0..10).for_each(|id| put(&mut table, id));

        table.clear();

        assert_eq!(table.slots.len(), SLOTS_MIN);
        assert!(!contains(&table, 3));
    }
}
