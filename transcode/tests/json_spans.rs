//! Fields of a span as SDKs write them: the stored value and the warnings.
//!
//! Table columns: related conformance case | members of the span | part of the recorded calls | warnings.

mod recording;

use recording::{cells, recording_of, span_with};

fn check_spans(table: &str) {
    for [id, members, part, warnings] in cells(table) {
        let recording = recording_of(&span_with(&members));

        let text = recording.text();
        assert!(text.contains(&part), "{id} {members}: {text}");
        assert_eq!(recording.warning_keys(), warnings, "{id} {members}");
        assert_eq!(recording.stored + recording.rejected, 1, "{id} {members}");
    }
}

#[test]
fn unambiguous_ids_are_decoded() {
    check_spans(
        r#"
J13  | "traceId":"5B8EFFF798038103D269B633813FC60C" | }span 5b8efff798038103d269b633813fc60c/ |
J14  | "traceId":"W47/95gDgQPSabYzgT/GDA==" | }span 5b8efff798038103d269b633813fc60c/ | id_base64
J14  | "spanId":"7uGbfsPBsXQ" | /eee19b7ec3c1b174  | id_base64
J15  | "traceId":"00000000000000000000000000000000" | !trace_id_zero |
J15  | "traceId":"\u0035b8efff798038103d269b633813fc60c" | }span 5b8efff798038103d269b633813fc60c/ |
J15  | "spanId":"0000000000000000" | !span_id_zero |
J15  | "traceId":"0x5b8efff798038103d269b633813fc60c" | !trace_id_malformed |
J16a | "traceId":"" | !trace_id_missing |
J16c | "traceId":null | !trace_id_missing |
J16c | "spanId":null | !span_id_missing |
J16d | "traceId":true | !trace_id_malformed |
J16d | "traceId":["5b8efff798038103d269b633813fc60c"] | !trace_id_malformed |
J16d | "spanId":{"a":[]} | !span_id_malformed |
J17a | "parentSpanId":"" | parent=  |
J17c | "parentSpanId":"0000000000000000" | parent=  |
J17d | "parentSpanId":"EEE19B7EC3C1B175" | parent=eee19b7ec3c1b175 |
J17d | "parentSpanId":"abc" | parent=  | parent_dropped
J17d | "parentSpanId":5 | parent=  | parent_dropped
"#,
    );
}

#[test]
fn enums_are_read_by_number_or_name() {
    check_spans(
        r#"
J19b | "kind":"server" | kind=2  | enum_name
J19d | "kind":"span_kind_Consumer" | kind=5  | enum_name
J19d | "kind":"3" | kind=3  | enum_name
J19d | "kind":"UNSPECIFIED" | kind=0  | enum_name
J19g | "kind":2.5 | kind=0  | enum_unreadable
J19g | "kind":"nonsense" | kind=0  | enum_unreadable
J19g | "kind":"" | kind=0  | enum_unreadable
J19h | "kind":99 | kind=99  |
J19i | "kind":-1 | kind=-1  |
J19k | "kind":null | kind=0  |
J19k | "kind":{"a":1} | kind=0  | enum_unreadable
J19k | "kind":[2] | kind=0  | enum_unreadable
J19l | "kind":-2147483649 | kind=0  | enum_unreadable
J31b | "status":{"code":"error","message":"m"} | status=2:m  | enum_name
J31b | "status":{"code":"Ok"} | status=1:  | enum_name
J31b | "status":{"code":7} | status=7:  |
J31  | "status":{} | status=0:  |
J31  | "status":{"message":"m"},"status":{"code":2} | status=2:m  |
J31  | "status":{"message":"m","code":2},"status":null | status=0:  |
J31  | "status":"ERROR" | status=2:  | field_type enum_name
J31  | "status":[] | status=0:  | field_type enum_unreadable
"#,
    );
}

#[test]
fn times_are_exact_nanoseconds_in_every_notation() {
    check_spans(
        r#"
J20a   | "startTimeUnixNano":1544712660300000001 |  1544712660300000001.. |
J20b   | "startTimeUnixNano":1.5447126603e18 |  1544712660300000000.. |
J20b   | "startTimeUnixNano":"1544712660300000000.0" |  1544712660300000000.. |
row 10 | "startTimeUnixNano":1544712660300000000.75 |  1544712660300000000.. | time_fractional
J20    | "startTimeUnixNano":"18446744073709551615" |  18446744073709551615.. |
J20    | "startTimeUnixNano":18446744073709551616 |  0.. | time_unreadable
J20    | "startTimeUnixNano":-1 |  0.. | time_unreadable
J20    | "startTimeUnixNano":-0.5 |  0.. | time_unreadable
J20    | "startTimeUnixNano":null |  0.. |
J20    | "startTimeUnixNano":"" |  0.. | time_unreadable
J20    | "startTimeUnixNano":"2018-12-13T14:51:00Z" |  0.. | time_unreadable
J20    | "startTimeUnixNano":true |  0.. | time_unreadable
J20    | "startTimeUnixNano":"+5" |  5.. | number_spelling
J20    | "startTimeUnixNano":"\u0035" |  5.. |
row 9  | "startTimeUnixNano":{"low":-1294967296,"high":359659421,"unsigned":true} |  1544725453893295616.. | long_object
row 9  | "startTimeUnixNano":{"low":1,"high":-1,"unsigned":false} |  0.. | long_object time_unreadable
row 9  | "startTimeUnixNano":{"nanos":1} |  0.. | time_unreadable
"#,
    );
}

#[test]
fn counts_and_flags_are_32_bits() {
    check_spans(
        r#"
J32a | "droppedEventsCount":"7","droppedLinksCount":8e0 | dropped=0,7,8. |
J32b | "droppedAttributesCount":"-1" | dropped=0, | count_clamped
J32  | "droppedAttributesCount":4294967296 | dropped=4294967295, | count_clamped
J32  | "droppedAttributesCount":1e30 | dropped=4294967295, | count_clamped
J32  | "droppedAttributesCount":1.5 | dropped=1, | count_clamped
J32  | "droppedAttributesCount":"x" | dropped=0, | field_type
J32  | "droppedAttributesCount":null | dropped=0, |
J33a | "flags":769 | flags=769  |
J33b | "flags":"257" | flags=257  |
J33d | "flags":4294967295 | flags=4294967295  |
J33d | "flags":4294967296 | flags=4294967295  | count_clamped
J33  | "flags":true | flags=0  | field_type
"#,
    );
}

#[test]
fn field_of_the_wrong_type_does_not_reject_the_span() {
    check_spans(
        r#"
- | "name":5 | name=5  | field_type
- | "name":{"a":1} | name=  | field_type
- | "name":null | name=  |
- | "traceState":["a"] | state=  | field_type
- | "attributes":"x" | name=a  | field_type
- | "attributes":null | name=a  |
- | "events":{} | name=a  | field_type
- | "links":5 | name=a  | field_type
- | "events":["x",null] | name=a  | field_type null_element
- | "attributes":["x",null,{"a":1}] | name=a  | attribute_unreadable null_element attribute_unreadable
- | "attributes":[{"key":5,"value":{"intValue":1}}] | Span.5=1⏎ | field_type
"#,
    );
}

#[test]
fn attributes_are_read_in_every_shape() {
    check_spans(
        r#"
J29  | "attributes":{"k":"v","n":{"intValue":"1"},"m":{"a":1}} | Span.k=v⏎Span.n=1⏎Span.m={"a":1}⏎ | attributes_as_map
J29  | "attributes":{} | name=a  | attributes_as_map
J36  | "attributes":[{"value":{"stringValue":"v"},"key":"k"}] | Span.k=v⏎ |
J36  | "attributes":[{"key":"k"}] | Span.k=⏎ |
J36  | "attributes":[{}] | Span.=⏎ |
J36  | "attributes":[{"key":"","value":{"intValue":"1"}}] | Span.=1⏎ |
J36  | "attributes":[{"key":"a\nb","value":{"stringValue":"c\td"},"zzz":{}}] | Span.a␊b=c␉d⏎ |
J36  | "attributes":[{"key":"k","value":null}] | Span.k=⏎ |
J36  | "attributes":[{"key":null,"value":{"boolValue":true}}] | Span.=true⏎ |
J12b | "attributes":[{"key":"a","value":{"intValue":1}}],"attributes":[{"key":"b","value":{"intValue":2}}] | Span.a=1⏎Span.b=2⏎ |
J12  | "name":"first","name":"last" | name=last  |
J12  | "attributes":[{"key":"a","key":"b","value":{"intValue":1},"value":{"intValue":2}}] | Span.b=2⏎ |
J42  | "\u006eame":"escaped","\u006b\u0069nd":3 | name=escaped kind=3  |
J43  | "":{"":[]},"zzz":1.5e-3 | name=a  |
J44  | "unknown":[{"a":{"b":[null,true,false,"x\u0041",-1.5e+3]}}] | name=a  |
"#,
    );
}

#[test]
fn events_and_links_have_their_own_fields() {
    check_spans(
        r#"
-   | "events":[{"name":"e\n","timeUnixNano":"5","attributes":[{"key":"k","value":{"intValue":1}}],"droppedAttributesCount":1},{}] | event{⏎Event.k=1⏎}event 5 e␊⏎event{⏎}event 0 ⏎ |
-   | "links":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","traceState":"a=b","flags":1,"attributes":{"k":1}}] | link{⏎Link.k=1⏎}link 5b8efff798038103d269b633813fc60c/eee19b7ec3c1b174 a=b⏎ | attributes_as_map
-   | "links":[{"traceId":"00","spanId":"eee19b7ec3c1b174"},{}] | link{⏎}link  ⏎link{⏎}link  ⏎ |
J18 | "events":[{"time_unix_nano":5}] | }event 5 ⏎ | snake_case_keys
"#,
    );
}
