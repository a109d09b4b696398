//! Encoding of the deliveries that a record acknowledges: msgpack, one entry per delivery.
//!
//! ```text
//! [ [drain, digest (16 bytes), received at ns, rows, [ [project, received, stored, sampled out, rejected] … ]] … ]
//! ```

/// Appends the header of an array.
pub fn array(out: &mut Vec<u8>, entries: usize) {
    if let Ok(entries) = u8::try_from(entries)
        && entries < 16
    {
        // msgpack has a 16-bit form too; without it, `split` has fewer cases.
        out.push(0x90 | entries);
    } else {
        out.push(0xDD);
        out.extend_from_slice(&u32::try_from(entries).unwrap_or(u32::MAX).to_be_bytes());
    }
}

/// Appends a string.
pub fn text(out: &mut Vec<u8>, text: &str) {
    if let Ok(bytes) = u8::try_from(text.len())
        && bytes < 32
    {
        out.push(0xA0 | bytes);
    } else {
        out.push(0xDB);
        out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    }
    out.extend_from_slice(text.as_bytes());
}

/// Appends 16 bytes, as a msgpack bin value.
pub fn digest(out: &mut Vec<u8>, digest: u128) {
    out.extend_from_slice(&[0xC4, 16]);
    out.extend_from_slice(&digest.to_be_bytes());
}

/// Appends an integer.
pub fn integer(out: &mut Vec<u8>, value: i64) {
    match u8::try_from(value) {
        Ok(small) if small < 0x80 => out.push(small),
        _ => {
            // receive times need 64 bits anyway; shorter forms would save little on the counts.
            out.push(0xD3);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

/// Splits an array into its entry count and the bytes of its entries; `None` if the bytes are not an array.
#[must_use]
pub fn split(answers: &[u8]) -> Option<(usize, &[u8])> {
    match answers {
        [0xDD, a, b, c, d, entries @ ..] => {
            Some((u32::from_be_bytes([*a, *b, *c, *d]) as usize, entries))
        }
        [head @ 0x90..=0x9F, entries @ ..] => Some((usize::from(head & 0xF), entries)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_arrays_are_split() {
        for entries in [0, 15, 16, 70_000] {
            let mut out = Vec::new();
            array(&mut out, entries);
            out.push(1);

            assert_eq!(split(&out), Some((entries, &[1][..])));
        }
        assert_eq!(split(b"\xC0"), None);
    }

    #[test]
    fn values_are_msgpack() {
        let mut out = Vec::new();
        text(&mut out, "ab");
        integer(&mut out, 127);
        integer(&mut out, -1);
        digest(&mut out, 1);

        let mut expected = b"\xA2ab\x7F\xD3\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xC4\x10".to_vec();
        expected.extend([0; 15]);
        expected.push(1);
        assert_eq!(out, expected);
    }
}
