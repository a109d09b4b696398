//! Member order is irrelevant: resources and scopes are reported before their spans, wherever they occur.

mod recording;

use _transcode::visit::Warning::{self, InstrumentationLibrary};
use recording::{IDS, recording_of};

const RESOURCE: &str = r#""resource":{"attributes":[{"key":"r","value":{"intValue":1}}]}"#;
const RESOURCE_2: &str = r#""resource":{"attributes":[{"key":"s","value":{"intValue":2}}]}"#;
const SCOPE: &str = r#""scope":{"name":"n","attributes":[{"key":"t","value":{"intValue":3}}]}"#;
const SCOPE_2: &str = r#""scope":{"version":"v"}"#;

fn spans() -> String {
    format!(r#""spans":[{{{IDS},"name":"a"}}]"#)
}

fn element(members: &[&str]) -> String {
    format!(r#"{{"resourceSpans":[{{{}}}]}}"#, members.join(","))
}

fn scope_spans(members: &[&str]) -> String {
    format!(r#""scopeSpans":[{{{}}}]"#, members.join(","))
}

#[test]
fn late_resource_or_scope_is_reported_before_the_spans() {
    let spans = spans();
    let usual = recording_of(&element(&[
        RESOURCE,
        &scope_spans(&[SCOPE, &spans, r#""schemaUrl":"y""#]),
        r#""schemaUrl":"z""#,
    ]));

    for body in [
        element(&[
            &scope_spans(&[&spans, SCOPE, r#""schemaUrl":"y""#]),
            r#""schemaUrl":"z""#,
            RESOURCE,
        ]),
        element(&[
            r#""schemaUrl":"z""#,
            RESOURCE,
            &scope_spans(&[r#""schemaUrl":"y""#, &spans, SCOPE]),
        ]),
        element(&[
            r#""scopeSpans":[]"#,
            &scope_spans(&[SCOPE, &spans, r#""schemaUrl":"y""#]),
            RESOURCE,
            r#""schemaUrl":"z""#,
        ]),
    ] {
        assert_eq!(recording_of(&body), usual, "{body}");
    }
    assert_eq!(usual.restarts, 0);
}

#[test]
fn repeated_resource_or_scope_after_its_spans_is_merged() {
    let spans = spans();
    let usual = recording_of(&element(&[
        RESOURCE,
        RESOURCE_2,
        &scope_spans(&[SCOPE, SCOPE_2, &spans]),
    ]));

    for body in [
        element(&[
            RESOURCE,
            &scope_spans(&[SCOPE, SCOPE_2, &spans]),
            RESOURCE_2,
        ]),
        element(&[
            RESOURCE,
            RESOURCE_2,
            &scope_spans(&[SCOPE, &spans, SCOPE_2]),
        ]),
        element(&[
            RESOURCE,
            &scope_spans(&[SCOPE, &spans, SCOPE_2]),
            RESOURCE_2,
        ]),
    ] {
        let recording = recording_of(&body);

        assert_eq!(
            (&recording.lines, recording.restarts),
            (&usual.lines, 1),
            "{body}"
        );
    }
    assert!(
        usual
            .text()
            .contains("Resource.r=1⏎Resource.s=2⏎resource:⏎scope{⏎Scope.t=3⏎scope n@v:")
    );
}

#[test]
fn lists_of_the_same_name_are_concatenated() {
    let spans = spans();
    let scopes = scope_spans(&[SCOPE, &spans, &spans]);
    let list = element(&[RESOURCE, &scopes, &scopes]);
    let twice = format!("{},{}", &list[..list.len() - 1], &list[1..]);

    assert_eq!(recording_of(&twice).stored, 8);
    assert_eq!(recording_of(&twice).text().matches("resource{").count(), 2);
}

#[test]
fn instrumentation_libraries_are_scopes_unless_there_are_scopes() {
    let spans = spans();
    let old = format!(
        r#""instrumentationLibrarySpans":[{{{spans},"instrumentationLibrary":{{"name":"n"}}}}]"#
    );
    let cases: [(String, u32, &[Warning]); 4] = [
        (
            element(&[&old, RESOURCE]),
            1,
            &[InstrumentationLibrary, InstrumentationLibrary],
        ),
        (
            element(&[&old, r#""scopeSpans":[]"#]),
            1,
            &[InstrumentationLibrary, InstrumentationLibrary],
        ),
        (element(&[&old, &old]), 2, &[InstrumentationLibrary; 4]),
        (
            element(&[&old, &scope_spans(&[&spans, &spans, &spans])]),
            3,
            &[InstrumentationLibrary],
        ),
    ];
    for (body, stored, warnings) in cases {
        let recording = recording_of(&body);

        assert_eq!(recording.stored, stored, "{body}");
        assert_eq!(recording.warnings, warnings, "{body}");
        assert_eq!(recording.text().contains("scope n@:"), stored < 3, "{body}");
    }
}
