//! Column of attribute maps: a dictionary of keys, a dictionary of values and, per map, a range of (key, value) ids.
//!
//! ```text
//! keys:    http.method  url.path …        values:  GET  /a  /b …
//! key_ids:   0 1 │ 0 1 │ …                value_ids: 0 1 │ 0 2 │ …       ends: 2 4 …
//! ```
use super::attribute_cache::{AttributeCache, StoredAttribute};
use super::dictionary::Dictionary;
use super::numbers::Numbers;
use crate::resolve::{NO_ROLE, RoleId, Roles};
use crate::tally::Tally;
use crate::visit::Value;

/// State kept per distinct key.
#[derive(Clone, Copy)]
struct KeyState {
    /// The key that followed this key in the previous map.
    next_key: u32,
    /// The last map that contains this key.
    map: u64,
    /// The entry's position in that map.
    position: usize,
    /// The role of the key.
    role: RoleId,
    /// Number of consecutive new values.
    new_values: u32,
}

impl KeyState {
    /// Returns whether the next value is probably new too, as for ids and durations. Returns false for some values, so
    /// that a key whose values start to repeat is noticed.
    #[inline]
    fn expects_new(&self) -> bool {
        self.new_values >= NEW_VALUES_MIN && !self.new_values.is_multiple_of(NEW_VALUES_PER_LOOKUP)
    }
}

/// Number of consecutive new values after which the next value of a key is expected to be new too.
const NEW_VALUES_MIN: u32 = 8;
/// Every value after this many is looked up although it is expected to be new.
const NEW_VALUES_PER_LOOKUP: u32 = 16;

/// A position in a map column, to roll back to.
#[derive(Clone, Copy, Default)]
pub struct MapMark {
    keys: usize,
    values: usize,
    entries: usize,
    maps: usize,
    attribute_cache: usize,
}

/// One attribute map per row (or per resource, scope, event, link).
#[derive(Default)]
pub struct MapColumn {
    /// The distinct keys.
    pub keys: Dictionary,
    /// The distinct values.
    pub values: Dictionary,
    /// The key ids of all maps, concatenated.
    pub key_ids: Vec<u32>,
    /// The value ids of all maps, concatenated.
    pub value_ids: Vec<u32>,
    /// The end of each map in `key_ids` and `value_ids`.
    pub ends: Vec<u64>,
    /// Entries of the open map whose key has a role: role and position.
    pub role_entries: Vec<(RoleId, usize)>,
    key_states: Vec<KeyState>,
    numbers: Numbers,
    attribute_cache: AttributeCache,
    open_map_number: u64,
    start: usize,
    last_key: u32,
    last_value: u32,
    /// Number of distinct values before the last `put`.
    values_before: usize,
}

impl MapColumn {
    /// Begins a new map, to which the next attributes are added.
    #[inline]
    pub fn open(&mut self) {
        self.open_map_number += 1;
        self.start = self.key_ids.len();
        self.role_entries.clear();
    }

    /// Ends the open map.
    #[inline]
    pub fn close(&mut self) {
        self.ends.push(self.key_ids.len() as u64);
    }

    /// Returns the number of entries in the open map.
    #[must_use]
    #[inline]
    pub fn open_len(&self) -> usize {
        self.key_ids.len() - self.start
    }

    /// Adds an attribute to the open map, or replaces the value if the map already has the key. Returns the length of the
    /// value's stored text.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, for every attribute")]
    pub fn put(
        &mut self,
        key: &[u8],
        value: Value<'_>,
        roles: &Roles,
        bytes_max: usize,
        tally: &mut Tally,
    ) -> usize {
        // Keys are always looked up: a key with two ids would be two entries of the map.
        let key_id = self.key_id(key, roles, bytes_max, tally);
        // An id from here on belongs to a string that this call adds: the value is new.
        self.values_before = self.values.len();
        let state = self.key_states.get(key_id as usize);
        let is_new = state.is_some_and(KeyState::expects_new);
        let (numbers, values) = (&mut self.numbers, &mut self.values);
        let (value_id, text_bytes) = match value {
            Value::Text(text) => {
                let id = if is_new {
                    values.id_of_new(text, bytes_max, tally)
                } else {
                    values.id_of(text, bytes_max, tally)
                };
                (id, text.len())
            }
            // bypasses the cache of numbers, where it would evict a number that repeats
            Value::Number(number) if is_new => {
                let text = numbers.format(number);
                (values.id_of_new(text, bytes_max, tally), text.len())
            }
            Value::Number(number) => numbers.id_of(number, values, bytes_max, tally),
        };
        self.last_value = value_id;
        if let Some(state) = self.key_states.get_mut(key_id as usize) {
            let is_known = (value_id as usize) < self.values_before;
            state.new_values = if is_known {
                0
            } else {
                state.new_values.saturating_add(1)
            };
        }
        self.put_ids(key_id, value_id);
        text_bytes
    }

    /// Adds an attribute whose exact bytes were seen before. Returns the length of its strings, `None` if
    /// they are unknown.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, for every attribute")]
    pub fn put_repeated(&mut self, encoded: &[u8]) -> Option<usize> {
        let stored = self.attribute_cache.find(encoded)?;
        self.last_key = stored.key_id;
        self.put_ids(stored.key_id, stored.value_id);
        Some(usize::from(stored.text_bytes))
    }

    /// Remembers the bytes of the attribute put last, if its value is likely to repeat and was stored
    /// unchanged.
    #[inline]
    pub fn remember(&mut self, encoded: &[u8], key: &[u8], value: Value<'_>) {
        // A value that was stored before will probably repeat. A new value (an id, a duration) would only
        // evict other entries of the cache.
        if (self.last_value as usize) < self.values_before {
            self.remember_known(encoded, key, value);
        }
    }

    #[inline(never)]
    fn remember_known(&mut self, encoded: &[u8], key: &[u8], value: Value<'_>) {
        let (key_id, value_id) = (self.last_key, self.last_value);
        let value_bytes = self.values.bytes(value_id).len();
        // The attribute put last may be a different attribute: an attribute over the limit is dropped.
        let is_unchanged = match value {
            Value::Text(text) => self.values.is(value_id, text),
            Value::Number(number) => self.values.is(value_id, self.numbers.format(number)),
        };
        if is_unchanged
            && self.keys.is(key_id, key)
            && let Ok(text_bytes) = u16::try_from(key.len() + value_bytes)
        {
            let stored = StoredAttribute {
                key_id,
                value_id,
                text_bytes,
            };
            self.attribute_cache.remember(encoded, stored);
        }
    }

    #[inline]
    fn put_ids(&mut self, key_id: u32, value_id: u32) {
        let Some(state) = self.key_states.get_mut(key_id as usize) else {
            return;
        };
        // Comparing map numbers finds a duplicate key without resetting any state between maps.
        if state.map == self.open_map_number {
            if let Some(known) = self.value_ids.get_mut(state.position) {
                *known = value_id;
            }
            return;
        }
        (state.map, state.position) = (self.open_map_number, self.key_ids.len());
        if state.role != NO_ROLE {
            self.role_entries.push((state.role, state.position));
        }
        self.key_ids.push(key_id);
        self.value_ids.push(value_id);
    }

    #[inline]
    fn key_id(&mut self, key: &[u8], roles: &Roles, bytes_max: usize, tally: &mut Tally) -> u32 {
        // Attributes usually arrive in the same order, so the previous key predicts this one.
        let before = self.key_states.get(self.last_key as usize);
        let predicted = before.map_or(0, |before| before.next_key);
        let is_predicted = self.keys.is(predicted, key);
        self.last_key = if is_predicted {
            predicted
        } else {
            self.key_id_of_unexpected_key(key, roles, bytes_max, tally)
        };
        self.last_key
    }

    #[inline(never)]
    fn key_id_of_unexpected_key(
        &mut self,
        key: &[u8],
        roles: &Roles,
        bytes_max: usize,
        tally: &mut Tally,
    ) -> u32 {
        let id = self.keys.id_of(key, bytes_max, tally);
        if let Some(before) = self.key_states.get_mut(self.last_key as usize) {
            before.next_key = id;
        }
        if self.key_states.len() < self.keys.len() {
            self.key_states.push(KeyState {
                // A guess until a key follows this one; a wrong guess costs one comparison.
                next_key: id,
                // `open` numbers the maps from 1, so 0 is no map.
                map: 0,
                position: 0,
                // Looked up once per distinct key, not once per attribute.
                role: roles.of(self.keys.text(id)),
                new_values: 0,
            });
        }
        id
    }

    /// Returns the value at a position, as text.
    #[must_use]
    pub fn value_at(&self, position: usize) -> &str {
        self.value_ids
            .get(position)
            .map_or("", |id| self.values.text(*id))
    }

    /// Returns the text bytes of the open map; repeated strings count each time.
    #[must_use]
    pub fn open_text_bytes(&self) -> usize {
        let keys = self
            .key_ids
            .get(self.start..)
            .unwrap_or_default()
            .iter()
            .map(|id| self.keys.bytes(*id).len());
        let values = self
            .value_ids
            .get(self.start..)
            .unwrap_or_default()
            .iter()
            .map(|id| self.values.bytes(*id).len());
        keys.chain(values).sum()
    }

    /// Returns the entries of one map: key ids and value ids.
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

    /// Returns the current end of the column.
    #[must_use]
    #[inline]
    pub fn mark(&self) -> MapMark {
        MapMark {
            keys: self.keys.len(),
            values: self.values.len(),
            entries: self.key_ids.len(),
            maps: self.ends.len(),
            attribute_cache: self.attribute_cache.mark(),
        }
    }

    /// Truncates the column to an earlier mark.
    pub fn truncate(&mut self, mark: MapMark) {
        // Key states may still refer to a removed map. They have no effect, because the next map has a new number.
        self.keys.truncate(mark.keys);
        self.values.truncate(mark.values);
        self.key_states.truncate(mark.keys);
        self.key_ids.truncate(mark.entries);
        self.value_ids.truncate(mark.entries);
        self.ends.truncate(mark.maps);
        self.attribute_cache.truncate(mark.attribute_cache);
    }

    /// Removes all maps.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.key_states.clear();
        self.attribute_cache.clear();
        self.key_ids.clear();
        self.value_ids.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests;
