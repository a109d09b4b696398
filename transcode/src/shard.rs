//! The shard of a row in a `ClickHouse` cluster: `cityHash64(TraceId)` modulo the number of shards, as the `Distributed`
//! table computes it. Only the lengths that a trace id has: 32 hexadecimal digits, or none.

/// Length of a trace id in hexadecimal digits.
const TRACE_ID_LEN: usize = 32;

const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;
const K3: u64 = 0xc949_d7c7_509e_6557;
const MULTIPLIER: u64 = 0x9ddf_ea08_eb38_2d69;

/// Returns the number of the shard, from 1; `None` if this is no trace id.
#[must_use]
pub fn shard_of(trace_id: &[u8], shards: u32) -> Option<u32> {
    let hash = match trace_id.len() {
        0 => K2,
        TRACE_ID_LEN => hash(trace_id.first_chunk()?),
        _ => return None,
    };
    let index = hash.checked_rem(u64::from(shards))?;
    u32::try_from(index + 1).ok()
}

/// `CityHash64` 1.0.2 for 17 to 32 bytes, which `cityHash64` of `ClickHouse` is for a string.
fn hash(bytes: &[u8; TRACE_ID_LEN]) -> u64 {
    let word = |at: usize| {
        bytes
            .get(at..)
            .and_then(<[u8]>::first_chunk)
            .map_or(0, |word| u64::from_le_bytes(*word))
    };
    let len = TRACE_ID_LEN as u64;
    let (a, b) = (word(0).wrapping_mul(K1), word(8));
    let (c, d) = (
        word(TRACE_ID_LEN - 8).wrapping_mul(K2),
        word(TRACE_ID_LEN - 16).wrapping_mul(K0),
    );
    combine(
        a.wrapping_sub(b)
            .rotate_right(43)
            .wrapping_add(c.rotate_right(30))
            .wrapping_add(d),
        a.wrapping_add((b ^ K3).rotate_right(20))
            .wrapping_sub(c)
            .wrapping_add(len),
    )
}

fn combine(low: u64, high: u64) -> u64 {
    let mix = |value: u64| value ^ (value >> 47);
    let a = mix((low ^ high).wrapping_mul(MULTIPLIER));
    mix((high ^ a).wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trace ids with their `cityHash64`, computed by the engine 26.9.
    const HASHES: [(&[u8], u64); 4] = [
        (b"", 11_160_318_154_034_397_263),
        (
            b"0af7651916cd43dd8448eb211c80319c",
            4_105_622_373_219_066_570,
        ),
        (
            b"ffffffffffffffffffffffffffffffff",
            11_225_464_206_646_446_824,
        ),
        (
            b"00000000000000000000000000000001",
            3_305_190_905_769_198_277,
        ),
    ];

    #[test]
    fn shards_are_those_of_the_engine() {
        for (trace_id, hash) in HASHES {
            let index = hash % 1_000_003;
            assert_eq!(
                shard_of(trace_id, 1_000_003).map(u64::from),
                Some(index + 1)
            );
        }
    }

    #[test]
    fn text_that_is_no_trace_id_and_no_shards_have_no_shard() {
        assert_eq!(shard_of(b"0123", 2), None);
        assert_eq!(shard_of(b"", 0), None);
    }
}
