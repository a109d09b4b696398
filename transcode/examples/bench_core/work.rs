//! Measured work: decoding alone, and whole commits as the receiver runs them.

use std::collections::HashMap;

use _transcode::block::Segment;
use _transcode::digest::DigestKey;
use _transcode::group::{self, Delivery, Kind, Workspace};
use _transcode::json::{self, Scratch};
use _transcode::limits::Limits;
use _transcode::otlp;
use _transcode::outcome::Verdict;
use _transcode::policy::{Policy, Settings};

use crate::null_visitor::NullVisitor;
use crate::payload::SPANS;

/// Receive time, shortly after the spans of the deliveries.
const RECEIVED_AT_NS: i64 = 1_780_000_100_000_000_000;

/// Processes these bodies. Returns the number of bytes produced.
pub type Work = Box<dyn FnMut(&[Vec<u8>]) -> usize>;

/// Runs the protobuf decoder alone, with a visitor that stores nothing.
pub fn decode_protobuf(bodies: &[Vec<u8>]) -> usize {
    let mut visitor = NullVisitor::default();
    for body in bodies {
        otlp::decode(body, &Limits::default(), &mut visitor).expect("a valid body");
    }
    assert_eq!(visitor.span_count, bodies.len() * SPANS);
    visitor.input_bytes
}

/// Runs the JSON decoder alone.
pub fn decode_json() -> Work {
    let mut scratch = Scratch::default();
    Box::new(move |bodies| {
        let mut visitor = NullVisitor::default();
        for body in bodies {
            json::decode(body, &Limits::default(), false, &mut scratch, &mut visitor)
                .expect("a valid body");
        }
        assert_eq!(visitor.span_count, bodies.len() * SPANS);
        visitor.input_bytes
    })
}

/// Commits several deliveries. Returns the bytes of the records.
pub fn commit(kind: Kind) -> Work {
    let policy = Policy::new(&settings()).expect("the default settings");
    let digest_key = DigestKey::from_bytes(&[7; DigestKey::BYTES]).expect("a key's length");
    let mut workspace = Workspace::default();
    Box::new(move |bodies| {
        let delivery = |body| Delivery {
            drain: "default",
            body,
            kind,
            encodings: Vec::new(),
            received_at_ns: RECEIVED_AT_NS,
            strict: false,
            body_bytes_max: Limits::default().body_bytes_max,
        };
        let deliveries: Vec<_> = bodies.iter().map(|body| delivery(body)).collect();
        let done = group::commit(
            &policy,
            &digest_key,
            &deliveries,
            Segment { epoch: 1, seq: 1 },
            &mut workspace,
        );
        assert!(
            done.outcomes
                .iter()
                .all(|outcome| outcome.verdict == Verdict::Accepted)
        );
        assert_eq!(done.rows as usize, bodies.len() * SPANS);
        done.record.len()
    })
}

fn settings() -> Settings {
    let rule = |place: &str, key: &str| (place.to_owned(), key.to_owned());
    Settings {
        project: vec![
            rule("resource", "platform.projectId"),
            rule("span", "platform.project.id"),
        ],
        deployment: vec![
            rule("resource", "platform.deploymentId"),
            rule("span", "platform.deployment.id"),
        ],
        retention_days: 30,
        late_margin_days: 3,
        ahead_s_max: 3600,
        sampling_mode: "equalizing".to_owned(),
        sampling_rate: 1.0,
        codec: "lz4".to_owned(),
        limits: HashMap::new(),
        ..Settings::default()
    }
}
