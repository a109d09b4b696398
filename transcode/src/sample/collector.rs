//! The Collector's `probabilistic_sampler` in `hash_seed` mode, bit for bit.

use super::threshold::{NEVER, Rate};

/// The hash is reduced to this many buckets.
const BUCKETS: u32 = 0x4000;
/// log2 of the share of one bucket in 56 bits of randomness.
const BUCKET_BITS: u32 = 42;

/// Returns the threshold of a rate, in the Collector's own 32-bit arithmetic: percent times buckets per
/// percent, truncated. A rate is quantised to 1/16384; below that nothing is kept.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the Collector computes it this way, and the rate is between 0 and 1"
)]
pub(super) fn rate(probability: f64) -> Rate {
    let percent = (probability * 100.0) as f32;
    let buckets_kept = ((percent * 163.84_f32) as u32).min(BUCKETS);
    Rate {
        probability: f64::from(buckets_kept) / f64::from(BUCKETS),
        threshold: u64::from(BUCKETS - buckets_kept) << BUCKET_BITS,
    }
}

/// 32-bit FNV-1a state after the seed, which is the same for every trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(u32);

impl Default for Hash {
    fn default() -> Self {
        Self::seeded(0)
    }
}

impl Hash {
    pub(super) fn seeded(seed: u32) -> Self {
        Self(0x811c_9dc5).over(&seed.to_le_bytes())
    }

    fn over(self, bytes: &[u8]) -> Self {
        let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        Self(bytes.iter().fold(self.0, step))
    }

    /// Returns the bucket of a trace as randomness: it reaches the threshold if its bucket is kept. Hash
    /// bits that do not choose a bucket fill the low bits, so that later stages can use them.
    pub(super) fn randomness(self, trace_id: &[u8; 16]) -> u64 {
        let Self(hash) = self.over(trace_id);
        let bucket = u64::from(hash & (BUCKETS - 1));
        let unused = u64::from(hash >> 18);
        let filling = (unused ^ unused << 10) << 14;
        ((u64::from(BUCKETS - 1) - bucket) << BUCKET_BITS | filling | bucket) & (NEVER - 1)
    }
}

/// Returns the decision that `sampling.priority` requests: 0 drops, a positive value keeps, any other value
/// requests nothing.
pub(super) fn priority(value: f64) -> Option<bool> {
    match value {
        0.0 => Some(false),
        value if value > 0.0 => Some(true),
        // negative, or not a number
        _ => None,
    }
}
