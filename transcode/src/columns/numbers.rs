//! Numbers that were met lately, and the dictionary's number of their text: a number that comes again is
//! not spelled out again, let alone hashed.

use super::alike::{PLACES, place_of};
use super::dictionary::Dictionary;
use crate::tally::Tally;
use crate::text::Number;

/// A number that was spelled out.
#[derive(Clone, Copy, Default)]
struct Known {
    bits: (u8, u64),
    id: u32,
    birth: u64,
}

/// The memory, each number in the one place that its bits say.
#[derive(Default)]
pub struct Numbers {
    known: Vec<Known>,
    text: Vec<u8>,
}

impl Numbers {
    /// The dictionary's number of this number's text, and how long the text is.
    #[inline]
    pub fn id_of(
        &mut self,
        number: Number,
        dictionary: &mut Dictionary,
        bytes_max: usize,
        tally: &mut Tally,
    ) -> (u32, usize) {
        let bits = number.bits();
        if let Some(known) = self.known.get(place(bits))
            && known.bits == bits
            && let Some(text_bytes) = dictionary.text_bytes(known.id, known.birth)
        {
            return (known.id, text_bytes);
        }
        self.id_of_another(number, dictionary, bytes_max, tally)
    }

    #[inline(never)]
    fn id_of_another(
        &mut self,
        number: Number,
        dictionary: &mut Dictionary,
        bytes_max: usize,
        tally: &mut Tally,
    ) -> (u32, usize) {
        let id = dictionary.id_of_rare(self.spell(number), bytes_max, tally);
        // A text that was cut is warned about each time it comes.
        if self.text.len() <= bytes_max {
            self.known.resize(PLACES, Known::default());
            if let Some(known) = self.known.get_mut(place(number.bits())) {
                *known = Known {
                    bits: number.bits(),
                    id,
                    birth: dictionary.birth(id),
                };
            }
        }
        (id, self.text.len())
    }

    /// The number's text.
    pub fn spell(&mut self, number: Number) -> &[u8] {
        self.text.clear();
        number.push(&mut self.text);
        &self.text
    }
}

#[inline]
fn place((kind, bits): (u8, u64)) -> usize {
    place_of(bits ^ u64::from(kind) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Number::{Bool, Double, Int};

    fn told(numbers: &mut Numbers, dictionary: &mut Dictionary, number: Number) -> String {
        let (id, text_bytes) = numbers.id_of(number, dictionary, 100, &mut Tally::default());
        assert_eq!(text_bytes, dictionary.text(id).len());
        dictionary.text(id).to_owned()
    }

    #[test]
    fn a_number_has_the_same_text_however_often_it_comes() {
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
            assert_eq!(told(&mut numbers, &mut dictionary, number), text);
        }
    }

    #[test]
    fn a_number_whose_text_was_rolled_back_is_spelled_out_again() {
        let (mut numbers, mut dictionary) = (Numbers::default(), Dictionary::default());
        told(&mut numbers, &mut dictionary, Int(7));
        dictionary.truncate(0);
        dictionary.id_of_text("another");

        assert_eq!(told(&mut numbers, &mut dictionary, Int(7)), "7");
    }

    #[test]
    fn a_number_of_the_block_before_is_spelled_out_again() {
        let (mut numbers, mut dictionary) = (Numbers::default(), Dictionary::default());
        told(&mut numbers, &mut dictionary, Int(7));
        dictionary.clear();
        dictionary.id_of_text("another");

        assert_eq!(told(&mut numbers, &mut dictionary, Int(7)), "7");
    }

    #[test]
    fn a_number_too_long_to_keep_is_warned_about_each_time() {
        let (mut numbers, mut dictionary) = (Numbers::default(), Dictionary::default());
        let mut tally = Tally::default();

        for _ in 0..3 {
            numbers.id_of(Int(123), &mut dictionary, 2, &mut tally);
        }

        assert_eq!(tally.reasons(), [("text_cut", 3)]);
    }
}
