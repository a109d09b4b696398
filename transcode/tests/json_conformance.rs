//! JSON cases of the conformance suite, as far as the decoder alone decides them.

mod recording;

use std::fs;

use _transcode::base64;
use recording::decode;

/// Returns the text or number of a member, in a line that contains each name once.
fn member<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!("\"{name}\": "))?;
    match rest.strip_prefix('"') {
        Some(text) => text.split_once('"').map(|(text, _)| text),
        None => rest.split([',', '}']).next(),
    }
}

#[test]
fn conformance_cases_have_the_expected_result() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/conformance/bodies.jsonl"
    );
    let sample = fs::read_to_string(path).unwrap();
    let mut case_count = 0;
    for line in sample
        .lines()
        .filter(|line| line.contains("\"content_type\": \"application/json\""))
    {
        let id = member(line, "id").unwrap();
        let Some(encoded) = member(line, "base64") else {
            continue; // compressed bodies are tested in tests/unpack
        };
        let mut buffer = vec![0; encoded.len()];
        let body = base64::decode(encoded.as_bytes(), &mut buffer).unwrap();
        let expected = |name| member(line, name).unwrap().to_owned();

        let result = decode(body);

        let (is_refused, stored, rejected, has_warning) = match &result {
            Err(_) => (true, 0, 0, false),
            Ok(recording) => (
                false,
                recording.stored,
                recording.rejected,
                !recording.warnings.is_empty(),
            ),
        };
        let all_rejected = stored == 0 && rejected > 0;
        assert_eq!(
            is_refused || all_rejected,
            expected("status") == "400",
            "{id}: {result:?}"
        );
        assert_eq!(stored.to_string(), expected("stored"), "{id}: {result:?}");
        assert_eq!(
            rejected.to_string(),
            expected("rejected"),
            "{id}: {result:?}"
        );
        let is_partly_rejected = stored > 0 && rejected > 0;
        assert_eq!(
            (has_warning || is_partly_rejected).to_string(),
            expected("warning"),
            "{id}: {result:?}"
        );
        case_count += 1;
    }
    assert!(case_count > 50, "the sample has {case_count} cases");
}
