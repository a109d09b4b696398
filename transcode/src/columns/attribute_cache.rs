//! Cache of attributes, keyed by their encoded bytes: one comparison recognises a repeated attribute before
//! it is parsed.
//!
//! Invariant: a roll-back removes the entries that refer to removed strings. The cache logs its writes for this purpose.

use super::slots::{SLOTS, bytes_equal, number_slot, text_slot};

/// Attributes longer than this are not cached.
const CACHED_BYTES_MAX: usize = 255;
/// The cache is emptied when its attributes exceed this size.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Stored form of an attribute: the dictionary ids of its key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredAttribute {
    /// Dictionary id of the key.
    pub key_id: u32,
    /// Dictionary id of the value.
    pub value_id: u32,
    /// Combined length of both strings.
    pub text_bytes: u16,
}

/// Cached attribute. Small, so that all slots stay in the processor's first-level cache.
#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    bytes: u16,
    text_bytes: u16,
    key_id: u32,
    value_id: u32,
}

/// Unused slot. Its position is impossible, so that no attribute matches it, not even an empty attribute.
const EMPTY: Entry = Entry {
    start: u32::MAX,
    bytes: 0,
    text_bytes: 0,
    key_id: 0,
    value_id: 0,
};

/// The cache.
#[derive(Default)]
pub struct AttributeCache {
    known: Vec<Entry>,
    raw: Vec<u8>,
    /// The slots in the order they were written.
    log: Vec<usize>,
}

impl AttributeCache {
    /// Returns the stored form of an attribute with these bytes, if it is cached.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for every attribute, in each decoder")]
    pub fn find(&self, encoded: &[u8]) -> Option<StoredAttribute> {
        let known = self.known.get(attribute_slot(encoded))?;
        let start = known.start as usize;
        // `None` for an unused slot, whose position lies beyond the end of `raw`.
        let raw = self.raw.get(start..start + usize::from(known.bytes))?;
        bytes_equal(raw, encoded).then_some(StoredAttribute {
            key_id: known.key_id,
            value_id: known.value_id,
            text_bytes: known.text_bytes,
        })
    }

    /// Caches the stored form of an attribute with these bytes.
    pub fn remember(&mut self, encoded: &[u8], stored: StoredAttribute) {
        if encoded.len() > CACHED_BYTES_MAX {
            return;
        }
        // Empties the whole cache: removing single entries would leave holes in `raw`.
        if self.raw.len() > KEPT_BYTES_MAX || self.known.is_empty() {
            self.known.clear();
            self.known.resize(SLOTS, EMPTY);
            self.raw.clear();
        }
        let slot = attribute_slot(encoded);
        if let Some(known) = self.known.get_mut(slot)
            && let (Ok(start), Ok(bytes)) = (self.raw.len().try_into(), encoded.len().try_into())
        {
            *known = Entry {
                start,
                bytes,
                text_bytes: stored.text_bytes,
                key_id: stored.key_id,
                value_id: stored.value_id,
            };
            self.raw.extend_from_slice(encoded);
            self.log.push(slot);
        }
    }

    /// Returns the number of writes so far.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.log.len()
    }

    /// Removes the entries written after this mark.
    pub fn truncate(&mut self, mark: usize) {
        // An entry that a removed entry had displaced is lost too, which costs one parse later.
        while self.log.len() > mark {
            let slot = self.log.pop();
            // The bytes stay in `raw` until it is emptied: without an entry nothing refers to them.
            if let Some(known) = slot.and_then(|slot| self.known.get_mut(slot)) {
                *known = EMPTY;
            }
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        // Costs one step per entry written, not one per slot: most groups are small.
        self.truncate(0);
        self.raw.clear();
    }
}

/// Returns the slot of an encoded attribute. The end alone would not distinguish keys of the same length with equal
/// values; in both formats these eight bytes cover part of the key.
#[inline]
fn attribute_slot(encoded: &[u8]) -> usize {
    let key = encoded.get(8..16).and_then(|key| key.first_chunk());
    match (key, encoded.last_chunk()) {
        (Some(key), Some(end)) => {
            let key = u64::from_le_bytes(*key).rotate_left(u32::BITS);
            number_slot(key ^ u64::from_le_bytes(*end) ^ (encoded.len() as u64) << 56)
        }
        _ => text_slot(encoded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(value_id: u32) -> StoredAttribute {
        StoredAttribute {
            value_id,
            ..StoredAttribute::default()
        }
    }

    #[test]
    fn only_identical_bytes_are_recognised() {
        let mut attribute_cache = AttributeCache::default();
        attribute_cache.remember(b"http.route: /search", stored(1));

        assert_eq!(
            attribute_cache.find(b"http.route: /search"),
            Some(stored(1))
        );
        assert_eq!(attribute_cache.find(b"HTTP.route: /search"), None);
        assert_eq!(attribute_cache.find(b"/search"), None);
    }

    #[test]
    fn keys_of_the_same_length_and_value_use_different_slots() {
        let mut attribute_cache = AttributeCache::default();
        let (first, second) = (br#"{"key":"a","value":1}"#, br#"{"key":"b","value":1}"#);

        attribute_cache.remember(first, stored(1));
        attribute_cache.remember(second, stored(2));

        assert_eq!(attribute_cache.find(first), Some(stored(1)));
        assert_eq!(attribute_cache.find(second), Some(stored(2)));
    }

    #[test]
    fn truncate_removes_exactly_the_entries_since_the_mark() {
        let mut attribute_cache = AttributeCache::default();
        attribute_cache.remember(b"remembered before", stored(1));
        let mark = attribute_cache.mark();
        attribute_cache.remember(b"remembered since", stored(2));

        attribute_cache.truncate(mark);

        assert_eq!(attribute_cache.find(b"remembered before"), Some(stored(1)));
        assert_eq!(attribute_cache.find(b"remembered since"), None);
    }

    #[test]
    fn cache_size_is_bounded() {
        let mut attribute_cache = AttributeCache::default();

        for id in 0..100_000 {
            attribute_cache.remember(format!("attribute {id}").as_bytes(), stored(id));
        }
        attribute_cache.remember(&[b'x'; CACHED_BYTES_MAX + 1], stored(7));

        assert!(attribute_cache.raw.len() <= KEPT_BYTES_MAX + CACHED_BYTES_MAX);
        assert_eq!(attribute_cache.find(&[b'x'; CACHED_BYTES_MAX + 1]), None);
        assert_eq!(
            attribute_cache.find(b"attribute 99999"),
            Some(stored(99_999))
        );
    }
}
