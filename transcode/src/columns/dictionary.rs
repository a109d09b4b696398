//! Dictionary of distinct strings. The id of a string is its index, in order of first appearance.
//!
//! ```text
//! wire:     3 G E T 4 P O S T …      one arena in the format of a block: length varint, text
//! entries:  1..4    5..9             the position of each string
//! ```
//!
//! Senders repeat strings: a recently seen string costs one comparison, and only other strings are hashed. A string
//! that is expected to be new is appended without a lookup; at worst a string then has two ids.
//!
//! Invariant: every entry is valid UTF-8, checked on insertion. A raw string that is not valid never equals
//! an entry, so it is checked (and warned about) each time.
//! Never: uses a fixed hash seed, which would let senders choose colliding strings.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

use super::clean::clean;
use super::slots::{SLOTS, bytes_equal, text_slot};
use super::table::{Lookup, Table};
use crate::put;
use crate::tally::Tally;

/// An arena larger than this is freed between commits.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Position of a string, and its serial number among all strings that this dictionary ever held.
#[derive(Clone, Copy)]
struct Entry {
    start: usize,
    end: usize,
    serial: u64,
}

/// A growing set of strings, each with its id.
#[derive(Default)]
pub struct Dictionary {
    wire: Vec<u8>,
    entries: Vec<Entry>,
    table: Table,
    /// Id of the string last seen in each cache slot. Every use compares the string, so an id may be stale.
    recent_ids: Vec<u32>,
    last_serial: u64,
    seed: RandomState,
}

impl Dictionary {
    /// Returns the number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no strings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all strings in the format of a block, each preceded by its length.
    #[must_use]
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// Returns the string with this id; empty if there is none.
    #[must_use]
    #[inline]
    pub fn bytes(&self, id: u32) -> &[u8] {
        let stored_bytes = |entry: &Entry| self.wire.get(entry.start..entry.end);
        self.entries
            .get(id as usize)
            .and_then(stored_bytes)
            .unwrap_or_default()
    }

    /// Returns the string with this id; empty if there is none.
    #[must_use]
    pub fn text(&self, id: u32) -> &str {
        std::str::from_utf8(self.bytes(id)).unwrap_or_default()
    }

    /// Returns whether the string with this id equals `raw`; false if there is none.
    #[must_use]
    #[inline]
    pub fn is(&self, id: u32, raw: &[u8]) -> bool {
        self.entries.get(id as usize).is_some_and(|entry| {
            let known = self.wire.get(entry.start..entry.end);
            known.is_some_and(|known| bytes_equal(known, raw))
        })
    }

    /// Returns the serial number of the string with this id. Ids are reused after a roll-back, serial numbers are not.
    #[must_use]
    pub fn serial(&self, id: u32) -> u64 {
        self.entries
            .get(id as usize)
            .map_or(0, |entry| entry.serial)
    }

    /// Returns the length of the string with this id if its serial number is `serial`.
    #[must_use]
    #[inline]
    pub fn text_bytes(&self, id: u32, serial: u64) -> Option<usize> {
        let entry = self.entries.get(id as usize)?;
        (entry.serial == serial).then_some(entry.end - entry.start)
    }

    /// Returns the id of a raw string. Sanitises and adds the string if it is new.
    #[inline]
    pub fn id_of(&mut self, raw: &[u8], bytes_max: usize, tally: &mut Tally) -> u32 {
        let slot = text_slot(raw);
        // After a roll-back the id may belong to another string or to none, so the bytes are compared.
        if let Some(&recent_id) = self.recent_ids.get(slot)
            && self.is(recent_id, raw)
        {
            return recent_id;
        }
        let id = self.id_of_rare(raw, bytes_max, tally);
        // Allocates the cache on first use; does nothing later.
        self.recent_ids.resize(SLOTS, 0);
        if let Some(recent_id) = self.recent_ids.get_mut(slot) {
            *recent_id = id;
        }
        id
    }

    /// Like [`Self::id_of`], for a string that is probably not in the cache of recent strings.
    #[inline(never)]
    pub fn id_of_rare(&mut self, raw: &[u8], bytes_max: usize, tally: &mut Tally) -> u32 {
        let hash = hash(&self.seed, raw);
        match self.table.find(hash, |id| self.is(id, raw)) {
            Lookup::Id(id) => id,
            Lookup::Free(at) if raw.len() <= bytes_max && is_utf8(raw) => self.add(at, hash, raw),
            // looked up again, because the sanitised text may be in the dictionary already
            Lookup::Free(_) => self.id_of_text(&clean(raw, bytes_max, tally)),
        }
    }

    /// Appends a string that is expected to be new, without a lookup. Later lookups do not find it either.
    #[inline]
    pub fn id_of_new(&mut self, raw: &[u8], bytes_max: usize, tally: &mut Tally) -> u32 {
        if raw.len() <= bytes_max && is_utf8(raw) {
            self.append(raw)
        } else {
            self.id_of_rare(raw, bytes_max, tally)
        }
    }

    /// Returns the id of a string that needs no sanitising.
    pub fn id_of_text(&mut self, text: &str) -> u32 {
        let raw = text.as_bytes();
        let hash = hash(&self.seed, raw);
        match self.table.find(hash, |id| self.is(id, raw)) {
            Lookup::Id(id) => id,
            Lookup::Free(at) => self.add(at, hash, raw),
        }
    }

    fn add(&mut self, at: usize, hash: u32, text: &[u8]) -> u32 {
        let id = self.append(text);
        self.table.put(at, hash, id);
        id
    }

    fn append(&mut self, text: &[u8]) -> u32 {
        let id = id_from(self.len());
        put::varint(&mut self.wire, text.len() as u64);
        let start = self.wire.len();
        self.wire.extend_from_slice(text);
        self.last_serial += 1;
        self.entries.push(Entry {
            start,
            end: self.wire.len(),
            serial: self.last_serial,
        });
        id
    }

    /// Removes all strings with ids from `len` on.
    pub fn truncate(&mut self, len: usize) {
        // In reverse order of insertion, as the table requires.
        for id in (len..self.len()).rev() {
            let id = id_from(id);
            // Strings added by `id_of_new` are not in the table, which ignores their removal.
            let removed_hash = hash(&self.seed, self.bytes(id));
            self.table.remove_last(removed_hash, id);
        }
        self.entries.truncate(len);
        self.wire
            .truncate(self.entries.last().map_or(0, |last| last.end));
    }

    /// Removes all strings. Keeps the memory unless it is too large.
    pub fn clear(&mut self) {
        let entries_max = KEPT_BYTES_MAX / size_of::<Entry>();
        if self.wire.capacity() > KEPT_BYTES_MAX || self.entries.capacity() > entries_max {
            // one huge delivery must not hold its memory as long as the process runs
            *self = Self {
                // Serial numbers continue, so that a cache never mistakes a new string for an old string.
                last_serial: self.last_serial,
                ..Self::default()
            };
        } else {
            self.wire.clear();
            self.entries.clear();
            self.table.clear();
        }
    }
}

/// Returns whether the bytes are UTF-8. Most strings are ASCII, which is checked first because it is fastest.
#[inline]
fn is_utf8(raw: &[u8]) -> bool {
    raw.is_ascii() || simdutf8::basic::from_utf8(raw).is_ok()
}

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "32 bits of the hash suffice and halve the table"
)]
fn hash(seed: &RandomState, raw: &[u8]) -> u32 {
    let mut hasher = seed.build_hasher();
    hasher.write(raw);
    hasher.finish() as u32
}

/// Converts an index to an id. A dictionary never holds 2^32 strings.
#[must_use]
#[inline]
pub fn id_from(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

#[cfg(test)]
impl Dictionary {
    /// Iterates over all strings in the order of their ids.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|id| self.text(id_from(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(dictionary: &mut Dictionary, raws: &[&[u8]]) -> (Vec<u32>, Vec<(&'static str, u32)>) {
        let mut tally = Tally::default();
        let ids = raws
            .iter()
            .map(|raw| dictionary.id_of(raw, 100, &mut tally))
            .collect();
        (ids, tally.reasons())
    }

    #[test]
    fn text_keeps_its_number() {
        let mut dictionary = Dictionary::default();

        let (numbers, _) = ids(&mut dictionary, &[b"GET", b"", b"GET", b"POST", b""]);

        assert_eq!(numbers, [0, 1, 0, 2, 1]);
        assert_eq!(dictionary.texts().collect::<Vec<_>>(), ["GET", "", "POST"]);
    }

    #[test]
    fn every_occurrence_of_invalid_utf8_is_warned_about() {
        let mut dictionary = Dictionary::default();

        let (numbers, reasons) = ids(&mut dictionary, &[b"\xFF", b"\xFF", "\u{FFFD}".as_bytes()]);

        assert_eq!(numbers, [0, 0, 0]);
        assert_eq!(reasons, [("invalid_utf8", 2)]);
    }

    #[test]
    fn text_expected_to_be_new_is_stored_even_if_it_is_known() {
        let (mut dictionary, mut tally) = (Dictionary::default(), Tally::default());
        ids(&mut dictionary, &[b"known"]);

        let raws: [&[u8]; 4] = [b"known", b"other", b"\xFF", b"too long"];
        let new = raws.map(|raw| dictionary.id_of_new(raw, 5, &mut tally));

        assert_eq!(new, [1, 2, 3, 4]);
        assert_eq!(
            dictionary.texts().collect::<Vec<_>>(),
            ["known", "known", "other", "\u{FFFD}", "too l"]
        );
        assert_eq!(tally.reasons(), [("invalid_utf8", 1), ("text_cut", 1)]);
        assert_eq!(ids(&mut dictionary, &[b"known", b"other"]).0, [0, 5]);
    }

    #[test]
    fn texts_appended_without_a_lookup_are_rolled_back() {
        let (mut dictionary, mut tally) = (Dictionary::default(), Tally::default());
        ids(&mut dictionary, &[b"a"]);
        dictionary.id_of_new(b"new", 9, &mut tally);
        ids(&mut dictionary, &[b"b"]);
        dictionary.id_of_new(b"b", 9, &mut tally);

        dictionary.truncate(1);

        assert_eq!(ids(&mut dictionary, &[b"b", b"a", b"new"]).0, [1, 0, 2]);
    }

    #[test]
    fn truncated_texts_are_removed_and_their_numbers_reused() {
        let mut dictionary = Dictionary::default();
        ids(&mut dictionary, &[b"a", b"b", b"c"]);

        dictionary.truncate(1);

        assert_eq!(ids(&mut dictionary, &[b"c", b"b", b"a"]).0, [1, 2, 0]);
    }

    #[test]
    fn cleared_dictionary_numbers_from_zero() {
        let mut dictionary = Dictionary::default();
        ids(&mut dictionary, &[b"a", &[b'x'; 99]]);

        dictionary.clear();

        assert!(dictionary.is_empty());
        assert_eq!(ids(&mut dictionary, &[b"x"]).0, [0]);
    }
}
