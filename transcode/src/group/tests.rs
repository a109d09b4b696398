//! Commits as claims: who is refused, what stays of the others, what is answered for.

use std::collections::HashMap;

use super::*;
use crate::policy::Wishes;
use crate::scan;

/// The body on which decoding panics, in tests.
pub const PANICKING_BODY: &[u8] = b"panic, please";

const RECEIVED_AT_NS: i64 = 1_800_000_000_123_456_789;
const START: &str = "1800000000000000000";
const TRACE: &str = "5b8efff798038103d269b633813fc60c";
const SEGMENT: Segment = Segment { epoch: 1, seq: 2 };
const KEY: DigestKey = DigestKey::from_words([1, 2, 3, 4]);

fn policy_of(change: impl Fn(&mut Wishes)) -> Policy {
    let mut wishes = Wishes {
        project: vec![("resource".to_owned(), "p".to_owned())],
        retention_days: 30,
        late_margin_days: 3,
        ahead_s_max: 3_600,
        sampling_mode: "off".to_owned(),
        sampling_rate: 1.0,
        codec: "lz4".to_owned(),
        limits: HashMap::new(),
        ..Wishes::default()
    };
    change(&mut wishes);
    Policy::new(&wishes).unwrap()
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

fn good() -> Vec<u8> {
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

fn only(policy: &Policy, body: &[u8]) -> Outcome {
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
fn a_group_becomes_one_record_with_the_rows_of_all() {
    let good = good();

    let done = committed(&policy(), &[&good, &good]);

    let found = scan::scan(&done.record);
    assert_eq!(
        (done.rows, found.records.len(), found.records[0].head.rows),
        (2, 1, 2)
    );
    assert_eq!(found.segment, SEGMENT);
    assert_eq!(
        found.records[0].head.received_ms,
        (1_800_000_000_123, 1_800_000_000_123)
    );
}

#[test]
fn a_group_that_has_come_to_much_takes_no_further_delivery_but_always_its_first() {
    let heavy = heavy(GROUP_BYTES_MAX);

    let done = committed(&policy(), &[&heavy, &good(), &heavy]);
    let alone = committed(&policy(), &[&good()]);

    assert_eq!(
        verdicts(&done),
        [Verdict::Accepted, Verdict::Postponed, Verdict::Postponed]
    );
    assert_eq!(scan::scan(&done.record).records[0].head.rows, done.rows);
    assert_eq!(verdicts(&alone), [Verdict::Accepted]);
}

#[test]
fn what_was_refused_for_its_size_counts_for_its_group() {
    let policy = policy_of(|wishes| {
        wishes.limits.insert("spans_max".to_owned(), 1);
    });
    let (too_many, good) = (body(&[span(TRACE, ""), span(TRACE, "")]), good());
    let deliveries = [too_many.as_slice(), &good, &good].map(|body| Delivery {
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

/// A small body whose spans repeat one large resource until they are over so many bytes as rows.
fn heavy(bytes: usize) -> Vec<u8> {
    let value = "v".repeat(bytes / 512);
    let spans = vec![span(TRACE, ""); 513].join(",");
    let attributes = format!(r#"[{{"key":"k","value":{{"stringValue":"{value}"}}}}]"#);
    format!(r#"{{"resourceSpans":[{{"resource":{{"attributes":{attributes}}},"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#)
        .into_bytes()
}

#[test]
fn a_malformed_delivery_leaves_no_byte_in_its_neighbours_record() {
    let (good, cut) = (good(), &good()[..100]);

    let mixed = committed(&policy(), &[&good, cut, &good]);

    assert_eq!(
        verdicts(&mixed),
        [Verdict::Accepted, Verdict::Malformed, Verdict::Accepted]
    );
    assert_eq!(mixed.record, committed(&policy(), &[&good, &good]).record);
}

#[test]
fn a_panic_costs_its_delivery_only() {
    let good = good();

    let done = committed(&policy(), &[&good, PANICKING_BODY, &good]);

    assert_eq!(
        verdicts(&done),
        [Verdict::Accepted, Verdict::Crashed, Verdict::Accepted]
    );
    assert_eq!(done.record, committed(&policy(), &[&good, &good]).record);
}

#[test]
fn a_workspace_that_saw_a_panic_works_on() {
    let (good, mut workspace) = (good(), Workspace::default());
    let panicking = [delivery(PANICKING_BODY)];
    commit(&policy(), &KEY, &panicking, SEGMENT, &mut workspace);

    let after = commit(&policy(), &KEY, &[delivery(&good)], SEGMENT, &mut workspace);

    assert_eq!(after.record, committed(&policy(), &[&good]).record);
}

#[test]
fn a_commit_with_nothing_to_answer_for_has_no_record() {
    assert!(committed(&policy(), &[]).record.is_empty());
    assert!(committed(&policy(), &[b"{}", b"["]).record.is_empty());
}

#[test]
fn spans_that_were_all_sampled_out_are_answered_for_without_a_block() {
    let drop_all = policy_of(|wishes| {
        wishes.sampling_mode = "equalizing".to_owned();
        wishes.sampling_rate = 0.0;
    });

    let done = committed(&drop_all, &[&good()]);

    let record = scan::scan(&done.record).records[0];
    assert_eq!(
        (done.outcomes[0].verdict, done.outcomes[0].sampled_out),
        (Verdict::Accepted, 1)
    );
    assert_eq!((record.head.rows, record.payload), (0, &b""[..]));
    assert!(!record.answers.is_empty());
}

#[test]
fn an_answer_names_drain_digest_time_rows_and_projects() {
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
fn the_digest_is_of_drain_kind_and_unpacked_body() {
    let good = good();
    let digest_of = |delivery: Delivery<'_>| {
        let done = committed_group(&policy(), &[delivery]);
        let answers = scan::scan(&done.record).records[0].answers.to_vec();
        answers[answers
            .windows(2)
            .position(|two| two == [0xC4, 16])
            .unwrap()..][2..18]
            .to_vec()
    };
    let plain = digest_of(delivery(&good));

    assert_eq!(
        digest_of(Delivery {
            received_at_ns: RECEIVED_AT_NS + 1,
            ..delivery(&good)
        }),
        plain
    );
    assert_ne!(
        digest_of(Delivery {
            drain: "other",
            ..delivery(&good)
        }),
        plain
    );
    assert_ne!(
        digest_of(Delivery {
            kind: Kind::Ndjson,
            ..delivery(&good)
        }),
        plain
    );
}

#[test]
fn one_bad_span_costs_one_span_and_is_told_with_its_place() {
    let outcome = only(
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
fn a_delivery_of_bad_spans_only_is_malformed() {
    let outcome = only(&policy(), &body(&[span("", ""), span("", "")]));

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
fn strict_turns_warnings_into_refusals_but_not_rejections() {
    let kind_by_name = body(&[span(TRACE, r#","kind":"SPAN_KIND_SERVER""#)]);
    let one_bad = body(&[span(TRACE, ""), span("", "")]);

    assert_eq!(only(&policy(), &kind_by_name).verdict, Verdict::Accepted);
    assert_eq!(strict(&kind_by_name).verdict, Verdict::Malformed);
    assert_eq!(
        strict(&kind_by_name).message,
        "strict drain: enum sent by name; OTLP/JSON wants the number"
    );
    assert_eq!(strict(&one_bad).verdict, Verdict::Accepted);
}

#[test]
fn content_without_spans_is_warned_about_and_an_empty_request_is_not() {
    let no_spans = only(&policy(), &body(&[]));

    assert_eq!(
        (no_spans.verdict, no_spans.received),
        (Verdict::Accepted, 0)
    );
    assert_eq!(no_spans.reasons, [("no_spans", 1)]);
    for empty in [&b"{}"[..], br#"{"resourceSpans":[{"scopeSpans":[{}]}]}"#] {
        assert_eq!(only(&policy(), empty).message, "");
    }
}

#[test]
fn late_spans_are_counted_and_not_warned_about() {
    let late = body(&[format!(
        r#"{{"traceId":"{TRACE}","spanId":"eee19b7ec3c1b174","startTimeUnixNano":"1700000000000000000"}}"#
    )]);

    let outcome = only(&policy(), &late);

    assert_eq!(
        (outcome.message.as_str(), outcome.reasons),
        ("", vec![("late", 1)])
    );
}

#[test]
fn spans_without_a_project_are_counted() {
    let nowhere = policy_of(|wishes| wishes.project.clear());

    assert_eq!(only(&policy(), &good()).unresolved, 0);
    assert_eq!(only(&nowhere, &good()).unresolved, 1);
}

#[test]
fn a_resource_may_not_be_multiplied_without_bound() {
    let mut small = policy();
    small.limits.expanded_bytes_max = 1_000;

    let one = only(&small, &body(&[span(TRACE, "")]));
    let many = only(&small, &body(&vec![span(TRACE, ""); 10]));

    assert_eq!(
        (one.verdict, many.verdict),
        (Verdict::Accepted, Verdict::TooLarge)
    );
}

#[test]
fn limits_of_the_delivery_are_kept() {
    let limit =
        |name: &str| policy_of(|wishes| wishes.limits = HashMap::from([(name.to_owned(), 1)]));
    let two = body(&[span(TRACE, ""), span(TRACE, "")]);
    let attributes = r#","attributes":[{"key":"a","value":{}},{"key":"b","value":{}}]"#;

    assert_eq!(only(&limit("spans_max"), &two).verdict, Verdict::TooLarge);
    assert_eq!(
        only(&limit("nodes_max"), &body(&[span(TRACE, attributes)])).verdict,
        Verdict::TooLarge
    );
    assert_eq!(
        only(&limit("body_bytes_max"), &two).verdict,
        Verdict::Accepted,
        "the drain's own limit counts"
    );
    assert_eq!(
        only(&limit("attributes_max"), &body(&[span(TRACE, attributes)])).reasons,
        [("attributes_over_limit", 1)]
    );
}
