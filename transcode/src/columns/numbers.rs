//! Cache of recent numbers with the dictionary id of their text: a repeated number is neither formatted
//! nor hashed.

use super::dictionary::Dictionary;
use super::slots::{SLOTS, number_slot};
use crate::tally::Tally;
use crate::text::Number;

/// A formatted number.
#[derive(Clone, Copy, Default)]
struct CachedNumber {
    bits: (u8, u64),
    id: u32,
    text_serial: u64,
}

/// The cache, direct-mapped by a hash of the number's bits.
#[derive(Default)]
pub struct Numbers {
    known: Vec<CachedNumber>,
    text: Vec<u8>,
}

impl Numbers {
    /// Returns the dictionary id of the text of this number, and the length of the text.
    #[inline]
    pub fn id_of(
        &mut self,
        number: Number,
        dictionary: &mut Dictionary,
        bytes_max: usize,
        tally: &mut Tally,
    ) -> (u32, usize) {
        let bits = number.bits();
        if let Some(known) = self.known.get(slot(bits))
            && known.bits == bits
            // after a roll-back the id may belong to another string, which has another serial number
            && let Some(text_bytes) = dictionary.text_bytes(known.id, known.text_serial)
        {
            return (known.id, text_bytes);
        }
        self.id_of_uncached(number, dictionary, bytes_max, tally)
    }

    #[inline(never)]
    fn id_of_uncached(
        &mut self,
        number: Number,
        dictionary: &mut Dictionary,
        bytes_max: usize,
        tally: &mut Tally,
    ) -> (u32, usize) {
        let id = dictionary.id_of_rare(self.format(number), bytes_max, tally);
        // A truncated text is not cached, because each occurrence must cause a warning.
        if self.text.len() <= bytes_max {
            // Kinds begin at 1, so no number equals an unused slot.
            self.known.resize(SLOTS, CachedNumber::default());
            if let Some(known) = self.known.get_mut(slot(number.bits())) {
                *known = CachedNumber {
                    bits: number.bits(),
                    id,
                    text_serial: dictionary.serial(id),
                };
            }
        }
        (id, self.text.len())
    }

    /// Formats the number and returns its text.
    pub fn format(&mut self, number: Number) -> &[u8] {
        self.text.clear();
        number.push(&mut self.text);
        &self.text
    }
}

#[inline]
fn slot((kind, bits): (u8, u64)) -> usize {
    // The kind distinguishes numbers with equal bits, like 1 and true.
    number_slot(bits ^ u64::from(kind) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Number::{Bool, Double, Int};

    fn text_of(numbers: &mut Numbers, dictionary: &mut Dictionary, number: Number) -> String {
        let (id, text_bytes) = numbers.id_of(number, dictionary, 100, &mut Tally::default());
        assert_eq!(text_bytes, dictionary.text(id).len());
        dictionary.text(id).to_owned()
    }

    #[test]
    fn repeated_number_has_the_same_text() {
        let (mut numbers, mut dictionary) = (Numbers::default(), Dictionary::default());
        let all = [
            (Int(0), "0"),
            (Int(1), "1"),
            (Bool(true), "true"),
            (Bool(false), "false"),
            (Double(0.0), "0"),
            (Double(-0.0), "-0"),
            (Double(f64::NAN), "NaN"),
            (Int(i64::MIN), "-9223372036854775808"),
        ];

        for (number, text) in all.into_iter().cycle().take(3 * all.len()) {
            assert_eq!(text_of(&mut numbers, &mut dictionary, number), text);
        }
    }

    #[test]
    fn number_is_formatted_again_after_a_roll_back() {
        let (mut numbers, mut dictionary) = (Numbers::default(), Dictionary::default());
        text_of(&mut numbers, &mut dictionary, Int(7));
        dictionary.truncate(0);
        dictionary.id_of_text("another");

        assert_eq!(text_of(&mut numbers, &mut dictionary, Int(7)), "7");
    }

    #[test]
    fn number_of_the_previous_block_is_formatted_again() {
        let (mut numbers, mut dictionary) = (Numbers::default(), Dictionary::default());
        text_of(&mut numbers, &mut dictionary, Int(7));
        dictionary.clear();
        dictionary.id_of_text("another");

        assert_eq!(text_of(&mut numbers, &mut dictionary, Int(7)), "7");
    }

    #[test]
    fn every_occurrence_of_a_cut_number_is_warned_about() {
        let (mut numbers, mut dictionary) = (Numbers::default(), Dictionary::default());
        let mut tally = Tally::default();

        for _ in 0..3 {
            numbers.id_of(Int(123), &mut dictionary, 2, &mut tally);
        }

        assert_eq!(tally.reasons(), [("text_cut", 3)]);
    }
}
