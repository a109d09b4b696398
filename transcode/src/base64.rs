//! base64: encodes in the standard alphabet with padding, decodes either alphabet with or without padding.

use ::base64::Engine;
use ::base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// Appends the base64 of `raw`, in the standard alphabet with padding.
pub fn encode(out: &mut Vec<u8>, raw: &[u8]) {
    let start = out.len();
    out.resize(start + raw.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(raw, out.get_mut(start..).unwrap_or_default());
    debug_assert!(written.is_ok(), "the base64 has exactly this length");
}

/// Decodes `text` into the beginning of `out` and returns the decoded bytes. Returns `None` if `text` is not
/// base64 or does not fit.
///
/// Accepts the standard and the URL-safe alphabet, padded or not. Bits after the last whole byte must be
/// zero.
pub fn decode<'a>(text: &[u8], out: &'a mut [u8]) -> Option<&'a [u8]> {
    let digits = unpadded(text);
    // Padding may be absent, but must be complete where it occurs: `Zg=` is rejected.
    if digits.len() != text.len() && !text.len().is_multiple_of(4) {
        return None;
    }
    // The standard alphabet first: it needs no copy, so only URL-safe text pays for the conversion.
    let standard = STANDARD_NO_PAD.decode_slice(digits, out);
    let length = standard.or_else(|_| STANDARD_NO_PAD.decode_slice(standard_alphabet(digits), out));
    out.get(..length.ok()?)
}

fn unpadded(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"=").unwrap_or(text);
    text.strip_suffix(b"=").unwrap_or(text)
}

fn standard_alphabet(digits: &[u8]) -> Vec<u8> {
    // A text that mixes both alphabets has only one meaning, so it is accepted too.
    let standard = |&digit: &u8| match digit {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    };
    digits.iter().map(standard).collect()
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
        let mut out = vec![0; text.len()];
        decode(text.as_bytes(), &mut out).map(<[u8]>::to_vec)
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
        assert_eq!(decoded("+_8").unwrap(), [0xfb, 0xff]);
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
