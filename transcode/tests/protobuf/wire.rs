//! Wire format: integers, lengths, unknown fields and groups.

use _transcode::wire::GROUP_DEPTH_MAX;

use crate::encode::{fixed32, fixed64, int, len, varint};
use crate::{body_of_span, decode, decode_span};

fn reason(body: &[u8]) -> String {
    decode(body).unwrap_err().to_string()
}

fn group(number: u32, content: &[u8]) -> Vec<u8> {
    let tag = |wire_type| varint(u64::from(number << 3 | wire_type));
    [&tag(3), content, &tag(4)].concat()
}

/// Returns one field of every wire type, none of which is in the schema.
fn unknown_fields() -> Vec<u8> {
    let inner = [int(900, -1), len(901, "x")].concat();
    let nested = group(
        902,
        &[inner, group(903, &fixed32(904, 1)), fixed64(905, 1)].concat(),
    );
    [
        int(900, 300),
        fixed64(901, 1),
        len(902, "zz"),
        nested,
        fixed32(536_870_911, 1),
    ]
    .concat()
}

#[test]
fn unknown_fields_of_every_wire_type_are_skipped() {
    let plain = decode(&body_of_span(&[])).unwrap();

    let recording = decode(&body_of_span(&[unknown_fields()])).unwrap();

    assert_eq!(recording, plain);
}

#[test]
fn unknown_fields_outside_spans_are_reported() {
    let resource_spans = [unknown_fields(), len(2, len(1, unknown_fields()))].concat();
    let body = [unknown_fields(), len(1, resource_spans)].concat();

    assert_eq!(decode(&body).unwrap().unknown_count, 3 * 5);
}

#[test]
fn ignored_fields_of_the_schema_are_not_reported_as_unknown() {
    let resource = [int(2, 1), len(3, "")].concat();
    let scope = int(4, 1);

    let recording = decode(&len(1, [len(1, resource), len(2, len(1, scope))].concat())).unwrap();

    assert_eq!(recording.unknown_count, 0);
}

#[test]
fn overlong_varints_up_to_ten_bytes_are_valid() {
    let over_long_kind = b"\x30\x82\x80\x80\x80\x80\x80\x80\x80\x80\x00".to_vec();
    let over_long_tag = b"\xb0\x80\x80\x00\x02".to_vec();

    for field in [over_long_kind, over_long_tag] {
        assert_eq!(decode_span(&body_of_span(&[field])).fields.kind, 2);
    }
}

#[test]
fn integers_are_truncated_to_their_low_bits() {
    let span = decode_span(&body_of_span(&[
        int(6, -1),
        int(10, 0x1_0000_0007),
        int(12, -1),
    ]));

    assert_eq!(span.fields.kind, -1);
    assert_eq!(span.fields.dropped, (7, u32::MAX, 0));
}

#[test]
fn unterminated_varint_is_refused() {
    assert_eq!(
        reason(&[0x10, 0x80]),
        "body: a number is truncated by the end of its message (byte 1 of the body)"
    );
    assert!(
        reason(&[&[0x0a][..], &[0x80; 10], &[0]].concat()).contains("expected at most 10 bytes")
    );
}

#[test]
fn truncated_fixed_numbers_are_refused() {
    for field in [fixed64(900, 1), fixed32(900, 1)] {
        for cut in 2..field.len() {
            assert!(reason(&field[..cut]).contains("a number is truncated"));
        }
    }
}

#[test]
fn length_past_the_end_is_refused_with_its_offset() {
    let inner = len(2, len(2, [0x0a, 100]));

    assert_eq!(
        reason(&len(1, inner)),
        "resource_spans.scope_spans.spans: a field declares 100 bytes; 0 are left in its message (byte 7 of the body)"
    );
}

#[test]
fn length_beyond_the_protobuf_maximum_is_refused() {
    for length in [1 << 31, 1 << 32, u64::MAX] {
        assert!(reason(&[vec![0x0a], varint(length)].concat()).contains("declares"));
    }
}

#[test]
fn invalid_field_numbers_and_wire_types_are_refused() {
    for body in [
        &[0x00, 0x00][..],
        &[0x07],
        &[0x80, 0x00],
        &[0xff, 0xff, 0xff, 0xff, 0x7f],
    ] {
        assert!(reason(body).contains("field number is 0"), "{body:?}");
    }
    for body in [[0x26, 0x00], [0x27, 0x00]] {
        assert!(reason(&body).contains("wire type 6 or 7"));
    }
}

#[test]
fn known_field_of_another_wire_type_is_refused_and_named() {
    for (more, field) in [
        (
            int(5, 1),
            "resource_spans.scope_spans.spans.name: the field has wire type 0; expected 2",
        ),
        (
            len(6, ""),
            "resource_spans.scope_spans.spans.kind: the field has wire type 2; expected 0",
        ),
        (
            fixed64(16, 1),
            "resource_spans.scope_spans.spans.flags: the field has wire type 1; expected 5",
        ),
        (
            len(13, int(6, 1)),
            "resource_spans.scope_spans.spans.links.flags: ",
        ),
        (
            len(11, len(4, "")),
            "resource_spans.scope_spans.spans.events.dropped_attributes_count: ",
        ),
        (
            len(15, len(3, "")),
            "resource_spans.scope_spans.spans.status.code: ",
        ),
        (len(9, int(1, 1)), "attributes.key: "),
        (len(9, len(2, int(4, 1))), "attributes.value.double_value: "),
        (
            len(9, len(2, len(5, int(1, 1)))),
            "attributes.value.array_value.values: ",
        ),
        (
            group(7, b""),
            "resource_spans.scope_spans.spans.start_time_unix_nano: ",
        ),
    ] {
        let reason = reason(&body_of_span(&[more]));
        assert!(reason.starts_with(field), "{reason}");
    }
}

#[test]
fn mismatched_group_ends_are_refused() {
    let open = varint(900 << 3 | 3);
    let close = varint(901 << 3 | 4);

    assert!(reason(&body_of_span(std::slice::from_ref(&open))).contains("without an end"));
    assert!(reason(&body_of_span(std::slice::from_ref(&close))).contains("without a group begin"));
    assert!(reason(&body_of_span(&[open, close])).contains("without a group begin"));
}

#[test]
fn groups_beyond_the_maximum_depth_are_refused() {
    let nested = |depth| (0..depth).fold(Vec::new(), |inner, _| group(900, &inner));

    assert!(decode(&body_of_span(&[nested(GROUP_DEPTH_MAX)])).is_ok());
    assert!(reason(&body_of_span(&[nested(GROUP_DEPTH_MAX + 1)])).contains("deeper than 100"));
}

#[test]
fn million_open_groups_do_not_overflow_the_stack() {
    let body = [0x23].repeat(1_000_000);

    assert!(reason(&body).contains("deeper than 100"));
}
