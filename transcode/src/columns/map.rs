//! Attribute maps: two dictionaries and, per map, a stretch of (key, value) numbers.
//!
//! ```text
//! keys:    http.method  url.path …        values:  GET  /a  /b …
//! key_ids:   0 1 │ 0 1 │ …                value_ids: 0 1 │ 0 2 │ …       ends: 2 4 …
//! ```
//!
//! Senders repeat themselves: after the same key comes the same next key, and often with the same
//! value as last time. Both guesses are one `memcmp`; only what differs is hashed. A guess is never
//! trusted, so it may be stale after a roll-back.

use super::dictionary::{Dictionary, id_from};
use crate::resolve::{NO_ROLE, RoleId, Roles};
use crate::tally::Tally;

/// What is remembered of a key.
#[derive(Clone, Copy)]
struct Habit {
    /// The key that came after it last time.
    follower: u32,
    /// The value it had last time.
    value: u32,
    /// The map that has it already.
    map: u64,
    /// Where in that map it lies.
    position: usize,
    /// What it means to us.
    role: RoleId,
}

/// Where a map column stands.
#[derive(Clone, Copy, Default)]
pub struct MapMark {
    keys: usize,
    values: usize,
    entries: usize,
    maps: usize,
}

/// One attribute map a row (or a resource, scope, event, link).
#[derive(Default)]
pub struct MapColumn {
    /// The distinct keys.
    pub keys: Dictionary,
    /// The distinct values.
    pub values: Dictionary,
    /// The key numbers of all maps, one after the other.
    pub key_ids: Vec<u32>,
    /// The value numbers of all maps, one after the other.
    pub value_ids: Vec<u32>,
    /// Where each map ends.
    pub ends: Vec<u64>,
    /// Entries of the open map whose key has a role: the role and the entry's position.
    pub noted: Vec<(RoleId, usize)>,
    habits: Vec<Habit>,
    opened: u64,
    start: usize,
    last_key: u32,
}

impl MapColumn {
    /// Begins a map.
    #[inline]
    pub fn open(&mut self) {
        self.opened += 1;
        self.start = self.key_ids.len();
        self.noted.clear();
    }

    /// Ends the map.
    #[inline]
    pub fn close(&mut self) {
        self.ends.push(self.key_ids.len() as u64);
    }

    /// Entries of the open map.
    #[must_use]
    #[inline]
    pub fn open_len(&self) -> usize {
        self.key_ids.len() - self.start
    }

    /// Puts an attribute into the open map; a key that is there already gets the new value.
    #[inline]
    pub fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        roles: &Roles,
        bytes_max: usize,
        tally: &mut Tally,
    ) {
        let key_id = self.key_id(key, roles, bytes_max, tally);
        let value_id = self.value_id(key_id, value, bytes_max, tally);
        self.last_key = key_id;
        let (opened, position) = (self.opened, self.key_ids.len());
        let Some(habit) = self.habits.get_mut(key_id as usize) else {
            return;
        };
        habit.value = value_id;
        if habit.map == opened {
            if let Some(known) = self.value_ids.get_mut(habit.position) {
                *known = value_id;
            }
            return;
        }
        (habit.map, habit.position) = (opened, position);
        if habit.role != NO_ROLE {
            self.noted.push((habit.role, position));
        }
        self.key_ids.push(key_id);
        self.value_ids.push(value_id);
    }

    #[inline]
    fn key_id(&mut self, key: &[u8], roles: &Roles, bytes_max: usize, tally: &mut Tally) -> u32 {
        let guess = self
            .habits
            .get(self.last_key as usize)
            .map_or(0, |habit| habit.follower);
        if self.keys.is(guess, key) {
            return guess;
        }
        let id = self.keys.id_of(key, bytes_max, tally);
        if let Some(habit) = self.habits.get_mut(self.last_key as usize) {
            habit.follower = id;
        }
        if self.habits.len() < self.keys.len() {
            let role = roles.of(self.keys.text(id));
            self.habits.push(Habit {
                follower: id,
                value: 0,
                map: 0,
                position: 0,
                role,
            });
        }
        id
    }

    #[inline]
    fn value_id(&mut self, key_id: u32, value: &[u8], bytes_max: usize, tally: &mut Tally) -> u32 {
        let guess = self
            .habits
            .get(key_id as usize)
            .map_or(0, |habit| habit.value);
        if self.values.is(guess, value) {
            guess
        } else {
            self.values.id_of(value, bytes_max, tally)
        }
    }

    /// The value at a position, as text.
    #[must_use]
    pub fn value_at(&self, position: usize) -> &str {
        self.value_ids
            .get(position)
            .map_or("", |id| self.values.text(*id))
    }

    /// Bytes of all texts of the open map, as often as they occur.
    #[must_use]
    pub fn open_text_bytes(&self) -> usize {
        let keys = self
            .key_ids
            .get(self.start..)
            .unwrap_or_default()
            .iter()
            .map(|id| self.keys.text(*id).len());
        let values = self
            .value_ids
            .get(self.start..)
            .unwrap_or_default()
            .iter()
            .map(|id| self.values.text(*id).len());
        keys.chain(values).sum()
    }

    /// The entries of one map: key numbers and value numbers.
    #[must_use]
    pub fn entries(&self, map: u32) -> (&[u32], &[u32]) {
        let end_of = |map: usize| {
            self.ends
                .get(map)
                .map_or(0, |end| usize::try_from(*end).unwrap_or_default())
        };
        let map = map as usize;
        let range = map.checked_sub(1).map_or(0, end_of)..end_of(map);
        (
            self.key_ids.get(range.clone()).unwrap_or_default(),
            self.value_ids.get(range).unwrap_or_default(),
        )
    }

    /// Where the column stands.
    #[must_use]
    #[inline]
    pub fn mark(&self) -> MapMark {
        MapMark {
            keys: self.keys.len(),
            values: self.values.len(),
            entries: self.key_ids.len(),
            maps: self.ends.len(),
        }
    }

    /// Back to where the column stood.
    pub fn truncate(&mut self, mark: MapMark) {
        self.keys.truncate(mark.keys);
        self.values.truncate(mark.values);
        self.habits.truncate(mark.keys);
        self.key_ids.truncate(mark.entries);
        self.value_ids.truncate(mark.entries);
        self.ends.truncate(mark.maps);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.truncate(MapMark::default());
        self.keys.clear();
        self.values.clear();
    }
}

/// Attribute maps that hold for whole stretches of rows.
#[derive(Default)]
pub struct MapRuns {
    /// The maps, one for each resource or scope.
    pub maps: MapColumn,
    /// Which map holds where.
    pub runs: super::text::Runs,
}

impl MapRuns {
    /// The map closed last holds for `rows` rows.
    pub fn push(&mut self, rows: u32) {
        let map = id_from(self.maps.ends.len()).saturating_sub(1);
        self.runs.push(map, rows);
    }

    /// Where the column stands.
    #[must_use]
    pub fn mark(&self) -> (MapMark, (usize, u32)) {
        (self.maps.mark(), self.runs.mark())
    }

    /// Back to where the column stood.
    pub fn truncate(&mut self, (maps, runs): (MapMark, (usize, u32))) {
        self.maps.truncate(maps);
        self.runs.truncate(runs);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.maps.clear();
        self.runs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_all(column: &mut MapColumn, attributes: &[(&str, &str)]) {
        let (roles, mut tally) = (Roles::default(), Tally::default());
        column.open();
        for (key, value) in attributes {
            column.put(key.as_bytes(), value.as_bytes(), &roles, 100, &mut tally);
        }
        column.close();
    }

    fn read(column: &MapColumn, map: u32) -> Vec<(String, String)> {
        let (keys, values) = column.entries(map);
        let text = |(key, value): (&u32, &u32)| {
            (
                column.keys.text(*key).to_owned(),
                column.values.text(*value).to_owned(),
            )
        };
        keys.iter().zip(values).map(text).collect()
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn maps_are_read_back_in_arrival_order() {
        let mut column = MapColumn::default();

        put_all(&mut column, &[("a", "1"), ("b", "2")]);
        put_all(&mut column, &[("b", "2"), ("a", "3"), ("c", "1")]);
        put_all(&mut column, &[]);

        assert_eq!(read(&column, 0), owned(&[("a", "1"), ("b", "2")]));
        assert_eq!(
            read(&column, 1),
            owned(&[("b", "2"), ("a", "3"), ("c", "1")])
        );
        assert_eq!(read(&column, 2), owned(&[]));
    }

    #[test]
    fn of_duplicate_keys_the_last_value_wins_at_the_first_place() {
        let mut column = MapColumn::default();

        put_all(&mut column, &[("a", "1"), ("b", "2"), ("a", "3")]);

        assert_eq!(read(&column, 0), owned(&[("a", "3"), ("b", "2")]));
    }

    #[test]
    fn guesses_that_went_stale_in_a_roll_back_are_not_believed() {
        let mut column = MapColumn::default();
        put_all(&mut column, &[("a", "1")]);
        let mark = column.mark();
        put_all(&mut column, &[("a", "gone"), ("gone", "x")]);

        column.truncate(mark);
        put_all(&mut column, &[("a", "new"), ("other", "x"), ("gone", "y")]);

        assert_eq!(
            read(&column, 1),
            owned(&[("a", "new"), ("other", "x"), ("gone", "y")])
        );
        assert_eq!(
            column.keys.texts().collect::<Vec<_>>(),
            ["a", "other", "gone"]
        );
    }

    #[test]
    fn a_roll_back_inside_a_map_forgets_that_the_key_was_there() {
        let mut column = MapColumn::default();
        put_all(&mut column, &[("a", "1")]);
        let mark = column.mark();
        put_all(&mut column, &[("a", "2")]);

        column.truncate(mark);
        put_all(&mut column, &[("a", "3")]);

        assert_eq!(read(&column, 1), owned(&[("a", "3")]));
    }
}
