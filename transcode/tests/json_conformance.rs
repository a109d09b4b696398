//! The JSON cases of the conformance sample, as far as the decoder alone decides them.

mod story;

use std::fs;

use _transcode::base64;
use story::told;

/// The text or number behind a name, in a line that holds each name once.
fn member<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!("\"{name}\": "))?;
    match rest.strip_prefix('"') {
        Some(text) => text.split_once('"').map(|(text, _)| text),
        None => rest.split([',', '}']).next(),
    }
}

#[test]
fn every_case_of_the_sample_is_answered_as_it_should_be() {
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
            continue; // compressed ones are built by hand in json_neighbours.rs
        };
        let mut body = Vec::new();
        assert!(base64::decode(encoded.as_bytes(), |byte| body.push(byte)));
        let expected = |name| member(line, name).unwrap().to_owned();

        let told = told(&body);

        let (is_refused, stored, rejected, has_warning) = match &told {
            Err(_) => (true, 0, 0, false),
            Ok(story) => (
                false,
                story.stored,
                story.rejected,
                !story.warnings.is_empty(),
            ),
        };
        let all_rejected = stored == 0 && rejected > 0;
        assert_eq!(
            is_refused || all_rejected,
            expected("status") == "400",
            "{id}: {told:?}"
        );
        assert_eq!(stored.to_string(), expected("stored"), "{id}: {told:?}");
        assert_eq!(rejected.to_string(), expected("rejected"), "{id}: {told:?}");
        let is_partly_rejected = stored > 0 && rejected > 0;
        assert_eq!(
            (has_warning || is_partly_rejected).to_string(),
            expected("warning"),
            "{id}: {told:?}"
        );
        case_count += 1;
    }
    assert!(case_count > 50, "the sample has {case_count} cases");
}
