//! Attributes in the sender's own spelling: one that comes again byte for byte is known by one comparison,
//! before anything of it is read.
//!
//! Keeps a log of what it remembered when: a roll-back forgets what it learned of the texts that are gone.

use super::alike::{PLACES, alike, place};

/// Longer spellings are not remembered.
const SPELLING_BYTES_MAX: usize = 255;
/// Spellings beyond this are forgotten, all of them.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// What a spelling stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meaning {
    /// The key's number.
    pub key_id: u32,
    /// The value's number.
    pub value_id: u32,
    /// How long the texts are together.
    pub text_bytes: u16,
}

/// Sixteen bytes, so that all places stay in the cache next to the processor.
#[derive(Clone, Copy)]
struct Known {
    start: u32,
    bytes: u16,
    text_bytes: u16,
    key_id: u32,
    value_id: u32,
}

/// Lies nowhere, so that nothing is like it, not even the empty spelling.
const FORGOTTEN: Known = Known {
    start: u32::MAX,
    bytes: 0,
    text_bytes: 0,
    key_id: 0,
    value_id: 0,
};

/// The memory.
#[derive(Default)]
pub struct Spellings {
    known: Vec<Known>,
    raw: Vec<u8>,
    /// The places that were written, one after the other.
    log: Vec<usize>,
}

impl Spellings {
    /// What this spelling stood for.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "for every attribute, in each decoder")]
    pub fn find(&self, spelling: &[u8]) -> Option<Meaning> {
        let known = self.known.get(place(spelling))?;
        let start = known.start as usize;
        let raw = self.raw.get(start..start + usize::from(known.bytes))?;
        alike(raw, spelling).then_some(Meaning {
            key_id: known.key_id,
            value_id: known.value_id,
            text_bytes: known.text_bytes,
        })
    }

    /// Remembers what a spelling stands for.
    pub fn remember(&mut self, spelling: &[u8], meaning: Meaning) {
        if spelling.len() > SPELLING_BYTES_MAX {
            return;
        }
        if self.raw.len() > KEPT_BYTES_MAX || self.known.is_empty() {
            self.known.clear();
            self.known.resize(PLACES, FORGOTTEN);
            self.raw.clear();
        }
        let place = place(spelling);
        if let Some(known) = self.known.get_mut(place)
            && let (Ok(start), Ok(bytes)) = (self.raw.len().try_into(), spelling.len().try_into())
        {
            *known = Known {
                start,
                bytes,
                text_bytes: meaning.text_bytes,
                key_id: meaning.key_id,
                value_id: meaning.value_id,
            };
            self.raw.extend_from_slice(spelling);
            self.log.push(place);
        }
    }

    /// How much was remembered so far.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.log.len()
    }

    /// Forgets what was remembered since.
    pub fn truncate(&mut self, mark: usize) {
        while self.log.len() > mark {
            let place = self.log.pop();
            if let Some(known) = place.and_then(|place| self.known.get_mut(place)) {
                *known = FORGOTTEN;
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.truncate(0);
        self.raw.clear();
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
    fn only_the_very_same_bytes_are_known_again() {
        let mut spellings = Spellings::default();
        spellings.remember(b"http.route: /search", meaning(1));

        assert_eq!(spellings.find(b"http.route: /search"), Some(meaning(1)));
        assert_eq!(spellings.find(b"HTTP.route: /search"), None);
        assert_eq!(spellings.find(b"/search"), None);
    }

    #[test]
    fn what_was_remembered_since_a_mark_is_forgotten_and_nothing_else() {
        let mut spellings = Spellings::default();
        spellings.remember(b"remembered before", meaning(1));
        let mark = spellings.mark();
        spellings.remember(b"remembered since", meaning(2));

        spellings.truncate(mark);

        assert_eq!(spellings.find(b"remembered before"), Some(meaning(1)));
        assert_eq!(spellings.find(b"remembered since"), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
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
