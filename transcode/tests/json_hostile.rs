//! Bodies that are not JSON, not a trace request, or hostile.

mod recording;

use _transcode::limits::Limits;
use _transcode::refusal::Verdict;
use _transcode::visit::Warning::NullElement;
use proptest::prelude::*;
use recording::{IDS, attribute_with, decode, decode_within, refusal_of, request, span_with};

fn valid_body() -> String {
    span_with(
        r#""attributes":[{"key":"k","value":{"arrayValue":{"values":[{"intValue":"1"},{"doubleValue":-1.5e3}]}}}],"events":[{"name":"\u00e9","timeUnixNano":5}],"status":{"code":"STATUS_CODE_OK"},"zzz":[true,false,null,{}]"#,
    )
}

#[test]
fn body_other_than_one_json_object_is_malformed_with_a_hint() {
    let utf_16: Vec<u8> = valid_body()
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let utf_16_be: Vec<u8> = [0xfeff]
        .into_iter()
        .chain(valid_body().encode_utf16())
        .flat_map(u16::to_be_bytes)
        .collect();
    let utf_32: Vec<u8> = valid_body()
        .chars()
        .flat_map(|letter| u32::from(letter).to_be_bytes())
        .collect();
    let cases: [(&str, &[u8], &str); 17] = [
        ("J01", b"", "empty body"),
        ("J01", b" \r\n\t", "empty body"),
        ("J04a", b"null", "bare value"),
        ("J04b", b"[]", "a list"),
        ("J04d", b"-1.5", "bare value"),
        ("J09", &utf_16, "UTF-16"),
        ("J09", &utf_16_be, "UTF-16"),
        ("J09", &utf_32, "UTF-16 or UTF-32"),
        (
            "J37",
            &[valid_body(), valid_body()].join("\n").into_bytes(),
            "application/x-ndjson",
        ),
        ("J37", b"{}{}", "application/x-ndjson"),
        ("J07", b"{} x", "application/x-ndjson"),
        ("J38", b"[{}]", "send each request by itself"),
        ("", b"\x1f\x8b\x08\x00\x00\x00", "Content-Encoding: gzip"),
        ("", b"\x28\xb5\x2f\xfd\x04\x00", "Content-Encoding: zstd"),
        ("", b"\x0a\x02\x12\x00", "application/x-protobuf"),
        (
            "",
            &[b"\x0a\x7b\x12\x00".as_slice(), &[0x20; 121]].concat(),
            "application/x-protobuf",
        ),
        ("", b"resourceSpans=1", "not JSON"),
    ];
    for (id, body, hint) in cases {
        let refusal = refusal_of(body);

        assert_eq!(
            (refusal.verdict, refusal.field),
            (Verdict::Malformed, "body"),
            "{id}"
        );
        assert!(refusal.reason.contains(hint), "{id} {hint}: {refusal}");
    }
}

/// Body, the field named in the refusal, and part of the hint.
type RefusedBody = (&'static str, &'static str, &'static str);

fn assert_malformed(cases: &[RefusedBody]) {
    for &(body, field, hint) in cases {
        let refusal = refusal_of(body);

        assert_eq!(
            (refusal.verdict, refusal.field),
            (Verdict::Malformed, field),
            "{body}"
        );
        assert!(refusal.reason.contains(hint), "{body}: {refusal}");
    }
}

#[test]
fn requests_of_other_signals_are_malformed_and_named() {
    assert_malformed(&[
        (r#"{"resourceLogs":[]}"#, "resource_logs", "traces only"),
        (
            r#"{"resource_metrics":[]}"#,
            "resource_metrics",
            "traces only",
        ),
        (
            r#"{"resourceProfiles":[]}"#,
            "resource_profiles",
            "traces only",
        ),
    ]);
}

#[test]
fn envelopes_of_the_wrong_type_are_malformed_and_named() {
    assert_malformed(&[
        (
            r#"{"resourceSpans":5}"#,
            "resource_spans",
            "a number; expected a list",
        ),
        (
            r#"{"resourceSpans":{}}"#,
            "resource_spans",
            "an object; expected a list",
        ),
        (
            r#"{"resourceSpans":["x"]}"#,
            "resource_spans",
            "a string; expected an object",
        ),
        (
            r#"{"resourceSpans":[{"resource":[]}]}"#,
            "resource_spans.resource",
            "a list; expected an object",
        ),
        (
            r#"{"resourceSpans":[{"scopeSpans":"x"}]}"#,
            "resource_spans.scope_spans",
            "a string",
        ),
        (
            r#"{"resourceSpans":[{"scopeSpans":[true]}]}"#,
            "resource_spans.scope_spans",
            "a boolean",
        ),
        (
            r#"{"resourceSpans":[{"scopeSpans":[{"scope":5}]}]}"#,
            "resource_spans.scope_spans.scope",
            "a number",
        ),
        (
            r#"{"resourceSpans":[{"scopeSpans":[{"spans":{}}]}]}"#,
            "resource_spans.scope_spans.spans",
            "an object",
        ),
    ]);
}

/// Tokens that other parsers accept and JSON does not.
const INVALID_TOKENS: &[&str] = &[
    "NaN",
    "Infinity",
    "-Infinity",
    "-",
    "+1",
    "01",
    "1.",
    ".5",
    "1e",
    "0x10",
    "tru",
    "nul",
    "True",
    "undefined",
    "'x'",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{,}",
    r#"{"a":1,}"#,
    r#"{"a" 1}"#,
    "{a:1}",
    r#"{"a"}"#,
    "{1:2}",
    "[}",
    "{]",
    r#""\x41""#,
    r#""\u12""#,
    "\"\x01\"",
    "\"a\tb\"",
    "\"a\nb\"",
    r#"{"\x":1}"#,
    "/* c */ 1",
    "1 // c",
    "\u{a0}1",
    "é",
    "",
    r#""abc"#,
    r#""abc\"#,
];

#[test]
fn invalid_tokens_are_malformed_at_every_position() {
    for value in INVALID_TOKENS {
        for body in [
            attribute_with(&format!(r#"{{"stringValue":{value}}}"#)),
            attribute_with(value),
            span_with(&format!(r#""zzz":{value}"#)),
            span_with(&format!(r#""name":{value}"#)),
            span_with(&format!(r#""flags":{value}"#)),
            format!(r#"{{"zzz":{value}}}"#),
        ] {
            let refusal = refusal_of(&body);

            assert_eq!(
                (refusal.verdict, refusal.field),
                (Verdict::Malformed, "body"),
                "{body}"
            );
            assert!(!refusal.reason.contains("zzz"), "{refusal}");
        }
    }
}

#[test]
fn invalid_utf8_is_accepted_only_inside_strings() {
    let mut body = attribute_with(r#"{"stringValue":"x?y"}"#).into_bytes();
    let place = body.iter().position(|&byte| byte == b'?').unwrap();
    body[place] = 0xff;

    assert!(decode(&body).unwrap().text().contains("Span.k=x\u{fffd}y"));
    assert_eq!(
        refusal_of([valid_body().as_bytes(), b"\xff"].concat()).verdict,
        Verdict::Malformed
    );
    assert_eq!(refusal_of(b"{\xff}").verdict, Verdict::Malformed);
}

#[test]
fn byte_order_mark_and_white_space_are_skipped() {
    let plain = decode(valid_body()).unwrap();

    assert_eq!(decode(format!("\u{feff}{}", valid_body())).unwrap(), plain);
    assert_eq!(
        decode(format!(" \r\n\t{}\r\n ", valid_body())).unwrap(),
        plain
    );
}

#[test]
fn truncated_body_is_malformed() {
    let body = valid_body();
    for end in 0..body.len() {
        assert_eq!(
            refusal_of(&body[..end]).verdict,
            Verdict::Malformed,
            "cut at {end}"
        );
    }
}

#[test]
fn span_that_is_not_an_object_is_rejected_and_null_is_skipped() {
    let recording = decode(request(&format!(r#"5,"x",[{{}}],true,null,{{{IDS}}}"#))).unwrap();

    assert_eq!((recording.stored, recording.rejected), (1, 4));
    assert_eq!(recording.text().matches("!span_not_object").count(), 4);
    assert_eq!(recording.warnings, [NullElement]);
}

#[test]
fn empty_requests_report_nothing_and_unknown_content_is_counted() {
    for (body, unknown) in [
        ("{}", 0),
        (r#"{"resourceSpans":null}"#, 0),
        (
            r#"{"resourceSpans":[{"resource":null,"scopeSpans":null,"schemaUrl":null}]}"#,
            0,
        ),
        (
            r#"{"resourceSpans":[{"resource":{"schemaUrl":"x","entityRefs":[{}],"droppedAttributesCount":1}}]}"#,
            0,
        ),
        (r#"{"spans":[{}]}"#, 1),
        (
            r#"{"foo":{},"resourceSpans":[{"x":1,"resource":{"y":2},"scopeSpans":[{"z":3,"scope":{"w":4}}]}]}"#,
            5,
        ),
    ] {
        let recording = decode(body).unwrap();

        assert_eq!(
            (recording.stored, recording.unknown),
            (0, unknown),
            "{body}"
        );
        assert_eq!(recording.warnings, [], "{body}");
    }
}

#[test]
fn ndjson_is_one_request_per_line_all_or_nothing() {
    let ndjson = |body: &str| decode_within(body, &Limits::default(), true);
    let line = valid_body();

    assert_eq!(
        ndjson(&format!("{line}\n{line}\r\n\n \r\n{line}"))
            .unwrap()
            .stored,
        3
    );
    assert_eq!(ndjson(&format!("\u{feff}{line}\n")).unwrap().stored, 1);
    assert_eq!(ndjson("").unwrap().stored, 0);
    for broken in [
        format!("{line}\n{}", &line[..line.len() - 1]),
        format!("{line} {line}\n"),
        line.replacen(',', ",\n", 1),
        format!("{line}\nnull"),
        format!("{line}\n[{line}]"),
    ] {
        assert_eq!(ndjson(&broken).unwrap_err().verdict, Verdict::Malformed);
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(body: Vec<u8>, ndjson: bool) {
        let _ = decode_within(&body, &Limits::default(), ndjson);
    }

    #[test]
    fn random_json_like_text_never_panics(body in "[\\[\\]{}:,\"\\\\ntf0-9eE.+a-]{0,200}") {
        let _ = decode(format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"attributes":[{body}"#));
    }

    #[test]
    fn valid_body_with_changed_bytes_never_panics(
        changes in prop::collection::vec((0usize..1000, any::<u8>()), 1..8),
    ) {
        let mut body = valid_body().into_bytes();
        let body_bytes = body.len();
        for (place, byte) in changes {
            body[place % body_bytes] = byte;
        }

        let _ = decode(&body);
    }

    #[test]
    fn valid_body_with_a_part_repeated_or_removed_never_panics(
        from in 0usize..1000, bytes in 0usize..200, to in 0usize..1000,
    ) {
        let body = valid_body().into_bytes();
        let from = from % body.len();
        let part = &body[from..(from + bytes).min(body.len())];
        let to = to % body.len();

        let _ = decode([&body[..to], part, &body[to..]].concat());
        let _ = decode([&body[..from], &body[from + part.len()..]].concat());
    }
}
