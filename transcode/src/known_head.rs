//! Head of an HTTP request that equals an earlier head, except for the digits of its Content-Length.
//!
//! Never: interprets HTTP itself. A head that differs in any other byte does not match.

use std::ops::Range;

/// Most digits of a length that matches.
const LENGTH_DIGITS_MAX: usize = 9;

/// A request head, split around the digits of its Content-Length.
#[derive(Debug, Default)]
pub struct KnownHead {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl KnownHead {
    /// Returns the head with these bytes before and after the digits.
    #[must_use]
    pub fn new(before: &[u8], after: &[u8]) -> Self {
        Self {
            before: before.to_vec(),
            after: after.to_vec(),
        }
    }

    /// Returns where the body is if the bytes start with this head. The body may end after them.
    #[must_use]
    pub fn body_in(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let rest = bytes.strip_prefix(self.before.as_slice())?;
        let digits = rest
            .iter()
            .take(LENGTH_DIGITS_MAX + 1)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        // Signs, leading zeros and spaces are left to the parser of all heads: parsers that disagree on a length
        // allow smuggling.
        if digits == 0 || digits > LENGTH_DIGITS_MAX || rest.first() == Some(&b'0') {
            return None;
        }
        let (length, rest) = rest.split_at_checked(digits)?;
        let body = rest.strip_prefix(self.after.as_slice())?;
        let start = bytes.len() - body.len();
        let length = length
            .iter()
            .fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
        Some(start..start + length)
    }
}
