//! Cache of attributes by their bytes as sent: a repeated attribute is recognised by one comparison, before
//! it is parsed.
//!
//! Keeps a log of its writes: a roll-back removes the entries that refer to removed texts.

use super::slots::{SLOTS, bytes_equal, number_slot, text_slot};

/// Longer spellings are not cached.
const SPELLING_BYTES_MAX: usize = 255;
/// The cache is emptied when its spellings exceed this size.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// The stored form of a spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meaning {
    /// The key's number.
    pub key_id: u32,
    /// The value's number.
    pub value_id: u32,
    /// Length of both texts together.
    pub text_bytes: u16,
}

/// Kept small, so that all slots stay in the processor's first-level cache.
#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    bytes: u16,
    text_bytes: u16,
    key_id: u32,
    value_id: u32,
}

/// Has an impossible position, so that no spelling matches it, not even the empty one.
const EMPTY: Entry = Entry {
    start: u32::MAX,
    bytes: 0,
    text_bytes: 0,
    key_id: 0,
    value_id: 0,
};

/// The cache.
#[derive(Default)]
pub struct Spellings {
    known: Vec<Entry>,
    raw: Vec<u8>,
    /// The slots in the order they were written.
    log: Vec<usize>,
}

impl Spellings {
    /// Returns the stored form of this spelling if it is cached.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for every attribute, in each decoder")]
    pub fn find(&self, spelling: &[u8]) -> Option<Meaning> {
        let known = self.known.get(spelling_slot(spelling))?;
        let start = known.start as usize;
        let raw = self.raw.get(start..start + usize::from(known.bytes))?;
        bytes_equal(raw, spelling).then_some(Meaning {
            key_id: known.key_id,
            value_id: known.value_id,
            text_bytes: known.text_bytes,
        })
    }

    /// Caches the stored form of a spelling.
    pub fn remember(&mut self, spelling: &[u8], meaning: Meaning) {
        if spelling.len() > SPELLING_BYTES_MAX {
            return;
        }
        if self.raw.len() > KEPT_BYTES_MAX || self.known.is_empty() {
            self.known.clear();
            self.known.resize(SLOTS, EMPTY);
            self.raw.clear();
        }
        let slot = spelling_slot(spelling);
        if let Some(known) = self.known.get_mut(slot)
            && let (Ok(start), Ok(bytes)) = (self.raw.len().try_into(), spelling.len().try_into())
        {
            *known = Entry {
                start,
                bytes,
                text_bytes: meaning.text_bytes,
                key_id: meaning.key_id,
                value_id: meaning.value_id,
            };
            self.raw.extend_from_slice(spelling);
            self.log.push(slot);
        }
    }

    /// Returns the number of writes so far.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.log.len()
    }

    /// Removes the entries written since.
    pub fn truncate(&mut self, mark: usize) {
        while self.log.len() > mark {
            let slot = self.log.pop();
            if let Some(known) = slot.and_then(|slot| self.known.get_mut(slot)) {
                *known = EMPTY;
            }
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.truncate(0);
        self.raw.clear();
    }
}

/// Returns the slot of a spelling. The end alone would not distinguish keys of the same length with equal
/// values; in both formats these eight bytes cover part of the key.
#[inline]
fn spelling_slot(spelling: &[u8]) -> usize {
    let key = spelling.get(8..16).and_then(|key| key.first_chunk());
    match (key, spelling.last_chunk()) {
        (Some(key), Some(end)) => {
            let key = u64::from_le_bytes(*key).rotate_left(u32::BITS);
            number_slot(key ^ u64::from_le_bytes(*end) ^ (spelling.len() as u64) << 56)
        }
        _ => text_slot(spelling),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(value_id: u32) -> Meaning {
        Meaning {
            value_id,
            ..Meaning::default()
        }
    }

    #[test]
    fn only_identical_bytes_are_recognised() {
        let mut spellings = Spellings::default();
        spellings.remember(b"http.route: /search", meaning(1));

        assert_eq!(spellings.find(b"http.route: /search"), Some(meaning(1)));
        assert_eq!(spellings.find(b"HTTP.route: /search"), None);
        assert_eq!(spellings.find(b"/search"), None);
    }

    #[test]
    fn keys_of_the_same_length_and_value_use_different_slots() {
        let mut spellings = Spellings::default();
        let (first, second) = (br#"{"key":"a","value":1}"#, br#"{"key":"b","value":1}"#);

        spellings.remember(first, meaning(1));
        spellings.remember(second, meaning(2));

        assert_eq!(spellings.find(first), Some(meaning(1)));
        assert_eq!(spellings.find(second), Some(meaning(2)));
    }

    #[test]
    fn truncate_removes_exactly_the_entries_since_the_mark() {
        let mut spellings = Spellings::default();
        spellings.remember(b"remembered before", meaning(1));
        let mark = spellings.mark();
        spellings.remember(b"remembered since", meaning(2));

        spellings.truncate(mark);

        assert_eq!(spellings.find(b"remembered before"), Some(meaning(1)));
        assert_eq!(spellings.find(b"remembered since"), None);
    }

    #[test]
    fn cache_size_is_bounded() {
        let mut spellings = Spellings::default();

        for id in 0..100_000 {
            spellings.remember(format!("a spelling of {id}").as_bytes(), meaning(id));
        }
        spellings.remember(&[b'x'; SPELLING_BYTES_MAX + 1], meaning(7));

        assert!(spellings.raw.len() <= KEPT_BYTES_MAX + SPELLING_BYTES_MAX);
        assert_eq!(spellings.find(&[b'x'; SPELLING_BYTES_MAX + 1]), None);
        assert_eq!(
            spellings.find(b"a spelling of 99999"),
            Some(meaning(99_999))
        );
    }
}
