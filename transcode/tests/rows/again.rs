//! An attribute that is spelled as one before is known unread: nothing may show it.

use std::collections::BTreeMap;

use _transcode::columns::Columns;
use _transcode::json::{self, Scratch};
use _transcode::otlp;
use _transcode::put;
use _transcode::rows::Rows;

use super::{DRAIN, RECEIVED_AT_NS, policy, rows_of};

/// Values that look alike, end alike, hold what ends an attribute, or are kept otherwise than they came.
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

/// Rows and warnings of one body with these spans.
fn told(
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
fn a_json_span_among_others_is_the_row_that_it_is_alone() {
    let values = VALUES.iter().cycle().take(3 * VALUES.len());
    let spans: Vec<_> = values
        .enumerate()
        .map(|(ordinal, value)| span(ordinal, value))
        .collect();

    let together = told(&spans, &mut Columns::default());

    let (mut rows, mut warned) = (Vec::new(), BTreeMap::new());
    for span in &spans {
        let alone = told(std::slice::from_ref(span), &mut Columns::default());
        rows.extend(alone.0);
        for (reason, count) in alone.1 {
            *warned.entry(reason).or_default() += count;
        }
    }
    assert_eq!(together, (rows, warned));
}

#[test]
fn what_json_remembers_says_nothing_in_protobuf() {
    let mut columns = Columns::default();
    let spans: Vec<_> = (0..3).map(|ordinal| span(ordinal, VALUES[0])).collect();
    told(&spans, &mut columns);
    let attribute = r#"{"key":"a","value":{"stringValue":"a"}}"#.as_bytes();
    let ids = [message(0x0a, &[7; 16]), message(0x12, &[7; 8])].concat();
    let span = [ids, message(0x4a, attribute)].concat();
    let body = message(0x0a, &message(0x12, &message(0x12, &span)));

    let policy = policy();
    let mut rows = Rows::new(&policy, &mut columns, DRAIN, RECEIVED_AT_NS, None);
    let told = otlp::decode(&body, &policy.limits, &mut rows);

    assert!(told.is_err(), "a group without an end, and no attribute");
}

fn message(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    put::text(&mut out, content);
    out
}

/// A protobuf span with these whole numbers as attributes.
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
fn an_attribute_that_was_dropped_is_not_taken_for_the_one_before_it() {
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
