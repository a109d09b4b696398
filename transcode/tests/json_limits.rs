//! Hostile bodies: nested, long, or many elements; the effect of each limit.

mod recording;

use _transcode::limits::Limits;
use _transcode::refusal::Verdict;
use _transcode::visit::Warning::{self, DoubleRange, IntAsDouble, ValueBare, ValueTooDeep};
use recording::{attribute_with, decode, refusal_of, span_with};

fn nested_arrays(levels: usize) -> String {
    attribute_with(&format!(
        "{}{}",
        r#"{"arrayValue":{"values":["#.repeat(levels),
        "]}}".repeat(levels)
    ))
}

#[test]
fn value_nested_too_deep_is_replaced_by_a_marker() {
    let brackets =
        |open: usize, inner: &str| format!("{}{inner}{}", "[".repeat(open), "]".repeat(open));
    let bare_maps = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    let cases: [(&str, String, String, &[Warning]); 6] = [
        ("J35a", nested_arrays(64), brackets(64, ""), &[]),
        ("J35b", nested_arrays(60), brackets(60, ""), &[]),
        (
            "J35c",
            nested_arrays(65),
            brackets(64, "\"…\""),
            &[ValueTooDeep],
        ),
        (
            "J35c",
            nested_arrays(130),
            brackets(64, "\"…\""),
            &[ValueTooDeep],
        ),
        (
            "J35d",
            attribute_with(&brackets(70, "1")),
            brackets(64, "\"…\""),
            &[ValueBare, ValueTooDeep],
        ),
        (
            "J35d",
            attribute_with(&bare_maps(65)),
            bare_maps(64).replace('1', "\"…\""),
            &[ValueTooDeep, ValueBare],
        ),
    ];
    for (id, body, stored, warnings) in cases {
        let recording = decode(&body).unwrap();

        assert!(
            recording
                .text()
                .contains(&format!("Span.k={stored}⏎}}span")),
            "{id}"
        );
        assert_eq!(recording.warnings, *warnings, "{id}");
    }
}

#[test]
fn document_nested_too_deep_is_malformed() {
    let levels = Limits::default().json_depth_max as usize;
    let inside = |nested: String| format!(r#"{{"zzz":{nested}}}"#);

    assert_eq!(
        decode(inside(format!(
            "{}{}",
            "[".repeat(levels - 1),
            "]".repeat(levels - 1)
        )))
        .unwrap()
        .unknown,
        1
    );
    for body in [
        inside(format!("{}{}", "[".repeat(levels), "]".repeat(levels))),
        inside("[".repeat(1_000_000)),
        inside(r#"{"a":"#.repeat(1_000_000)),
        attribute_with(&"[".repeat(1_000_000)),
        attribute_with(&r#"{"a":"#.repeat(1_000_000)),
        attribute_with(&r#"{"kvlistValue":{"values":[{"value":"#.repeat(1_000_000)),
        nested_arrays(100_000),
    ] {
        let refusal = refusal_of(&body);

        assert!(refusal.reason.contains("nests deeper"), "{refusal}");
    }
    assert_eq!(
        refusal_of("[".repeat(1_000_000)).verdict,
        Verdict::Malformed
    );
}

#[test]
fn long_numbers_and_names_are_malformed_beyond_their_limits() {
    let nines = |count: usize| attribute_with(&format!(r#"{{"intValue":{}}}"#, "9".repeat(count)));
    let name = |count: usize| span_with(&format!(r#""{}":1"#, "x".repeat(count)));

    assert_eq!(
        decode(nines(400)).unwrap().warnings,
        [IntAsDouble, DoubleRange]
    );
    assert!(
        refusal_of(nines(401))
            .reason
            .contains("number literal longer")
    );
    assert_eq!(decode(name(64 << 10)).unwrap().stored, 1);
    assert!(
        refusal_of(name((64 << 10) + 1))
            .reason
            .contains("name longer")
    );
}

#[test]
fn body_of_64_mib_of_one_token_is_refused_in_one_pass() {
    let much = 64 << 20;
    for body in [
        [b"{\"a\":".as_slice(), &vec![b'9'; much]].concat(),
        [b"{\"a\":\"".as_slice(), &vec![b'x'; much]].concat(),
        [b"{\"a\":\"".as_slice(), &vec![b'\\'; much]].concat(),
    ] {
        assert_eq!(refusal_of(&body).verdict, Verdict::Malformed);
    }
}

#[test]
fn nested_elements_count_against_the_node_limit() {
    let body = attribute_with(
        r#"{"arrayValue":{"values":[{"intValue":1},{"kvlistValue":{"values":[{"key":"a"}]}}]}}"#,
    );

    // Two attributes, two elements, one pair.
    assert_eq!(decode(&body).unwrap().nodes, 5);
}

#[test]
fn refusal_of_the_visitor_ends_decoding() {
    let mut recording = recording::Recording {
        nodes_max: Some(3),
        ..Default::default()
    };
    let body = attribute_with(&format!("[{}1]", "1,".repeat(1000)));

    let result = _transcode::json::decode(
        body.as_bytes(),
        &Limits::default(),
        false,
        &mut _transcode::json::Scratch::default(),
        &mut recording,
    );

    assert_eq!(result.unwrap_err().verdict, Verdict::TooLarge);
    assert_eq!(recording.nodes, 4);
}
