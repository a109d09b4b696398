//! Distinct texts and their numbers, in order of first appearance.
//!
//! ```text
//! text:    G E T P O S T …      one arena
//! bounds:  0     3       7      entry i lies between bounds i and i + 1
//! ```
//!
//! Keeps: every entry is valid UTF-8, checked when it came in; a raw text that is not valid never
//! equals an entry, so it is looked at (and warned about) each time it comes.
//! Never: a fixed hash seed, or senders could choose texts that collide.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::clean::clean;
use crate::tally::Tally;

/// An arena beyond this is given back between commits.
const KEPT_BYTES_MAX: usize = 8 << 20;

#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    id: u32,
}

impl Slot {
    /// The table looks at the lowest and the highest bits.
    fn spread(self) -> u64 {
        (u64::from(self.hash) << 32) | u64::from(self.hash)
    }
}

/// A growing set of texts, each with its number.
pub struct Dictionary {
    text: String,
    bounds: Vec<usize>,
    table: HashTable<Slot>,
    seed: RandomState,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            text: String::new(),
            bounds: vec![0],
            table: HashTable::new(),
            seed: RandomState::default(),
        }
    }
}

impl Dictionary {
    /// How many texts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn range(&self, id: u32) -> Option<(usize, usize)> {
        let id = id as usize;
        match self.bounds.get(id..id.wrapping_add(2)) {
            Some(&[start, end]) => Some((start, end)),
            _ => None,
        }
    }

    /// The text with this number; empty if there is none.
    #[must_use]
    #[inline]
    pub fn text(&self, id: u32) -> &str {
        self.range(id)
            .and_then(|(start, end)| self.text.get(start..end))
            .unwrap_or_default()
    }

    /// Whether the text with this number is exactly `raw`; false if there is none.
    #[must_use]
    #[inline]
    pub fn is(&self, id: u32, raw: &[u8]) -> bool {
        self.range(id).is_some_and(|(start, end)| {
            end - start == raw.len() && self.text.as_bytes().get(start..end) == Some(raw)
        })
    }

    /// All texts, in the order of their numbers.
    #[must_use]
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|id| self.text(id_from(id)))
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "half of the hash is enough, and half the size"
    )]
    fn hash(&self, raw: &[u8]) -> u32 {
        let mut hasher = self.seed.build_hasher();
        hasher.write(raw);
        hasher.finish() as u32
    }

    /// The number of a text as it came off the wire, cleaned first if it is new.
    #[inline]
    pub fn id_of(&mut self, raw: &[u8], bytes_max: usize, tally: &mut Tally) -> u32 {
        match self.find(raw) {
            Some(id) => id,
            None => self.id_of_new(raw, bytes_max, tally),
        }
    }

    /// The number of a text that is known to be clean.
    pub fn id_of_text(&mut self, text: &str) -> u32 {
        match self.find(text.as_bytes()) {
            Some(id) => id,
            None => self.insert(text),
        }
    }

    #[inline]
    fn find(&self, raw: &[u8]) -> Option<u32> {
        let wanted = Slot {
            hash: self.hash(raw),
            id: 0,
        };
        self.table
            .find(wanted.spread(), |slot| {
                slot.hash == wanted.hash && self.is(slot.id, raw)
            })
            .map(|slot| slot.id)
    }

    fn id_of_new(&mut self, raw: &[u8], bytes_max: usize, tally: &mut Tally) -> u32 {
        let text = clean(raw, bytes_max, tally);
        if text.as_bytes() == raw {
            self.insert(&text)
        } else {
            self.id_of_text(&text)
        }
    }

    fn insert(&mut self, text: &str) -> u32 {
        let slot = Slot {
            hash: self.hash(text.as_bytes()),
            id: id_from(self.len()),
        };
        self.text.push_str(text);
        self.bounds.push(self.text.len());
        self.table
            .insert_unique(slot.spread(), slot, |slot| slot.spread());
        slot.id
    }

    /// Forgets all texts from number `len` on.
    pub fn truncate(&mut self, len: usize) {
        for id in len..self.len() {
            let id = id_from(id);
            let gone = Slot {
                hash: self.hash(self.text(id).as_bytes()),
                id,
            };
            if let Ok(entry) = self.table.find_entry(gone.spread(), |slot| slot.id == id) {
                entry.remove();
            }
        }
        self.bounds.truncate(len + 1);
        self.text
            .truncate(self.bounds.last().copied().unwrap_or_default());
    }

    /// Forgets everything; keeps the memory unless it is out of proportion.
    pub fn clear(&mut self) {
        if self.text.capacity() > KEPT_BYTES_MAX || self.bounds.capacity() > KEPT_BYTES_MAX / 8 {
            *self = Self::default();
        } else {
            self.text.clear();
            self.bounds.truncate(1);
            self.table.clear();
        }
    }
}

/// A position as a number; there are never as many as four thousand million.
#[must_use]
#[inline]
pub fn id_from(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
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
    fn a_text_keeps_its_number() {
        let mut dictionary = Dictionary::default();

        let (numbers, _) = ids(&mut dictionary, &[b"GET", b"", b"GET", b"POST", b""]);

        assert_eq!(numbers, [0, 1, 0, 2, 1]);
        assert_eq!(dictionary.texts().collect::<Vec<_>>(), ["GET", "", "POST"]);
    }

    #[test]
    fn a_text_that_is_not_utf8_is_warned_about_each_time_it_comes() {
        let mut dictionary = Dictionary::default();

        let (numbers, reasons) = ids(&mut dictionary, &[b"\xFF", b"\xFF", "\u{FFFD}".as_bytes()]);

        assert_eq!(numbers, [0, 0, 0]);
        assert_eq!(reasons, [("invalid_utf8", 2)]);
    }

    #[test]
    fn what_was_truncated_is_forgotten_and_its_numbers_are_given_again() {
        let mut dictionary = Dictionary::default();
        ids(&mut dictionary, &[b"a", b"b", b"c"]);

        dictionary.truncate(1);

        assert_eq!(ids(&mut dictionary, &[b"c", b"b", b"a"]).0, [1, 2, 0]);
    }

    #[test]
    fn a_cleared_dictionary_starts_anew() {
        let mut dictionary = Dictionary::default();
        ids(&mut dictionary, &[b"a", &[b'x'; 99]]);

        dictionary.clear();

        assert!(dictionary.is_empty());
        assert_eq!(ids(&mut dictionary, &[b"x"]).0, [0]);
    }
}
