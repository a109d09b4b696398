//! Messages of a request: order, merging, ids, limits, and hints for wrong requests.

use _transcode::limits::Limits;
use _transcode::refusal::Verdict;
use _transcode::visit::{Rejection, Warning};

use crate::encode::{fixed32, fixed64, int, len, varint};
use crate::{SPAN, TRACE, body_of_span, decode, decode_span, decode_within, span_fields};

fn attribute(key: &str, value: &str) -> Vec<u8> {
    [len(1, key), len(2, len(1, value))].concat()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn every_field_of_a_span_is_reported() {
    let event = [
        fixed64(1, 5),
        len(2, "boom"),
        len(3, attribute("e", "1")),
        int(4, 9),
    ]
    .concat();
    let link = [
        len(1, TRACE),
        len(2, SPAN),
        len(3, "l=1"),
        len(4, attribute("l", "1")),
    ]
    .concat();
    let status = [len(2, "bad"), int(3, 2)].concat();
    let span = decode_span(&body_of_span(&[
        len(3, "k=v"),
        len(4, SPAN),
        len(9, attribute("a", "1")),
        int(10, 3),
        len(11, event),
        int(12, 4),
        len(13, link),
        int(14, 5),
        len(15, status),
        fixed32(16, u32::MAX),
    ]));

    let fields = &span.fields;
    assert_eq!((fields.trace_id, fields.span_id), (Ok(TRACE), Ok(SPAN)));
    assert_eq!(fields.parent_span_id, Some(SPAN));
    assert_eq!(
        (fields.trace_state.as_str(), fields.name.as_str()),
        ("k=v", "GET /")
    );
    assert_eq!(fields.kind, 2);
    assert_eq!(
        fields.times,
        (1_700_000_000_000_000_000, 1_700_000_000_000_000_009)
    );
    assert_eq!(fields.status, (2, "bad".to_owned()));
    assert_eq!(fields.flags, u32::MAX);
    assert_eq!(fields.dropped, (3, 4, 5));
    assert_eq!(span.attributes, [pair("a", "1")]);
    assert_eq!(
        (span.events[0].time_unix_nano, span.events[0].name.as_str()),
        (5, "boom")
    );
    assert_eq!(span.events[0].attributes, [pair("e", "1")]);
    assert_eq!(
        (span.links[0].ids, span.links[0].trace_state.as_str()),
        (Some((TRACE, SPAN)), "l=1")
    );
    assert_eq!(span.links[0].attributes, [pair("l", "1")]);
}

#[test]
fn resource_and_scope_after_their_spans_are_reported_first() {
    let scope = [len(1, "lib"), len(2, "2.0"), len(3, attribute("s", "1"))].concat();
    let scope_spans = [
        len(2, span_fields().concat()),
        len(3, "of scope"),
        len(1, scope),
    ]
    .concat();
    let body = len(
        1,
        [
            len(2, scope_spans),
            len(3, "of resource"),
            len(1, len(1, attribute("r", "1"))),
        ]
        .concat(),
    );

    let recording = decode(&body).unwrap();

    let resource = &recording.resources[0];
    assert_eq!(resource.attributes, [pair("r", "1")]);
    assert_eq!(resource.schema_url, "of resource");
    let scope = &resource.scopes[0];
    assert_eq!(
        (scope.name.as_str(), scope.version.as_str()),
        ("lib", "2.0")
    );
    assert_eq!(scope.attributes, [pair("s", "1")]);
    assert_eq!(scope.schema_url, "of scope");
    assert_eq!(scope.spans.len(), 1);
}

#[test]
fn repeated_messages_are_merged_and_the_last_scalar_counts() {
    let scope = [
        len(1, len(1, "first")),
        len(1, [len(1, "last"), len(3, attribute("s", "1"))].concat()),
    ];
    let span = [
        span_fields().concat(),
        len(15, int(3, 2)),
        len(15, len(2, "bad")),
        len(5, "renamed"),
    ];
    let scope_spans = [scope.concat(), len(2, span.concat())].concat();
    let resources = [
        len(1, len(1, attribute("a", "1"))),
        len(1, len(1, attribute("b", "2"))),
    ];

    let recording = decode(&len(1, [resources.concat(), len(2, scope_spans)].concat())).unwrap();

    assert_eq!(
        recording.resources[0].attributes,
        [pair("a", "1"), pair("b", "2")]
    );
    assert_eq!(recording.resources[0].scopes[0].name, "last");
    assert_eq!(
        recording.resources[0].scopes[0].attributes,
        [pair("s", "1")]
    );
    let span = recording.spans().next().unwrap();
    assert_eq!(span.fields.status, (2, "bad".to_owned()));
    assert_eq!(span.fields.name, "renamed");
}

#[test]
fn concatenated_requests_are_one_request() {
    let body = body_of_span(&[]);

    assert_eq!(
        decode(&[body.clone(), body].concat())
            .unwrap()
            .resources
            .len(),
        2
    );
}

#[test]
fn empty_body_and_empty_envelopes_are_empty_requests() {
    for body in [vec![], len(1, ""), len(1, len(2, ""))] {
        let recording = decode(&body).unwrap();

        assert_eq!(
            (
                recording.spans().count(),
                recording.unknown_count,
                recording.warnings.len()
            ),
            (0, 0, 0)
        );
    }
}

#[test]
fn instrumentation_library_spans_are_read_without_scope_spans() {
    let library = [len(1, "lib"), len(2, "1.0")].concat();
    let old = len(
        1000,
        [
            len(1, library),
            len(2, span_fields().concat()),
            len(3, "url"),
        ]
        .concat(),
    );

    let alone = decode(&len(1, &old)).unwrap();
    let with_both = decode(&len(1, [old, len(2, "")].concat())).unwrap();

    assert_eq!(alone.warnings, [Warning::InstrumentationLibrary]);
    let scope = &alone.resources[0].scopes[0];
    assert_eq!(
        (scope.name.as_str(), scope.version.as_str()),
        ("lib", "1.0")
    );
    assert_eq!((scope.schema_url.as_str(), scope.spans.len()), ("url", 1));
    assert_eq!(with_both.spans().count(), 0);
    assert_eq!(with_both.warnings, [Warning::InstrumentationLibrary]);
}

#[test]
fn invalid_id_rejects_only_its_span() {
    let bad = [len(1, &TRACE[..15]), len(2, [0; 8])].concat();
    let spans = [len(2, bad), len(2, span_fields().concat())].concat();

    let recording = decode(&len(1, len(2, spans))).unwrap();

    let fields = &recording.spans().next().unwrap().fields;
    assert_eq!(fields.trace_id, Err(Rejection::TraceIdMalformed));
    assert_eq!(fields.span_id, Err(Rejection::SpanIdZero));
    assert_eq!(recording.kept_and_rejected(), (1, 1));
}

#[test]
fn invalid_parent_is_dropped_and_invalid_link_is_reported_without_ids() {
    let recording = decode(&body_of_span(&[len(4, "abc"), len(13, len(1, "abc"))])).unwrap();

    let span = recording.spans().next().unwrap();
    assert_eq!(span.fields.parent_span_id, None);
    assert_eq!(span.links[0].ids, None);
    assert_eq!(recording.warnings, [Warning::ParentDropped]);
}

#[test]
fn limit_of_the_visitor_refuses_the_delivery() {
    let limits = Limits {
        resources_max: 3,
        scopes_max: 3,
        spans_max: 3,
        nodes_max: 3,
        ..Limits::default()
    };
    let scope = |spans: Vec<u8>| len(1, len(2, spans));
    for (field, of_count) in [
        (
            "resources",
            &(|count| len(1, "").repeat(count)) as &dyn Fn(usize) -> Vec<u8>,
        ),
        ("scopes", &|count| len(1, len(2, "").repeat(count))),
        ("spans", &|count| scope(len(2, "").repeat(count))),
        ("nodes", &|count| scope(len(2, len(9, "").repeat(count)))),
        ("nodes", &|count| {
            scope(len(2, len(11, len(3, "").repeat(count))))
        }),
        ("nodes", &|count| len(1, len(1, len(1, "").repeat(count)))),
    ] {
        assert!(decode_within(limits, &of_count(3)).is_ok(), "{field}");
        let refusal = decode_within(limits, &of_count(4)).unwrap_err();
        assert_eq!((refusal.verdict, refusal.field), (Verdict::TooLarge, field));
    }
}

#[test]
fn five_million_empty_spans_are_refused_at_the_limit() {
    let body = len(1, len(2, len(2, "").repeat(5_000_000)));

    assert_eq!(decode(&body).unwrap_err().field, "spans");
}

#[test]
fn refusal_hints_at_what_the_body_probably_is() {
    let message = body_of_span(&[]);
    let grpc = [&[0, 0, 0, 0], &varint(message.len() as u64)[..], &message].concat();
    let log = [fixed64(1, 1), int(2, 9), len(3, "INFO")].concat();
    let late_log = fixed64(11, 1);
    let sum = [len(1, "requests"), len(7, "")].concat();
    let gauge = [
        len(1, "http.requests"),
        len(2, "desc"),
        len(3, "1"),
        len(5, ""),
    ]
    .concat();
    for (body, hint) in [
        (b"{\"resourceSpans\":[]}".to_vec(), "the body is JSON"),
        (b" \n{ }".to_vec(), "the body is JSON"),
        (b"[{}]".to_vec(), "the body is JSON"),
        (grpc, "gRPC"),
        (len(1, len(2, len(2, log))), "is this a logs request?"),
        (len(1, len(2, len(2, late_log))), "is this a logs request?"),
        (len(1, len(2, len(2, sum))), "is this a metrics request?"),
        (len(1, len(2, len(2, gauge))), "is this a metrics request?"),
    ] {
        let refusal = decode(&body).unwrap_err();
        assert_eq!(refusal.verdict, Verdict::Malformed);
        assert!(refusal.reason.contains(hint), "{refusal}");
    }
}

#[test]
fn invalid_trace_id_next_to_a_valid_span_is_not_a_metric() {
    let gauge = len(2, [len(1, "http.requests"), len(2, "desc")].concat());
    let body = len(1, len(2, [gauge, len(2, span_fields().concat())].concat()));

    assert_eq!(decode(&body).unwrap().kept_and_rejected(), (1, 1));
}
