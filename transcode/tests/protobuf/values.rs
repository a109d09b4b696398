//! Attribute values: every type as stored text, merging of `oneof`, nesting and its limits.

use _transcode::limits::Limits;
use _transcode::visit::Warning;

use crate::encode::{double, fixed64, int, len};
use crate::support::Recording;
use crate::{body_of_attribute, decode, decode_within};

/// Returns an `ArrayValue` of these `AnyValue`s.
fn array(elements: &[Vec<u8>]) -> Vec<u8> {
    len(
        5,
        elements
            .iter()
            .map(|element| len(1, element))
            .collect::<Vec<_>>()
            .concat(),
    )
}

/// Returns a `KeyValueList` of these keys and `AnyValue`s.
fn list(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let pair = |(key, value): &(&str, Vec<u8>)| len(1, [len(1, key), len(2, value)].concat());
    len(6, pairs.iter().map(pair).collect::<Vec<_>>().concat())
}

fn nested(depth: u32) -> Vec<u8> {
    (0..depth).fold(len(1, "x"), |inner, _| array(&[inner]))
}

fn recording_of(any_value: impl AsRef<[u8]>) -> Recording {
    decode(&body_of_attribute(&[len(2, any_value)])).unwrap()
}

fn value_in(recording: &Recording) -> &str {
    let (key, value) = &recording.spans().next().unwrap().attributes[0];
    assert_eq!(key, "k");
    value
}

fn stored(any_value: impl AsRef<[u8]>) -> String {
    value_in(&recording_of(any_value)).to_owned()
}

#[test]
fn scalars_are_stored_without_quotes() {
    for (any_value, text) in [
        (len(1, "text"), "text"),
        (len(1, ""), ""),
        (int(2, 0), "false"),
        (int(2, 7), "true"),
        (int(3, i64::MIN), "-9223372036854775808"),
        (double(4, -0.0), "-0"),
        (double(4, f64::NAN), "NaN"),
        (double(4, 0.1), "0.1"),
        (len(7, [0xfb, 0xff]), "+/8="),
        (vec![], ""),
    ] {
        assert_eq!(stored(any_value), text);
    }
}

#[test]
fn missing_values_are_stored_as_empty_text() {
    let recording = decode(&crate::body_of_span(&[
        len(9, ""),
        len(9, len(2, len(1, "v"))),
    ]))
    .unwrap();

    let attributes = &recording.spans().next().unwrap().attributes;
    assert_eq!(
        attributes,
        &[
            (String::new(), String::new()),
            (String::new(), "v".to_owned())
        ]
    );
}

#[test]
fn string_table_indices_are_treated_as_absent() {
    let body = body_of_attribute(&[len(2, [len(1, "v"), int(8, 3)].concat()), int(3, 4)]);

    assert_eq!(value_in(&decode(&body).unwrap()), "v");
}

#[test]
fn arrays_and_lists_are_compact_json_in_arrival_order() {
    let any_value = list(&[
        (
            "z",
            array(&[
                int(3, -1),
                double(4, 1.5),
                double(4, f64::INFINITY),
                int(2, 1),
                vec![],
            ]),
        ),
        ("a", list(&[])),
        ("z", array(&[])),
        ("b\"", len(7, "foo")),
        ("", len(1, "\n")),
    ]);

    assert_eq!(
        stored(any_value),
        r#"{"z":[-1,1.5,"Infinity",true,null],"a":{},"z":[],"b\"":"Zm9v","":"\n"}"#
    );
}

#[test]
fn element_without_a_value_is_null() {
    assert_eq!(
        stored(len(6, [len(1, len(1, "a")), len(1, "")].concat())),
        r#"{"a":null,"":null}"#
    );
}

#[test]
fn last_member_of_a_value_counts() {
    assert_eq!(stored([len(1, "s"), int(3, 5)].concat()), "5");
    assert_eq!(stored([array(&[int(3, 1)]), len(1, "s")].concat()), "s");
    assert_eq!(stored([len(1, "s"), array(&[int(3, 1)])].concat()), "[1]");
}

#[test]
fn array_or_list_in_pieces_is_concatenated() {
    let pieces = [list(&[("a", int(3, 1))]), list(&[("b", int(3, 2))])];
    assert_eq!(stored(pieces.concat()), r#"{"a":1,"b":2}"#);

    let nested = array(&[
        [array(&[int(3, 1)]), int(900, 1), array(&[int(3, 2)])].concat(),
        int(3, 3),
    ]);
    assert_eq!(stored(nested), "[[1,2],3]");
}

#[test]
fn another_member_between_the_pieces_starts_a_new_value() {
    let element = |number| array(&[int(3, number)]);

    assert_eq!(
        stored([element(1), len(1, "s"), element(2), element(3)].concat()),
        "[2,3]"
    );
    assert_eq!(stored([element(1), list(&[]), element(2)].concat()), "[2]");
}

#[test]
fn repeated_value_is_merged() {
    let element = |number| len(2, array(&[int(3, number)]));

    let merged = decode(&body_of_attribute(&[
        element(1),
        int(900, 1),
        element(2),
        len(1, "k"),
        element(3),
    ]));
    let scalars = decode(&body_of_attribute(&[
        len(2, len(1, "first")),
        len(2, int(3, 2)),
        len(2, ""),
    ]));
    let inner = len(1, [len(1, "a"), element(1), element(2)].concat());

    assert_eq!(value_in(&merged.unwrap()), "[1,2,3]");
    assert_eq!(value_in(&scalars.unwrap()), "2");
    assert_eq!(stored(len(6, inner)), r#"{"a":[1,2]}"#);
}

#[test]
fn nesting_beyond_the_limit_is_replaced_by_a_marker() {
    let at_limit = recording_of(nested(64));
    assert_eq!(
        value_in(&at_limit),
        format!("{}\"x\"{}", "[".repeat(64), "]".repeat(64))
    );
    assert_eq!(at_limit.warnings, []);

    let below = recording_of(array(&[nested(64), nested(64), int(3, 1)]));
    let inner = format!("{}\"…\"{}", "[".repeat(63), "]".repeat(63));
    assert_eq!(value_in(&below), format!("[{inner},{inner},1]"));
    assert_eq!(below.warnings, [Warning::ValueTooDeep]);
}

#[test]
fn extremely_deep_value_does_not_overflow_the_stack() {
    let levels = 20_000;
    let mut body = Vec::new();
    for _ in 0..levels {
        body = len(5, len(1, body));
    }

    let recording = recording_of(body);

    assert_eq!(recording.warnings, [Warning::ValueTooDeep]);
    assert_eq!(recording.node_count, 1 + 64);
}

#[test]
fn nested_values_count_against_the_node_limit() {
    let limits = Limits {
        nodes_max: 4,
        ..Limits::default()
    };
    let body = |count| body_of_attribute(&[len(2, len(5, len(1, "").repeat(count)))]);

    assert_eq!(
        value_in(&decode_within(limits, &body(3)).unwrap()),
        "[null,null,null]"
    );
    assert_eq!(decode_within(limits, &body(4)).unwrap_err().field, "nodes");
}

#[test]
fn writing_stops_at_the_text_limit() {
    let limits = Limits {
        text_bytes_max: 100,
        ..Limits::default()
    };
    let zeros = vec![0; 1_000_000];
    for any_value in [
        array(&[len(1, &zeros)]),
        array(&[len(7, &zeros)]),
        list(&[(std::str::from_utf8(&zeros).unwrap(), vec![])]),
        array(&vec![vec![]; 10_000]),
        len(7, &zeros),
    ] {
        let recording = decode_within(limits, &body_of_attribute(&[len(2, any_value)])).unwrap();

        assert!((101..1_000).contains(&value_in(&recording).len()));
    }
}

#[test]
fn malformed_value_refuses_the_body() {
    for any_value in [
        vec![0x0a, 5],
        len(5, [0x0a, 5]),
        len(6, len(1, [0x12, 5])),
        vec![0x80],
        fixed64(3, 1),
    ] {
        let refusal = decode(&body_of_attribute(&[len(2, any_value)])).unwrap_err();

        assert!(refusal.field.starts_with("attributes"), "{refusal}");
    }
}
