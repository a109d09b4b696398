//! base64: encodes in the standard alphabet with padding, decodes either alphabet with or without padding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the base64 of `raw`, in the standard alphabet with padding.
pub fn encode(out: &mut Vec<u8>, raw: &[u8]) {
    out.reserve(raw.len().div_ceil(3) * 4);
    let (triples, rest) = raw.as_chunks::<3>();
    for triple in triples {
        out.extend_from_slice(&quad(*triple));
    }
    match *rest {
        [a] => {
            let [first, second, ..] = quad([a, 0, 0]);
            out.extend_from_slice(&[first, second, b'=', b'=']);
        }
        [a, b] => {
            let [first, second, third, _] = quad([a, b, 0]);
            out.extend_from_slice(&[first, second, third, b'=']);
        }
        _ => {}
    }
}

fn quad([a, b, c]: [u8; 3]) -> [u8; 4] {
    [
        digit(a >> 2),
        digit(a << 4 | b >> 4),
        digit(b << 2 | c >> 6),
        digit(c),
    ]
}

fn digit(sextet: u8) -> u8 {
    ALPHABET
        .get(usize::from(sextet & 63))
        .copied()
        .unwrap_or_default()
}

/// Calls `sink` with every byte that `text` encodes. Returns false if `text` is not base64; `sink` may then
/// have received some bytes already.
///
/// Accepts the standard and the URL-safe alphabet, padded or not. Bits after the last whole byte must be
/// zero.
pub fn decode(text: &[u8], mut sink: impl FnMut(u8)) -> bool {
    let (mut bits, mut bit_count) = (0u32, 0u32);
    let digits = unpadded(text);
    for &character in digits {
        let Some(value) = value(character) else {
            return false;
        };
        bits = bits << 6 | u32::from(value);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            let [.., byte] = (bits >> bit_count).to_be_bytes();
            sink(byte);
        }
    }
    let padded = digits.len() != text.len();
    let whole = !padded || text.len().is_multiple_of(4);
    whole && bit_count < 6 && bits & ((1 << bit_count) - 1) == 0
}

fn unpadded(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"=").unwrap_or(text);
    text.strip_suffix(b"=").unwrap_or(text)
}

fn value(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(raw: &[u8]) -> String {
        let mut out = Vec::new();
        encode(&mut out, raw);
        String::from_utf8(out).unwrap()
    }

    fn decoded(text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(text.as_bytes(), |byte| out.push(byte)).then_some(out)
    }

    #[test]
    fn rfc_4648_vectors_are_encoded_and_decoded() {
        for (raw, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encoded(raw.as_bytes()), text);
            assert_eq!(decoded(text).unwrap(), raw.as_bytes());
        }
    }

    #[test]
    fn url_safe_alphabet_and_missing_padding_are_accepted() {
        assert_eq!(decoded("-_8").unwrap(), [0xfb, 0xff]);
        assert_eq!(decoded("+/8=").unwrap(), [0xfb, 0xff]);
    }

    #[test]
    fn invalid_base64_is_rejected() {
        for text in [
            "A", "AAAAA", "Zg=", "Zg===", "Z===", "=", "Zh==", "Zm9=", "Z m8", "Zg==Zg==", "é",
        ] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_round_trip(raw: Vec<u8>) {
            let text = encoded(&raw);

            prop_assert_eq!(decoded(&text).unwrap(), raw.clone());
            prop_assert_eq!(decoded(text.trim_end_matches('=')).unwrap(), raw);
        }
    }
}
