//! Which number has a hash: an open table of numbers that are given in order and taken back in reverse,
//! as a roll-back does. So taking one back is to empty its place: whatever may have been put behind it
//! came later, and is gone already.
//!
//! Keeps: at least half of the places are free, so every search ends.

/// Places of a table that is not empty.
const PLACES_MIN: usize = 64;

#[derive(Clone, Copy)]
struct Place {
    hash: u32,
    id: u32,
}

const FREE: Place = Place {
    hash: 0,
    id: u32::MAX,
};

/// What a search ends with.
pub enum Found {
    /// The number that was looked for.
    Id(u32),
    /// It is not there; here it belongs.
    Free(usize),
}

/// The numbers by their hash.
#[derive(Default)]
pub struct Table {
    places: Vec<Place>,
    taken: usize,
}

impl Table {
    /// The number with this hash for which `is_it` holds.
    #[inline]
    pub fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Found {
        let mask = self.places.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(place) = self.places.get(at) {
            if place.id == FREE.id {
                break;
            }
            if place.hash == hash && is_it(place.id) {
                return Found::Id(place.id);
            }
            at = (at + 1) & mask;
        }
        Found::Free(at)
    }

    /// Puts a number, higher than all before it, where [`Table::find`] said that it belongs.
    #[inline]
    pub fn put(&mut self, at: usize, hash: u32, id: u32) {
        if self.places.is_empty() {
            self.reset(PLACES_MIN);
            return self.put_anew(Place { hash, id });
        }
        if let Some(place) = self.places.get_mut(at) {
            *place = Place { hash, id };
            self.taken += 1;
        }
        if self.taken * 2 >= self.places.len() {
            self.grow();
        }
    }

    fn put_anew(&mut self, known: Place) {
        if let Found::Free(at) = self.find(known.hash, |_| false)
            && let Some(place) = self.places.get_mut(at)
        {
            *place = known;
            self.taken += 1;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let is_taken = |place: &Place| place.id != FREE.id;
        let mut taken: Vec<_> = self.places.iter().copied().filter(is_taken).collect();
        taken.sort_unstable_by_key(|place| place.id);
        self.reset(self.places.len() * 2);
        for place in taken {
            self.put_anew(place);
        }
    }

    /// Takes back the number put last; one that was never put is not there, and nothing happens.
    pub fn take_back(&mut self, hash: u32, id: u32) {
        let mask = self.places.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(place) = self.places.get_mut(at) {
            if place.id == id {
                *place = FREE;
                self.taken -= 1;
            }
            if place.id == FREE.id {
                break;
            }
            at = (at + 1) & mask;
        }
    }

    /// Forgets everything. Stays as large as it had to be, so that the next block finds it so.
    pub fn clear(&mut self) {
        let places = (self.taken * 4).next_power_of_two().max(PLACES_MIN);
        self.reset(places.min(self.places.len()));
    }

    fn reset(&mut self, places: usize) {
        self.places.clear();
        self.places.resize(places, FREE);
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers share a few hashes.
    fn hash_of(id: u32) -> u32 {
        id % 5
    }

    fn put(table: &mut Table, id: u32) {
        let Found::Free(at) = table.find(hash_of(id), |known| known == id) else {
            panic!("{id} is there already");
        };
        table.put(at, hash_of(id), id);
    }

    fn knows(table: &Table, id: u32) -> bool {
        matches!(table.find(hash_of(id), |known| known == id), Found::Id(_))
    }

    #[test]
    fn numbers_that_collide_are_all_found_however_far_the_table_has_grown() {
        let mut table = Table::default();

        (0..500).for_each(|id| put(&mut table, id));

        assert!((0..500).all(|id| knows(&table, id)));
        assert!(!knows(&table, 500));
    }

    #[test]
    fn numbers_taken_back_in_reverse_are_gone_and_leave_the_others_where_they_are() {
        let mut table = Table::default();
        (0..200).for_each(|id| put(&mut table, id));

        (70..200)
            .rev()
            .for_each(|id| table.take_back(hash_of(id), id));

        assert!((0..70).all(|id| knows(&table, id)));
        assert!(!(70..200).any(|id| knows(&table, id)));
    }

    #[test]
    fn numbers_that_were_left_out_are_not_known_and_can_be_taken_back_all_the_same() {
        let mut table = Table::default();
        (0..300)
            .filter(|id| id % 3 == 0)
            .for_each(|id| put(&mut table, id));

        (100..300)
            .rev()
            .for_each(|id| table.take_back(hash_of(id), id));

        assert!((0..300).all(|id| knows(&table, id) == (id < 100 && id % 3 == 0)));
    }

    #[test]
    fn a_cleared_table_shrinks_to_what_the_last_block_needed() {
        let mut table = Table::default();
        (0..10_000).for_each(|id| put(&mut table, id));
        table.clear();
        (0..10).for_each(|id| put(&mut table, id));

        table.clear();

        assert_eq!(table.places.len(), PLACES_MIN);
        assert!(!knows(&table, 3));
    }
}
