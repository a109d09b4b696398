//! Equivalent documents: random requests have the same result with names in any order, and with blanks and
//! escapes wherever JSON allows them.

mod recording;

use std::fmt::Write as _;

use proptest::prelude::*;
use recording::{Recording, recording_of, request};

#[test]
fn span_is_decoded_by_its_own_names_whatever_previous_spans_had() {
    let recording = recording_of(&request(
        r#"{"name":"a","kind":1},{"name":"b","kind":2},{"kind":3,"name":"c"},{ "name":"d"},{},{"n\u0061me":"e","trace_state":"x"},{"name":"f","trace_state":"y"}"#,
    ));

    let spans: Vec<_> = recording
        .lines
        .iter()
        .filter(|line| line.starts_with("}span"))
        .collect();
    for (span, part) in spans.iter().zip([
        "name=a kind=1",
        "name=b kind=2",
        "name=c kind=3",
        "name=d kind=0",
        "name= kind=0",
        "state=x name=e kind=0",
        "state=y name=f kind=0",
    ]) {
        assert!(span.contains(part), "{part}: {span}");
    }
    assert_eq!(recording.warning_keys(), "snake_case_keys snake_case_keys");
}

#[test]
fn escaped_snake_case_names_equal_unescaped_names() {
    let plain = r#"{"resource_spans":[{"scope_spans":[{"schema_url":"u","spans":[{"trace_id":"5b8efff798038103d269b633813fc60c","span_id":"eee19b7ec3c1b174","parent_span_id":"eee19b7ec3c1b173","trace_state":"s","start_time_unix_nano":5,"dropped_links_count":1}]}]}]}"#;
    let escaped = plain.replace('_', r"\u005f");

    let (plain, escaped) = (recording_of(plain), recording_of(&escaped));

    assert!(plain.lines.iter().any(|line| line.starts_with("}span")));
    assert_eq!(escaped.lines, plain.lines);
    assert_eq!(escaped.warning_keys(), plain.warning_keys());
    assert!(escaped.warning_keys().contains("snake_case_keys"));
}

/// A JSON document that can be written in several ways.
#[derive(Clone, Debug)]
enum Json {
    Literal(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

use Json::{List, Literal, Object, Text};

fn object(members: Vec<(&str, Json)>) -> Json {
    Object(
        members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

/// Writes a document with choices from random bytes, and in the usual form once they are used up.
struct Encoder<'c> {
    choices: std::slice::Iter<'c, u8>,
}

impl Encoder<'_> {
    fn choice(&mut self) -> u8 {
        self.choices.next().copied().unwrap_or(0)
    }

    fn blank(&mut self, out: &mut String) {
        out.push_str(match self.choice() % 8 {
            7 => "\r\n",
            6 => "\t ",
            5 => "\n",
            4 => " ",
            _ => "",
        });
    }

    fn text(&mut self, text: &str, out: &mut String) {
        out.push('"');
        for letter in text.chars() {
            if letter < ' ' || matches!(letter, '"' | '\\') || self.choice() % 16 == 15 {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            } else {
                out.push(letter);
            }
        }
        out.push('"');
    }

    fn write(&mut self, json: &Json, out: &mut String) {
        self.blank(out);
        match json {
            Literal(literal) => out.push_str(literal),
            Text(text) => self.text(text, out),
            List(elements) => {
                out.push('[');
                for (place, element) in elements.iter().enumerate() {
                    out.push_str(if place == 0 { "" } else { "," });
                    self.write(element, out);
                }
                out.push(']');
            }
            Object(members) => self.object(members, out),
        }
        self.blank(out);
    }

    fn object(&mut self, members: &[(String, Json)], out: &mut String) {
        let mut shuffled: Vec<&(String, Json)> = members.iter().collect();
        for place in (1..shuffled.len()).rev() {
            shuffled.swap(place, place - usize::from(self.choice()) % (place + 1));
        }
        out.push('{');
        for (place, (name, value)) in shuffled.into_iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            self.blank(out);
            self.text(name, out);
            self.blank(out);
            out.push(':');
            self.write(value, out);
        }
        out.push('}');
    }
}

fn written(json: &Json, choices: &[u8]) -> String {
    let mut out = String::new();
    Encoder {
        choices: choices.iter(),
    }
    .write(json, &mut out);
    out
}

fn texts() -> impl Strategy<Value = Json> {
    "[a-z\"\\\\\n\u{0}é😀]{0,12}".prop_map(Text)
}

fn values() -> impl Strategy<Value = Json> {
    let scalars = prop_oneof![
        texts().prop_map(|text| object(vec![("stringValue", text)])),
        any::<i64>().prop_map(|int| object(vec![("intValue", Text(int.to_string()))])),
        any::<i64>().prop_map(|int| object(vec![("intValue", Literal(int.to_string()))])),
        any::<bool>().prop_map(|flag| object(vec![("boolValue", Literal(flag.to_string()))])),
        (-1e9..1e9f64)
            .prop_map(|double| object(vec![("doubleValue", Literal(double.to_string()))])),
        Just(Object(vec![])),
        Just(Literal("null".into())),
    ];
    scalars.prop_recursive(3, 12, 4, |inner| {
        let lists = prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            lists.prop_map(|values| object(vec![(
                "arrayValue",
                object(vec![("values", List(values))])
            )])),
            pairs(inner)
                .prop_map(|pairs| object(vec![("kvlistValue", object(vec![("values", pairs)]))])),
        ]
    })
}

fn pairs(values: impl Strategy<Value = Json>) -> impl Strategy<Value = Json> {
    let pair =
        (texts(), values).prop_map(|(key, value)| object(vec![("key", key), ("value", value)]));
    prop::collection::vec(pair, 0..4).prop_map(List)
}

fn spans_strategy() -> impl Strategy<Value = Json> {
    let events = (texts(), any::<u64>(), pairs(values())).prop_map(|(name, time, attributes)| {
        object(vec![
            ("timeUnixNano", Text(time.to_string())),
            ("name", name),
            ("attributes", attributes),
        ])
    });
    let links = pairs(values()).prop_map(|attributes| {
        object(vec![
            ("traceId", Text("ab".repeat(16))),
            ("spanId", Text("cd".repeat(8))),
            ("attributes", attributes),
        ])
    });
    let fields = (texts(), 0..9i32, any::<u64>(), any::<u32>(), texts());
    let lists = (
        pairs(values()),
        prop::collection::vec(events, 0..3),
        prop::collection::vec(links, 0..3),
    );
    (fields, lists).prop_map(
        |((name, kind, time, flags, message), (attributes, events, links))| {
            object(vec![
                ("traceId", Text("0123456789abcdef".repeat(2))),
                ("spanId", Text("0123456789abcdef".into())),
                ("name", name),
                ("kind", Literal(kind.to_string())),
                ("startTimeUnixNano", Text(time.to_string())),
                ("endTimeUnixNano", Literal(time.to_string())),
                ("flags", Literal(flags.to_string())),
                (
                    "status",
                    object(vec![("code", Literal("2".into())), ("message", message)]),
                ),
                ("attributes", attributes),
                ("events", List(events)),
                ("links", List(links)),
                (
                    "zzz",
                    object(vec![("traceId", List(vec![Literal("-1.5e3".into())]))]),
                ),
            ])
        },
    )
}

fn requests() -> impl Strategy<Value = Json> {
    let scope = (
        texts(),
        pairs(values()),
        prop::collection::vec(spans_strategy(), 0..3),
        texts(),
    )
        .prop_map(|(name, attributes, spans, schema_url)| {
            let scope = object(vec![("name", name), ("attributes", attributes)]);
            object(vec![
                ("scope", scope),
                ("spans", List(spans)),
                ("schemaUrl", schema_url),
            ])
        });
    let resource = (pairs(values()), prop::collection::vec(scope, 0..3), texts()).prop_map(
        |(attributes, scopes, schema_url)| {
            let resource = object(vec![("attributes", attributes)]);
            object(vec![
                ("resource", resource),
                ("scopeSpans", List(scopes)),
                ("schemaUrl", schema_url),
            ])
        },
    );
    prop::collection::vec(resource, 0..3)
        .prop_map(|resources| object(vec![("resourceSpans", List(resources))]))
}

/// Orders each span's attributes before its events before its links.
fn normalised(mut recording: Recording) -> Recording {
    let mut parts = Vec::new();
    let (mut span, mut part) = (0, 0);
    for line in &recording.lines {
        match line.split(['{', '.', ' ']).next() {
            Some("span") => span += 1,
            Some("event") => part = 1,
            Some("link") => part = 2,
            Some("}span") => part = 3,
            _ => {}
        }
        parts.push((span, part));
        if line.starts_with("}event") || line.starts_with("}link") || line.starts_with("}span") {
            part = if line.starts_with("}span") { 4 } else { 0 };
        }
        if line.starts_with("span{") {
            part = 0;
        }
    }
    let mut lines: Vec<_> = parts.into_iter().zip(recording.lines).collect();
    lines.sort_by_key(|(part, _)| *part);
    recording.lines = lines.into_iter().map(|(_, line)| line).collect();
    recording
}

proptest! {
    #[test]
    fn equivalent_documents_have_the_same_result(
        request in requests(), choices in prop::collection::vec(any::<u8>(), 0..4000),
    ) {
        let usual = normalised(recording_of(&written(&request, &[])));
        let unusual = normalised(recording_of(&written(&request, &choices)));

        prop_assert_eq!(usual, unusual);
    }
}
