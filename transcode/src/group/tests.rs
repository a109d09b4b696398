//! Group commits: refused deliveries, panics, size limits and the acknowledged deliveries.

use std::collections::HashMap;

use super::*;
use crate::policy::Settings;
use crate::scan;

/// Body on which decoding panics, in tests only.
pub const PANICKING_BODY: &[u8] = b"decoding this body panics";

const RECEIVED_AT_NS: i64 = 1_800_000_000_123_456_789;
const START: &str = "1800000000000000000";
const TRACE: &str = "5b8efff798038103d269b633813fc60c";
const SEGMENT: Segment = Segment { epoch: 1, seq: 2 };
const KEY: DigestKey = DigestKey::from_words([1, 2, 3, 4]);

fn policy_of(change: impl Fn(&mut Settings)) -> Policy {
    let mut settings = Settings {
        project: vec![("resource".to_owned(), "p".to_owned())],
        retention_days: 30,
        late_margin_days: 3,
        ahead_s_max: 3_600,
        sampling_mode: "off".to_owned(),
        sampling_rate: 1.0,
        codec: "lz4".to_owned(),
        limits: HashMap::new(),
        ..Settings::default()
    };
    change(&mut settings);
    Policy::new(&settings).unwrap()
}

fn policy() -> Policy {
    policy_of(|_| {})
}

fn span(trace_id: &str, more: &str) -> String {
    format!(
        r#"{{"traceId":"{trace_id}","spanId":"eee19b7ec3c1b174","startTimeUnixNano":"{START}"{more}}}"#
    )
}

fn body(spans: &[String]) -> Vec<u8> {
    let spans = spans.join(",");
    let attributes = r#"[{"key":"p","value":{"stringValue":"prj"}}]"#;
    format!(r#"{{"resourceSpans":[{{"resource":{{"attributes":{attributes}}},"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#)
        .into_bytes()
}

fn valid_body() -> Vec<u8> {
    body(&[span(TRACE, "")])
}

fn delivery(body: &[u8]) -> Delivery<'_> {
    Delivery {
        drain: "drain",
        body,
        kind: Kind::Json,
        encodings: Vec::new(),
        received_at_ns: RECEIVED_AT_NS,
        strict: false,
        body_bytes_max: 1 << 20,
    }
}

fn committed_group(policy: &Policy, group: &[Delivery<'_>]) -> Commit {
    commit(policy, &KEY, group, SEGMENT, &mut Workspace::default())
}

fn committed(policy: &Policy, bodies: &[&[u8]]) -> Commit {
    let deliveries: Vec<_> = bodies.iter().map(|body| delivery(body)).collect();
    committed_group(policy, &deliveries)
}

fn outcome(policy: &Policy, body: &[u8]) -> Outcome {
    committed(policy, &[body]).outcomes.remove(0)
}

fn strict(body: &[u8]) -> Outcome {
    let strict = Delivery {
        strict: true,
        ..delivery(body)
    };
    committed_group(&policy(), &[strict]).outcomes.remove(0)
}

fn verdicts(done: &Commit) -> Vec<Verdict> {
    done.outcomes
        .iter()
        .map(|outcome| outcome.verdict)
        .collect()
}

#[test]
fn group_becomes_one_record_with_the_rows_of_all_deliveries() {
    let valid = valid_body();

    let done = committed(&policy(), &[&valid, &valid]);

    let scanned = scan::scan(&done.record);
    assert_eq!(scanned.records.len(), 1);
    assert_eq!((done.rows, scanned.records[0].head.rows), (2, 2));
    assert_eq!(scanned.segment, SEGMENT);
    assert_eq!(
        scanned.records[0].head.received_ms,
        (1_800_000_000_123, 1_800_000_000_123)
    );
}

#[test]
fn full_group_postpones_further_deliveries_but_accepts_its_first() {
    let heavy = heavy(GROUP_BYTES_MAX);

    let done = committed(&policy(), &[&heavy, &valid_body(), &heavy]);
    let alone = committed(&policy(), &[&valid_body()]);

    assert_eq!(
        verdicts(&done),
        [Verdict::Accepted, Verdict::Postponed, Verdict::Postponed]
    );
    assert_eq!(scan::scan(&done.record).records[0].head.rows, done.rows);
    assert_eq!(verdicts(&alone), [Verdict::Accepted]);
}

#[test]
fn too_large_delivery_counts_towards_the_size_of_its_group() {
    let policy = policy_of(|settings| {
        settings.limits.insert("spans_max".to_owned(), 1);
    });
    let (too_many, valid) = (body(&[span(TRACE, ""), span(TRACE, "")]), valid_body());
    let deliveries = [too_many.as_slice(), &valid, &valid].map(|body| Delivery {
        body_bytes_max: GROUP_BYTES_MAX / 2 + 1,
        ..delivery(body)
    });
    let [bomb, first, last] = deliveries;

    let done = committed_group(&policy, &[first, bomb.clone(), bomb, last]);

    assert_eq!(
        verdicts(&done),
        [
            Verdict::Accepted,
            Verdict::TooLarge,
            Verdict::TooLarge,
            Verdict::Postponed
        ]
    );
}

/// Returns a small body whose spans repeat a large resource, so that they exceed this size as rows.
fn heavy(bytes: usize) -> Vec<u8> {
    let value = "v".repeat(bytes / 512);
    let spans = vec![span(TRACE, ""); 513].join(",");
    let attributes = format!(r#"[{{"key":"k","value":{{"stringValue":"{value}"}}}}]"#);
    format!(r#"{{"resourceSpans":[{{"resource":{{"attributes":{attributes}}},"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#)
        .into_bytes()
}

#[test]
fn malformed_delivery_leaves_no_byte_in_the_record_of_its_group() {
    let (valid, cut) = (valid_body(), &valid_body()[..100]);

    let mixed = committed(&policy(), &[&valid, cut, &valid]);

    assert_eq!(
        verdicts(&mixed),
        [Verdict::Accepted, Verdict::Malformed, Verdict::Accepted]
    );
    assert_eq!(mixed.record, committed(&policy(), &[&valid, &valid]).record);
}

#[test]
fn panic_fails_only_its_own_delivery() {
    let valid = valid_body();

    let done = committed(&policy(), &[&valid, PANICKING_BODY, &valid]);

    assert_eq!(
        verdicts(&done),
        [Verdict::Accepted, Verdict::Crashed, Verdict::Accepted]
    );
    assert_eq!(done.record, committed(&policy(), &[&valid, &valid]).record);
}

#[test]
fn workspace_is_usable_after_a_panic() {
    let (valid, mut workspace) = (valid_body(), Workspace::default());
    let panicking = [delivery(PANICKING_BODY)];
    commit(&policy(), &KEY, &panicking, SEGMENT, &mut workspace);

    let deliveries = [delivery(&valid)];
    let after = commit(&policy(), &KEY, &deliveries, SEGMENT, &mut workspace);

    assert_eq!(after.record, committed(&policy(), &[&valid]).record);
}

#[test]
fn commit_without_acknowledged_deliveries_has_no_record() {
    assert!(committed(&policy(), &[]).record.is_empty());
    assert!(committed(&policy(), &[b"{}", b"["]).record.is_empty());
}

#[test]
fn delivery_that_is_sampled_out_completely_is_acknowledged_without_a_block() {
    let drop_all = policy_of(|settings| {
        settings.sampling_mode = "equalizing".to_owned();
        settings.sampling_rate = 0.0;
    });

    let done = committed(&drop_all, &[&valid_body()]);

    let record = scan::scan(&done.record).records[0];
    assert_eq!(
        (done.outcomes[0].verdict, done.outcomes[0].sampled_out),
        (Verdict::Accepted, 1)
    );
    assert_eq!((record.head.rows, record.payload), (0, &b""[..]));
    assert!(!record.answers.is_empty());
}

#[test]
fn acknowledgement_contains_drain_digest_time_rows_and_projects() {
    let spans = [span(TRACE, ""), span("", ""), span(TRACE, "")];

    let done = committed(&policy(), &[&body(&spans)]);

    let mut expected = b"\x91\x95\xA5drain\xC4\x10".to_vec();
    let answers = scan::scan(&done.record).records[0].answers;
    expected.extend(&answers[10..26]);
    expected.push(0xD3);
    expected.extend(RECEIVED_AT_NS.to_be_bytes());
    expected.extend(b"\x02\x91\x95\xA3prj\x03\x02\x00\x01");
    assert_eq!(answers, expected);
}

#[test]
fn digest_depends_on_drain_and_kind_but_not_on_the_receive_time() {
    let valid = valid_body();
    let digest_of = |delivery: Delivery<'_>| {
        let done = committed_group(&policy(), &[delivery]);
        let answers = scan::scan(&done.record).records[0].answers.to_vec();
        answers[answers
            .windows(2)
            .position(|pair| pair == [0xC4, 16])
            .unwrap()..][2..18]
            .to_vec()
    };
    let plain = digest_of(delivery(&valid));

    assert_eq!(
        digest_of(Delivery {
            received_at_ns: RECEIVED_AT_NS + 1,
            ..delivery(&valid)
        }),
        plain
    );
    assert_ne!(
        digest_of(Delivery {
            drain: "other",
            ..delivery(&valid)
        }),
        plain
    );
    assert_ne!(
        digest_of(Delivery {
            kind: Kind::Ndjson,
            ..delivery(&valid)
        }),
        plain
    );
}

#[test]
fn invalid_span_is_rejected_alone_and_reported_with_its_index() {
    let outcome = outcome(
        &policy(),
        &body(&[
            span(TRACE, ""),
            span("00000000000000000000000000000000", ""),
        ]),
    );

    assert_eq!(
        (outcome.verdict, outcome.stored, outcome.rejected),
        (Verdict::Accepted, 1, 1)
    );
    assert_eq!(
        outcome.message,
        "rejected (1x, first at span 1): trace id is all zeros"
    );
    assert_eq!(outcome.reasons, [("trace_id_zero", 1)]);
}

#[test]
fn delivery_of_only_invalid_spans_is_malformed() {
    let outcome = outcome(&policy(), &body(&[span("", ""), span("", "")]));

    assert_eq!(
        (outcome.verdict, outcome.received, outcome.rejected),
        (Verdict::Malformed, 2, 2)
    );
    assert!(
        outcome
            .message
            .starts_with("no valid span in the body: rejected (2x, first at span 0)")
    );
}

#[test]
fn strict_drain_refuses_deliveries_with_warnings_but_not_with_rejected_spans() {
    let kind_by_name = body(&[span(TRACE, r#","kind":"SPAN_KIND_SERVER""#)]);
    let one_invalid = body(&[span(TRACE, ""), span("", "")]);

    assert_eq!(outcome(&policy(), &kind_by_name).verdict, Verdict::Accepted);
    assert_eq!(strict(&kind_by_name).verdict, Verdict::Malformed);
    assert_eq!(
        strict(&kind_by_name).message,
        "strict drain: enum sent by name; OTLP/JSON requires the number"
    );
    assert_eq!(strict(&one_invalid).verdict, Verdict::Accepted);
}

#[test]
fn content_without_spans_gets_a_warning_and_an_empty_request_does_not() {
    let no_spans = outcome(&policy(), &body(&[]));

    assert_eq!(
        (no_spans.verdict, no_spans.received),
        (Verdict::Accepted, 0)
    );
    assert_eq!(no_spans.reasons, [("no_spans", 1)]);
    for empty in [&b"{}"[..], br#"{"resourceSpans":[{"scopeSpans":[{}]}]}"#] {
        assert_eq!(outcome(&policy(), empty).message, "");
    }
}

#[test]
fn late_spans_are_counted_without_a_warning() {
    let late = body(&[format!(
        r#"{{"traceId":"{TRACE}","spanId":"eee19b7ec3c1b174","startTimeUnixNano":"1700000000000000000"}}"#
    )]);

    let outcome = outcome(&policy(), &late);

    assert_eq!(
        (outcome.message.as_str(), outcome.reasons),
        ("", vec![("late", 1)])
    );
}

#[test]
fn spans_without_a_project_are_counted() {
    let without_project = policy_of(|settings| settings.project.clear());

    assert_eq!(outcome(&policy(), &valid_body()).unresolved, 0);
    assert_eq!(outcome(&without_project, &valid_body()).unresolved, 1);
}

#[test]
fn expansion_of_a_resource_by_its_spans_is_limited() {
    let mut small = policy();
    small.limits.expanded_bytes_max = 1_000;

    let few_spans = outcome(&small, &body(&[span(TRACE, "")]));
    let many_spans = outcome(&small, &body(&vec![span(TRACE, ""); 10]));

    assert_eq!(
        (few_spans.verdict, many_spans.verdict),
        (Verdict::Accepted, Verdict::TooLarge)
    );
}

#[test]
fn limits_of_a_delivery_are_enforced() {
    let limit =
        |name: &str| policy_of(|settings| settings.limits = HashMap::from([(name.to_owned(), 1)]));
    let two = body(&[span(TRACE, ""), span(TRACE, "")]);
    let attributes = r#","attributes":[{"key":"a","value":{}},{"key":"b","value":{}}]"#;

    assert_eq!(
        outcome(&limit("spans_max"), &two).verdict,
        Verdict::TooLarge
    );
    assert_eq!(
        outcome(&limit("nodes_max"), &body(&[span(TRACE, attributes)])).verdict,
        Verdict::TooLarge
    );
    assert_eq!(
        outcome(&limit("body_bytes_max"), &two).verdict,
        Verdict::Accepted,
        "the limit of the drain applies"
    );
    assert_eq!(
        outcome(&limit("attributes_max"), &body(&[span(TRACE, attributes)])).reasons,
        [("attributes_over_limit", 1)]
    );
}
