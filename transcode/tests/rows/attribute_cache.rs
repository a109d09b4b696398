//! Attributes recognised by their cached bytes give the same rows as parsed attributes.

use std::collections::BTreeMap;

use _transcode::columns::Columns;
use _transcode::json::{self, Scratch};
use _transcode::otlp;
use _transcode::put;
use _transcode::rows::Rows;

use super::{DRAIN, RECEIVED_AT_NS, policy, rows_of};

/// Values that are similar, end equally, contain the end of an attribute, or are stored changed.
const VALUES: [&str; 12] = [
    r#"{"stringValue":"a"}"#,
    r#"{"stringValue":"a}}"}"#,
    r#"{"stringValue":"a}}b"}"#,
    r#"{"stringValue":"a}}b\n"}"#,
    r#"{"stringValue":"longer than the longest text that these limits allow"}"#,
    r#"{"intValue":"7"}"#,
    r#"{"intValue":7}"#,
    r#"{"intValue":"07"}"#,
    r#"{"doubleValue":0.5}"#,
    r#"{ "boolValue": true}"#,
    r#"{"kvlistValue":{"values":[]}}"#,
    r#"{"stringValue":null}"#,
];

fn span(ordinal: usize, value: &str) -> String {
    let attribute = |key: &str| format!(r#"{{"key":"{key}","value":{value}}}"#);
    format!(
        r#"{{"traceId":"{:032x}","spanId":"{:016x}","attributes":[{},{}]}}"#,
        7,
        ordinal + 1,
        attribute("a"),
        attribute("b")
    )
}

/// Returns the rows and warnings of one body with these spans.
fn rows_and_warnings(
    spans: &[String],
    columns: &mut Columns,
) -> (Vec<Vec<String>>, BTreeMap<&'static str, u32>) {
    let policy = policy();
    let body = format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#,
        spans.join(",")
    );
    let mut rows = Rows::new(&policy, columns, DRAIN, RECEIVED_AT_NS, None);
    json::decode(
        body.as_bytes(),
        &policy.limits,
        false,
        &mut Scratch::default(),
        &mut rows,
    )
    .unwrap();
    let warned = rows.finish().unwrap().reasons().into_iter().collect();
    (rows_of(columns), warned)
}

#[test]
fn json_span_gives_the_same_row_alone_and_among_others() {
    let values = VALUES.iter().cycle().take(3 * VALUES.len());
    let spans: Vec<_> = values
        .enumerate()
        .map(|(ordinal, value)| span(ordinal, value))
        .collect();

    let together = rows_and_warnings(&spans, &mut Columns::default());

    let (mut rows, mut warned) = (Vec::new(), BTreeMap::new());
    for span in &spans {
        let alone = rows_and_warnings(std::slice::from_ref(span), &mut Columns::default());
        rows.extend(alone.0);
        for (reason, count) in alone.1 {
            *warned.entry(reason).or_default() += count;
        }
    }
    assert_eq!(together, (rows, warned));
}

#[test]
fn cached_json_attributes_are_not_used_for_protobuf() {
    let mut columns = Columns::default();
    let spans: Vec<_> = (0..3).map(|ordinal| span(ordinal, VALUES[0])).collect();
    rows_and_warnings(&spans, &mut columns);
    let attribute = r#"{"key":"a","value":{"stringValue":"a"}}"#.as_bytes();
    let ids = [message(0x0a, &[7; 16]), message(0x12, &[7; 8])].concat();
    let span = [ids, message(0x4a, attribute)].concat();
    let body = message(0x0a, &message(0x12, &message(0x12, &span)));

    let policy = policy();
    let mut rows = Rows::new(&policy, &mut columns, DRAIN, RECEIVED_AT_NS, None);
    let result = otlp::decode(&body, &policy.limits, &mut rows);

    assert!(
        result.is_err(),
        "the attribute must not be recognised in a group without an end"
    );
}

fn message(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    put::text(&mut out, content);
    out
}

/// Returns a protobuf span with these integers as attributes.
fn numbered(ordinal: u8, numbers: &[(&str, u8)]) -> Vec<u8> {
    let ids = [message(0x0a, &[7; 16]), message(0x12, &[ordinal; 8])].concat();
    let attributes = numbers.iter().map(|(key, number)| {
        let value = message(0x12, &[0x18, *number]);
        message(0x4a, &[message(0x0a, key.as_bytes()), value].concat())
    });
    message(
        0x12,
        &[ids, attributes.collect::<Vec<_>>().concat()].concat(),
    )
}

#[test]
fn dropped_attribute_is_not_confused_with_the_previous_attribute() {
    let full = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("k", 5), ("k", 7)];
    let spans = [
        numbered(1, &[("k", 5)]),
        numbered(2, &full),
        numbered(3, &[("k", 7)]),
    ];
    let body = message(0x0a, &message(0x12, &spans.concat()));
    let (policy, mut columns) = (policy(), Columns::default());
    assert_eq!(policy.limits.attributes_max, 5);

    let mut rows = Rows::new(&policy, &mut columns, DRAIN, RECEIVED_AT_NS, None);
    otlp::decode(&body, &policy.limits, &mut rows).unwrap();
    rows.finish().unwrap();

    let (keys, values) = columns.attributes.entries(2);
    assert_eq!(columns.attributes.keys.text(keys[0]), "k");
    assert_eq!(columns.attributes.values.text(values[0]), "7");
}
