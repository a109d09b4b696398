//! What a commit may not show: spans that were taken back, attributes known unread, a workspace used before.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic in a test is the point"
)]

use std::collections::HashMap;
use std::io::{Read, Write};

use _transcode::block::Segment;
use _transcode::digest::DigestKey;
use _transcode::group::{Commit, Delivery, Kind, Workspace, commit};
use _transcode::key;
use _transcode::outcome::Verdict;
use _transcode::policy::{Policy, Wishes};
use _transcode::scan;
use _transcode::unpack::Encoding;

const NOW_NS: i64 = 1_800_000_000_000_000_000;
const SEGMENT: Segment = Segment { epoch: 1, seq: 2 };
const KEY: DigestKey = DigestKey::from_words([1, 2, 3, 4]);
const KEPT: &str = "5b8efff798038103d280000000000000";
const DROPPED: &str = "5b8efff798038103d27fffffffffffff";

fn policy(change: impl FnOnce(&mut Wishes)) -> Policy {
    let at = |place: &str, key: &str| (place.to_owned(), key.to_owned());
    let mut wishes = Wishes {
        project: vec![at("span", "p"), at("resource", "p")],
        sampling_mode: "off".to_owned(),
        sampling_rate: 1.0,
        ahead_s_max: 3_600,
        codec: "lz4".to_owned(),
        ..Wishes::default()
    };
    change(&mut wishes);
    Policy::new(&wishes).unwrap()
}

fn sampling(mode: &str, rate: f64) -> Policy {
    policy(|wishes| {
        mode.clone_into(&mut wishes.sampling_mode);
        wishes.sampling_rate = rate;
    })
}

fn limited(name: &str, limit: i64) -> Policy {
    policy(|wishes| wishes.limits = HashMap::from([(name.to_owned(), limit)]))
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

/// Spans of one resource, which belongs to a project.
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

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_span_that_is_not_kept_leaves_no_byte_in_the_block() {
    let more = r#","events":[{"name":"e","attributes":[{"key":"ek","value":{"intValue":"9"}}]}],
        "links":[{"traceId":"5b8efff798038103d280000000000001","spanId":"eee19b7ec3c1b175","traceState":"l=1"}]"#;
    let kept = span(KEPT, &[text("a", "1")], "");
    let half = sampling("equalizing", 0.5);
    let alone = committed(&half, &spans(&[kept.clone(), kept.clone()]));

    for other in [DROPPED, "0"] {
        let gone = span(other, &[text("gone", "x"), text("a", "2")], more);
        let among = [gone.clone(), kept.clone(), gone.clone(), kept.clone(), gone];
        let done = committed(&half, &spans(&among));

        assert_eq!(done.outcomes[0].stored, 2);
        assert_eq!(payload(&done), payload(&alone), "{other}");
    }
}

#[test]
fn a_resource_without_spans_leaves_no_byte_in_the_block() {
    let scope = format!(r#"{{"spans":[{}]}}"#, span(KEPT, &[], ""));
    let full = resource(&[text("p", "prj")], &scope);
    let empty = resource(&[text("p", "prj"), text("x", "y")], "");
    let off = policy(|_| {});

    let done = committed(&off, &body(&[empty, full.clone()]));

    assert_eq!(payload(&done), payload(&committed(&off, &body(&[full]))));
}

#[test]
fn a_span_at_the_threshold_is_kept_and_one_below_is_not() {
    let half = sampling("equalizing", 0.5);

    let done = committed(
        &half,
        &spans(&[span(KEPT, &[], ""), span(DROPPED, &[], "")]),
    );

    let outcome = &done.outcomes[0];
    assert_eq!((outcome.stored, outcome.sampled_out), (1, 1));
}

#[test]
fn what_a_span_asks_for_is_heard_however_often_it_was_spelled_so() {
    let none = sampling("hash_seed", 0.0);
    let asking = span(KEPT, &[text("sampling.priority", "1")], "");
    let silent = span(KEPT, &[text("other", "1")], "");
    let all = [
        asking.clone(),
        silent.clone(),
        asking.clone(),
        silent,
        asking,
    ];

    let done = committed(&none, &spans(&all));

    let outcome = &done.outcomes[0];
    assert_eq!((outcome.stored, outcome.sampled_out), (3, 2));
}

#[test]
fn a_span_belongs_to_the_project_it_names_however_often_it_was_spelled_so() {
    let own = span(KEPT, &[text("p", "own")], "");
    let silent = span(KEPT, &[text("q", "own")], "");
    let scope = format!(
        r#"{{"spans":[{}]}}"#,
        [own.clone(), own.clone(), silent, own].join(",")
    );

    let done = committed(&policy(|_| {}), &body(&[resource(&[], &scope)]));

    assert_eq!(done.outcomes[0].unresolved, 1);
    assert!(holds(&answers(&done), b"\xA3own\x03\x03\x00\x00"));
}

#[test]
fn a_rule_looks_at_the_project_that_the_span_itself_names() {
    let named = HashMap::from([("project".to_owned(), "own".to_owned())]);
    let rules = policy(|wishes| {
        wishes.sampling_mode = "equalizing".to_owned();
        wishes.sampling_rules = vec![(named, 0.0)];
    });

    let done = committed(
        &rules,
        &spans(&[span(KEPT, &[text("p", "own")], ""), span(KEPT, &[], "")]),
    );

    let outcome = &done.outcomes[0];
    assert_eq!((outcome.stored, outcome.sampled_out), (1, 1));
}

#[test]
fn a_workspace_that_was_used_before_shows_nothing_of_it() {
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
fn attributes_over_the_limit_are_dropped_also_when_their_spelling_is_known() {
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

/// The least of a limit that lets this body pass.
fn least(name: &str, body: &[u8]) -> i64 {
    let passes = |limit: i64| {
        let done = committed(&limited(name, limit), body);
        done.outcomes[0].verdict == Verdict::Accepted
    };
    let (mut too_little, mut enough) = (0, 1 << 20);
    while enough - too_little > 1 {
        let middle = i64::midpoint(too_little, enough);
        if passes(middle) {
            enough = middle;
        } else {
            too_little = middle;
        }
    }
    enough
}

#[test]
fn everything_that_becomes_rows_is_paid_for() {
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
        least("expanded_bytes_max", &body),
        3 * (row + own + nested + resource + scope)
    );
}

#[test]
fn attributes_are_paid_for_one_by_one_up_to_their_limit() {
    let two = span(KEPT, &[text("a", "1"), text("b", "1")], "");

    assert_eq!(
        least("nodes_max", &spans(&[two.clone(), two.clone(), two])),
        7
    );
}

#[test]
fn a_body_has_one_digest_however_it_was_packed() {
    let plain = spans(&[span(KEPT, &[], "")]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let body = gzip.finish().unwrap();
    let packed = Delivery {
        encodings: vec![Encoding::Gzip],
        ..delivery(&body)
    };

    let off = policy(|_| {});
    let done = commit(&off, &KEY, &[packed], SEGMENT, &mut Workspace::default());

    assert_eq!(done.record, committed(&off, &plain).record);
}

#[test]
fn a_delivery_from_before_1970_is_received_then() {
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
fn names_over_256_bytes_are_shortened_in_their_columns_and_whole_in_the_attributes() {
    let long = |end: &str| "n".repeat(4_000) + end;
    let named = policy(|wishes| {
        wishes.deployment = vec![("resource".to_owned(), "d".to_owned())];
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
            .all(|name| stored.iter().all(|bytes| holds(bytes, name.as_bytes())))
    );
    assert!(holds(&stored[0], long("project").as_bytes()));
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
fn a_sampling_rule_may_name_a_project_of_any_length() {
    let long = "n".repeat(1_000);
    let nothing_of_it = policy(|wishes| {
        "equalizing".clone_into(&mut wishes.sampling_mode);
        let when = HashMap::from([("project".to_owned(), long.clone())]);
        wishes.sampling_rules = vec![(when, 0.0)];
    });
    let scope = format!(r#"{{"spans":[{}]}}"#, span(KEPT, &[], ""));

    let done = committed(
        &nothing_of_it,
        &body(&[resource(&[text("p", &long)], &scope)]),
    );

    assert_eq!(done.outcomes[0].sampled_out, 1);
}
