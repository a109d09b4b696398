//! Shared conformance bodies, as far as decoding alone decides them.

use std::fs;

use _transcode::base64;
use _transcode::limits::Limits;
use _transcode::unpack::{Buffers, Encoding, Expect, unpack};
use serde_json::Value;

use crate::decode;
use crate::support::Recording;

struct Case {
    id: String,
    body: Vec<u8>,
    status: u64,
    stored: u64,
    rejected: u64,
    warning: bool,
    effect: String,
}

impl Case {
    fn from_json(line: &str) -> Self {
        let case: Value = serde_json::from_str(line).unwrap();
        let expect = &case["expect"];
        Self {
            id: case["id"].as_str().unwrap().to_owned(),
            body: body_of(&case["body"]),
            status: expect["status"].as_u64().unwrap(),
            stored: expect["stored"].as_u64().unwrap(),
            rejected: expect["rejected"].as_u64().unwrap(),
            warning: expect["warning"].as_bool().unwrap(),
            effect: expect["effect"].as_str().unwrap().to_owned(),
        }
    }

    /// The clock guard belongs to the visitor; a decoder reports times as sent.
    fn warns_of_time(&self) -> bool {
        self.effect.contains("receive time") || self.effect.contains("time rule")
    }
}

fn body_of(body: &Value) -> Vec<u8> {
    let text = body["base64"]
        .as_str()
        .or(body["zlib_base64"].as_str())
        .unwrap();
    let mut buffer = vec![0; text.len()];
    let bytes = base64::decode(text.as_bytes(), &mut buffer).unwrap();
    if body["base64"].is_null() {
        let (deflate, limits, mut buffers) =
            ([Encoding::Deflate], Limits::default(), Buffers::default());
        let unpacked = unpack(bytes, &deflate, Expect::Protobuf, &limits, &mut buffers);
        return unpacked.unwrap().body.to_vec();
    }
    bytes.to_vec()
}

fn cases() -> Vec<Case> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/conformance/bodies.jsonl"
    );
    let lines = fs::read_to_string(path).unwrap();
    let is_protobuf = |line: &&str| line.contains("\"application/x-protobuf\"");
    lines
        .lines()
        .filter(is_protobuf)
        .map(Case::from_json)
        .collect()
}

fn warned(recording: &Recording) -> bool {
    let (kept, rejected) = recording.kept_and_rejected();
    let bad_links = recording
        .spans()
        .flat_map(|span| &span.links)
        .any(|link| link.ids.is_none());
    let misunderstood = kept + rejected == 0 && recording.unknown_count > 0;
    !recording.warnings.is_empty() || rejected > 0 || bad_links || misunderstood
}

#[test]
fn protobuf_conformance_cases_have_the_expected_result() {
    let cases = cases();
    assert!(cases.len() > 30);
    for case in cases {
        let id = &case.id;
        let Ok(recording) = decode(&case.body) else {
            assert_eq!(case.status, 400, "{id}");
            continue;
        };
        assert_eq!(case.status, 200, "{id}");
        let (kept, rejected) = recording.kept_and_rejected();
        assert_eq!(
            (kept as u64, rejected as u64),
            (case.stored, case.rejected),
            "{id}"
        );
        assert_eq!(
            warned(&recording),
            case.warning && !case.warns_of_time(),
            "{id}"
        );
    }
}
