//! Sampling thresholds and probabilities. A span has 56 bits of randomness; a threshold selects a share of the values.

/// Randomness has 56 bits; no value reaches this threshold.
pub(super) const NEVER: u64 = 1 << 56;
/// Hex digits of a threshold.
pub(super) const DIGITS: u32 = 14;
/// Significant digits of a threshold made from a probability, after its leading f's.
const DIGITS_KEPT: u32 = 4;

/// A probability and its threshold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) probability: f64,
    pub(super) threshold: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            probability: 1.0,
            threshold: 0,
        }
    }
}

impl Rate {
    pub(super) fn new(probability: f64) -> Self {
        Self {
            probability,
            threshold: threshold_of(probability),
        }
    }

    /// Returns the threshold that keeps this share of the spans that `arriving` keeps.
    pub(super) fn of(&self, arriving: u64) -> u64 {
        if self.probability >= 1.0 {
            return arriving;
        }
        threshold_of(self.probability * (kept_of(arriving) / kept_of(0)))
    }
}

/// Returns the last seven bytes of the trace id.
pub(super) fn randomness_of(trace_id: &[u8; 16]) -> u64 {
    let last = u128::from_be_bytes(*trace_id) & u128::from(NEVER - 1);
    u64::try_from(last).unwrap_or_default()
}

/// Returns how many of the 2^56 randomness values reach the threshold.
#[expect(
    clippy::cast_precision_loss,
    reason = "rounded as in other implementations"
)]
fn kept_of(threshold: u64) -> f64 {
    NEVER.saturating_sub(threshold) as f64
}

/// Returns how many spans a span that passed this threshold represents.
pub(super) fn adjusted_count(threshold: u64) -> f64 {
    kept_of(0) / kept_of(threshold)
}

/// Converts a probability as the specification does: four digits after the leading f's, rounded, so that
/// all components with the same rate write the same threshold.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the probability lies between 0 and 1"
)]
fn threshold_of(probability: f64) -> u64 {
    let kept = probability * kept_of(0);
    // Less than one of 2^56 values: keeps nothing.
    if kept < 1.0 {
        return NEVER;
    }
    let exact = NEVER - (kept.round() as u64).min(NEVER);
    // Digits are counted after the leading f's, so that small probabilities are as precise as large ones.
    let leading_fs = (!exact << 8).leading_zeros() / 4;
    let dropped_bits = 4 * DIGITS.saturating_sub(DIGITS_KEPT + leading_fs);
    let half = (1_u64 << dropped_bits) >> 1;
    (exact + half) >> dropped_bits << dropped_bits
}

/// A threshold in the syntax of `th`: no trailing zeros, but at least one digit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hex {
    digits: [u8; DIGITS as usize],
    length: usize,
}

impl Hex {
    pub(super) fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.digits.get(..self.length).unwrap_or(&self.digits)
    }
}

/// Returns all fourteen digits of a randomness value.
pub(super) fn hex_in_full(value: u64) -> Hex {
    first_digits(value, DIGITS as usize)
}

/// Returns the digits of a threshold.
pub(super) fn hex(threshold: u64) -> Hex {
    let zeros = (threshold.trailing_zeros() / 4).min(DIGITS - 1);
    first_digits(threshold, (DIGITS - zeros) as usize)
}

fn first_digits(value: u64, length: usize) -> Hex {
    let mut digits = [0; DIGITS as usize];
    let mut rest = value << (64 - 4 * DIGITS);
    for digit in digits.iter_mut().take(length) {
        *digit = b"0123456789abcdef"
            .get((rest >> 60) as usize)
            .copied()
            .unwrap_or_default();
        rest <<= 4;
    }
    Hex { digits, length }
}

/// Parses up to fourteen lower-case hex digits and pads them with zeros. The digits are random, which defeats branch
/// prediction, so the code has no branch per digit.
pub(super) fn from_hex(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > DIGITS as usize {
        return None;
    }
    let (mut value, mut is_valid) = (0, true);
    for &byte in text {
        let is_digit = byte.wrapping_sub(b'0') < 10;
        let is_letter = byte.wrapping_sub(b'a') < 6;
        is_valid &= is_digit | is_letter;
        value = value << 4 | u64::from((byte & 0x0f) + 9 * u8::from(is_letter));
    }
    is_valid.then_some(value << (4 * (DIGITS as usize - text.len())))
}
