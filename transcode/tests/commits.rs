//! Commits: removed spans and reused workspaces leave no trace, cached attributes behave like parsed ones, limits.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic fails the test"
)]

use std::collections::HashMap;
use std::io::{Read, Write};

use _transcode::block::Segment;
use _transcode::digest::DigestKey;
use _transcode::group::{Commit, Delivery, Kind, Workspace, commit};
use _transcode::key;
use _transcode::outcome::Verdict;
use _transcode::policy::{Policy, Settings};
use _transcode::scan;
use _transcode::unpack::Encoding;

const NOW_NS: i64 = 1_800_000_000_000_000_000;
const SEGMENT: Segment = Segment { epoch: 1, seq: 2 };
const KEY: DigestKey = DigestKey::from_words([1, 2, 3, 4]);
const KEPT: &str = "5b8efff798038103d280000000000000";
const DROPPED: &str = "5b8efff798038103d27fffffffffffff";

fn policy(change: impl FnOnce(&mut Settings)) -> Policy {
    let at = |place: &str, key: &str| (place.to_owned(), key.to_owned());
    let mut settings = Settings {
        project: vec![at("span", "p"), at("resource", "p")],
        sampling_mode: "off".to_owned(),
        sampling_rate: 1.0,
        ahead_s_max: 3_600,
        codec: "lz4".to_owned(),
        ..Settings::default()
    };
    change(&mut settings);
    Policy::new(&settings).unwrap()
}

fn sampling(mode: &str, rate: f64) -> Policy {
    policy(|settings| {
        mode.clone_into(&mut settings.sampling_mode);
        settings.sampling_rate = rate;
    })
}

fn limited(name: &str, limit: i64) -> Policy {
    policy(|settings| settings.limits = HashMap::from([(name.to_owned(), limit)]))
}

fn text(key: &str, value: &str) -> String {
    format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#)
}

fn span(trace_id: &str, attributes: &[String], more: &str) -> String {
    let attributes = attributes.join(",");
    format!(
        r#"{{"traceId":"{trace_id}","spanId":"eee19b7ec3c1b174","startTimeUnixNano":"{NOW_NS}","attributes":[{attributes}]{more}}}"#
    )
}

fn resource(attributes: &[String], scopes: &str) -> String {
    let attributes = attributes.join(",");
    format!(r#"{{"resource":{{"attributes":[{attributes}]}},"scopeSpans":[{scopes}]}}"#)
}

fn body(resources: &[String]) -> Vec<u8> {
    format!(r#"{{"resourceSpans":[{}]}}"#, resources.join(",")).into_bytes()
}

/// Returns a body with these spans, in one resource of the project `prj`.
fn spans(spans: &[String]) -> Vec<u8> {
    let scope = format!(r#"{{"spans":[{}]}}"#, spans.join(","));
    body(&[resource(&[text("p", "prj")], &scope)])
}

fn delivery(body: &[u8]) -> Delivery<'_> {
    Delivery {
        drain: "drain",
        body,
        kind: Kind::Json,
        encodings: Vec::new(),
        received_at_ns: NOW_NS,
        strict: false,
        body_bytes_max: 1 << 20,
    }
}

fn committed(policy: &Policy, body: &[u8]) -> Commit {
    commit(
        policy,
        &KEY,
        &[delivery(body)],
        SEGMENT,
        &mut Workspace::default(),
    )
}

fn payload(done: &Commit) -> Vec<u8> {
    scan::scan(&done.record).records[0].payload.to_vec()
}

fn answers(done: &Commit) -> Vec<u8> {
    scan::scan(&done.record).records[0].answers.to_vec()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn dropped_span_leaves_no_byte_in_the_block() {
    let more = r#","events":[{"name":"e","attributes":[{"key":"ek","value":{"intValue":"9"}}]}],
        "links":[{"traceId":"5b8efff798038103d280000000000001","spanId":"eee19b7ec3c1b175","traceState":"l=1"}]"#;
    let kept = span(KEPT, &[text("a", "1")], "");
    let half = sampling("equalizing", 0.5);
    let alone = committed(&half, &spans(&[kept.clone(), kept.clone()]));

    for trace_id in [DROPPED, "0"] {
        let bad = span(trace_id, &[text("gone", "x"), text("a", "2")], more);
        let mixed = [bad.clone(), kept.clone(), bad.clone(), kept.clone(), bad];
        let done = committed(&half, &spans(&mixed));

        assert_eq!(done.outcomes[0].stored, 2);
        assert_eq!(payload(&done), payload(&alone), "{trace_id}");
    }
}

#[test]
fn resource_without_spans_leaves_no_byte_in_the_block() {
    let scope = format!(r#"{{"spans":[{}]}}"#, span(KEPT, &[], ""));
    let full = resource(&[text("p", "prj")], &scope);
    let empty = resource(&[text("p", "prj"), text("x", "y")], "");
    let off = policy(|_| {});

    let done = committed(&off, &body(&[empty, full.clone()]));

    assert_eq!(payload(&done), payload(&committed(&off, &body(&[full]))));
}

#[test]
fn span_at_the_threshold_is_kept_and_a_span_below_is_dropped() {
    let half = sampling("equalizing", 0.5);

    let done = committed(
        &half,
        &spans(&[span(KEPT, &[], ""), span(DROPPED, &[], "")]),
    );

    let outcome = &done.outcomes[0];
    assert_eq!((outcome.stored, outcome.sampled_out), (1, 1));
}

#[test]
fn sampling_priority_is_respected_when_the_attribute_repeats() {
    let none = sampling("hash_seed", 0.0);
    let high = span(KEPT, &[text("sampling.priority", "1")], "");
    let other = span(KEPT, &[text("other", "1")], "");
    let all = [high.clone(), other.clone(), high.clone(), other, high];

    let done = committed(&none, &spans(&all));

    let outcome = &done.outcomes[0];
    assert_eq!((outcome.stored, outcome.sampled_out), (3, 2));
}

#[test]
fn project_attribute_of_a_span_is_respected_when_it_repeats() {
    let own = span(KEPT, &[text("p", "own")], "");
    let other = span(KEPT, &[text("q", "own")], "");
    let scope = format!(
        r#"{{"spans":[{}]}}"#,
        [own.clone(), own.clone(), other, own].join(",")
    );

    let done = committed(&policy(|_| {}), &body(&[resource(&[], &scope)]));

    assert_eq!(done.outcomes[0].unresolved, 1);
    assert!(contains(&answers(&done), b"\xA3own\x03\x03\x00\x00"));
}

#[test]
fn sampling_rule_is_compared_with_the_project_of_the_span() {
    let named = HashMap::from([("project".to_owned(), "own".to_owned())]);
    let rules = policy(|settings| {
        settings.sampling_mode = "equalizing".to_owned();
        settings.sampling_rules = vec![(named, 0.0)];
    });

    let done = committed(
        &rules,
        &spans(&[span(KEPT, &[text("p", "own")], ""), span(KEPT, &[], "")]),
    );

    let outcome = &done.outcomes[0];
    assert_eq!((outcome.stored, outcome.sampled_out), (1, 1));
}

#[test]
fn reused_workspace_does_not_change_the_record() {
    let off = policy(|_| {});
    let attributes = |order: &[&str]| order.iter().map(|key| text(key, "v")).collect::<Vec<_>>();
    let bodies = [
        &["a", "b", "p"][..],
        &["p", "b", "a"],
        &["b", "a"],
        &["c", "p"],
    ]
    .map(|order| {
        let span = span(KEPT, &attributes(order), "");
        spans(&[span.clone(), span])
    });
    let mut workspace = Workspace::default();

    for body in bodies.iter().chain(bodies.iter().rev()) {
        let done = commit(&off, &KEY, &[delivery(body)], SEGMENT, &mut workspace);
        let fresh = committed(&off, body);

        assert_eq!(done.record, fresh.record);
        assert_eq!(done.outcomes[0].unresolved, fresh.outcomes[0].unresolved);
    }
}

#[test]
fn cached_attributes_over_the_limit_are_dropped() {
    let three = [text("a", "1"), text("b", "1"), text("c", "1")];
    let spans = spans(&[
        span(KEPT, &three, ""),
        span(KEPT, &three[2..], ""),
        span(KEPT, &three[2..], ""),
        span(KEPT, &three, ""),
    ]);

    let done = committed(&limited("attributes_max", 2), &spans);

    let reasons = &done.outcomes[0].reasons;
    assert_eq!(reasons.iter().map(|(_, count)| count).sum::<u32>(), 2);
}

/// Returns the smallest value of a limit with which this body is accepted.
fn smallest_limit(name: &str, body: &[u8]) -> i64 {
    let passes = |limit: i64| {
        let done = committed(&limited(name, limit), body);
        done.outcomes[0].verdict == Verdict::Accepted
    };
    let (mut too_small, mut sufficient) = (0, 1 << 20);
    while sufficient - too_small > 1 {
        let middle = i64::midpoint(too_small, sufficient);
        if passes(middle) {
            sufficient = middle;
        } else {
            too_small = middle;
        }
    }
    sufficient
}

#[test]
fn every_part_of_a_row_counts_against_the_expanded_size() {
    let more = r#","name":"four","traceState":"t=1","status":{"message":"me"},
        "events":[{"name":"event","attributes":[{"key":"e","value":{"stringValue":"v"}}]}],
        "links":[{"traceId":"5b8efff798038103d280000000000001","spanId":"eee19b7ec3c1b175","traceState":"l=1"}]"#;
    let again = span(KEPT, &[text("key", "value"), text("n", "1")], more);
    let scope = format!(
        r#"{{"scope":{{"name":"scope","version":"v1"}},"spans":[{again},{again},{again}]}}"#
    );
    let body = body(&[resource(&[text("p", "prj")], &scope)]);

    let (row, attribute) = (256, 8);
    let own = (3 + 5 + attribute) + (1 + 1 + attribute) + 4 + 3 + 2;
    let nested = (5 + attribute) + (1 + 1 + attribute) + (3 + attribute);
    let (resource, scope) = (1 + 3 + attribute, 5 + 2);
    assert_eq!(
        smallest_limit("expanded_bytes_max", &body),
        3 * (row + own + nested + resource + scope)
    );
}

#[test]
fn every_attribute_counts_against_the_node_limit() {
    let two = span(KEPT, &[text("a", "1"), text("b", "1")], "");

    assert_eq!(
        smallest_limit("nodes_max", &spans(&[two.clone(), two.clone(), two])),
        7
    );
}

#[test]
fn digest_does_not_depend_on_compression() {
    let plain = spans(&[span(KEPT, &[], "")]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let body = gzip.finish().unwrap();
    let compressed = Delivery {
        encodings: vec![Encoding::Gzip],
        ..delivery(&body)
    };

    let off = policy(|_| {});
    let done = commit(
        &off,
        &KEY,
        &[compressed],
        SEGMENT,
        &mut Workspace::default(),
    );

    assert_eq!(done.record, committed(&off, &plain).record);
}

#[test]
fn receive_time_before_1970_is_preserved() {
    let early = spans(&[span(KEPT, &[], "")]);
    let early = Delivery {
        received_at_ns: -1,
        ..delivery(&early)
    };

    let done = commit(
        &policy(|_| {}),
        &KEY,
        &[early],
        SEGMENT,
        &mut Workspace::default(),
    );

    assert_eq!(
        scan::scan(&done.record).records[0].head.received_ms,
        (-1, -1)
    );
}

#[test]
fn names_over_256_bytes_are_shortened_in_their_columns_and_complete_in_the_attributes() {
    let long = |end: &str| "n".repeat(4_000) + end;
    let named = policy(|settings| {
        settings.deployment = vec![("resource".to_owned(), "d".to_owned())];
    });
    let attributes = [
        text("p", &long("project")),
        text("d", &long("deployment")),
        text("service.name", &long("service")),
    ];
    let spans = [
        span(KEPT, &[], ""),
        span(KEPT, &[text("p", &long("of the span"))], ""),
    ];
    let scope = format!(r#"{{"spans":[{}]}}"#, spans.join(","));
    let body = body(&[resource(&attributes, &scope)]);

    let done = committed(&named, &body);

    let mut block = Vec::new();
    let compressed = payload(&done);
    let mut decoder = lz4_flex::frame::FrameDecoder::new(compressed.as_slice());
    decoder.read_to_end(&mut block).unwrap();
    let stored = [block, answers(&done)];
    let projects = ["project", "of the span"].map(|end| key::bounded(&long(end)).into_owned());
    assert!(
        projects
            .iter()
            .all(|name| stored.iter().all(|bytes| contains(bytes, name.as_bytes())))
    );
    assert!(contains(&stored[0], long("project").as_bytes()));
    assert!(stored[1].len() < 1_000, "{} bytes", stored[1].len());
    assert_eq!(done.outcomes[0].reasons, [("name_shortened", 4)]);
    assert!(done.outcomes[0].message.contains("longer than 256 bytes"));

    let strict = Delivery {
        strict: true,
        ..delivery(&body)
    };
    let done = commit(&named, &KEY, &[strict], SEGMENT, &mut Workspace::default());
    assert_eq!(done.outcomes[0].verdict, Verdict::Malformed);
}

#[test]
fn sampling_rule_may_name_a_project_of_any_length() {
    let long = "n".repeat(1_000);
    let drop_project = policy(|settings| {
        "equalizing".clone_into(&mut settings.sampling_mode);
        let when = HashMap::from([("project".to_owned(), long.clone())]);
        settings.sampling_rules = vec![(when, 0.0)];
    });
    let scope = format!(r#"{{"spans":[{}]}}"#, span(KEPT, &[], ""));

    let done = committed(
        &drop_project,
        &body(&[resource(&[text("p", &long)], &scope)]),
    );

    assert_eq!(done.outcomes[0].sampled_out, 1);
}
