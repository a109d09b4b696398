//! Deviations of real senders, case by case: what is stored, and what is said about it. The names in
//! front are those of the conformance cases they are neighbours of.

mod story;

use _transcode::visit::Warning::{self, *};
use story::{attribute_with, span_with, told};

/// The stored text of an attribute, and the warnings.
fn check_values(cases: &[(&str, &str, &str, &[Warning])]) {
    for (id, value, stored, warnings) in cases {
        let story = told(attribute_with(value)).unwrap_or_else(|refusal| panic!("{id} {value}: {refusal}"));

        assert!(story.text().contains(&format!("\nSpan.k={stored}\n}}span")), "{id} {value}: {}", story.text());
        assert_eq!(story.warnings, *warnings, "{id} {value}");
        assert_eq!((story.stored, story.rejected), (1, 0), "{id} {value}");
    }
}

/// A part of the span's line, and the warnings.
fn check_spans(cases: &[(&str, &str, &str, &[Warning])]) {
    for (id, members, part, warnings) in cases {
        let story = told(span_with(members)).unwrap_or_else(|refusal| panic!("{id} {members}: {refusal}"));

        assert!(story.text().contains(part), "{id} {members}: {}", story.text());
        assert_eq!(story.warnings, *warnings, "{id} {members}");
        assert_eq!(story.stored + story.rejected, 1, "{id} {members}");
    }
}

#[test]
fn integers_are_kept_exactly_or_as_what_they_are() {
    check_values(&[
        ("J21a", r#"{"intValue":"5"}"#, "5", &[]),
        ("J21b", r#"{"intValue":5}"#, "5", &[]),
        ("J21", r#"{"intValue":"9223372036854775807"}"#, "9223372036854775807", &[]),
        ("J21", r#"{"intValue":-9223372036854775808}"#, "-9223372036854775808", &[]),
        ("J21d", r#"{"intValue":"9223372036854775808"}"#, "9223372036854776000", &[IntAsDouble]),
        ("J21d", r#"{"intValue":9223372036854776000}"#, "9223372036854776000", &[IntAsDouble]),
        ("J21e", r#"{"intValue":1.0}"#, "1", &[]),
        ("J21e", r#"{"intValue":"-3.00"}"#, "-3", &[]),
        ("J21g", r#"{"intValue":12e-1}"#, "1.2", &[IntAsDouble]),
        ("J21i", r#"{"intValue":"1e+21"}"#, "1e+21", &[IntAsDouble]),
        ("J21k", r#"{"intValue":""}"#, "", &[ValueType]),
        ("J21k", r#"{"intValue":"abc"}"#, "abc", &[ValueType]),
        ("J21k", r#"{"intValue":"NaN"}"#, "NaN", &[ValueType]),
        ("J21k", r#"{"intValue":"0x10"}"#, "0x10", &[ValueType]),
        ("J21l", r#"{"intValue":true}"#, "true", &[ValueType]),
        ("J21m", r#"{"intValue":"007"}"#, "7", &[NumberSpelling]),
        ("J21m", r#"{"intValue":" 5 "}"#, "5", &[NumberSpelling]),
        ("J21m", r#"{"intValue":"\u002b1"}"#, "1", &[NumberSpelling]),
        ("J21n", r#"{"intValue":-0}"#, "0", &[]),
        ("J21n", r#"{"intValue":"-0"}"#, "0", &[]),
        ("J21", r#"{"intValue":1e400}"#, "1e400", &[IntAsDouble, DoubleRange]),
        ("row 9", r#"{"intValue":{"low":5,"high":0,"unsigned":false}}"#, "5", &[LongObject]),
        ("row 9", r#"{"intValue":{"low":-1,"high":-1}}"#, "-1", &[LongObject]),
        (
            "row 9",
            r#"{"intValue":{"high":-1,"unsigned":true,"low":-1}}"#,
            "18446744073709552000",
            &[LongObject, IntAsDouble],
        ),
        ("row 9", r#"{"intValue":{"low":1}}"#, r#"{"low":1}"#, &[ValueType]),
        ("row 9", r#"{"intValue":[1, 2]}"#, "[1,2]", &[ValueType]),
    ]);
}

#[test]
fn doubles_are_kept_as_their_shortest_spelling() {
    check_values(&[
        ("J22a", r#"{"doubleValue":1.5}"#, "1.5", &[]),
        ("J22a", r#"{"doubleValue":1.50}"#, "1.5", &[]),
        ("J22a", r#"{"doubleValue":2}"#, "2", &[]),
        ("J22a", r#"{"doubleValue":1e3}"#, "1000", &[]),
        ("J22a", r#"{"doubleValue":0.1e-6}"#, "1e-7", &[]),
        ("J22a", r#"{"doubleValue":0.30000000000000004}"#, "0.30000000000000004", &[]),
        ("J22c", r#"{"doubleValue":"NaN"}"#, "NaN", &[]),
        ("J22e", r#"{"doubleValue":"-Infinity"}"#, "-Infinity", &[]),
        ("J22e", r#"{"doubleValue":"inf"}"#, "Infinity", &[NumberSpelling]),
        ("J22e", r#"{"doubleValue":"+Infinity"}"#, "Infinity", &[NumberSpelling]),
        ("J22e", r#"{"doubleValue":"nan"}"#, "NaN", &[NumberSpelling]),
        ("J22f", r#"{"doubleValue":null}"#, "", &[]),
        ("J22g", r#"{"doubleValue":"abc"}"#, "abc", &[ValueType]),
        ("J22g", r#"{"doubleValue":""}"#, "", &[ValueType]),
        ("J22g", r#"{"doubleValue":"+1.5"}"#, "1.5", &[NumberSpelling]),
        ("J22g", r#"{"doubleValue":true}"#, "true", &[ValueType]),
        ("J22h", r#"{"doubleValue":"-1e400"}"#, "-1e400", &[DoubleRange]),
        ("J22i", r#"{"doubleValue":-0}"#, "-0", &[]),
        ("J22i", r#"{"doubleValue":"-0.0"}"#, "-0", &[]),
        ("J22", r#"{"doubleValue":1e-400}"#, "0", &[]),
    ]);
}

#[test]
fn booleans_texts_and_bytes_are_read_as_their_key_says_if_they_can_be() {
    check_values(&[
        ("J23a", r#"{"boolValue":false}"#, "false", &[]),
        ("J23b", r#"{"boolValue":0}"#, "false", &[ValueType]),
        ("J23b", r#"{"boolValue":"TRUE"}"#, "true", &[ValueType]),
        ("J23b", r#"{"boolValue":"maybe"}"#, "maybe", &[ValueType]),
        ("J23b", r#"{"boolValue":2}"#, "2", &[ValueType]),
        ("J24a", r#"{"bytesValue":"AP/+"}"#, "AP/+", &[]),
        ("J24a", r#"{"bytesValue":""}"#, "", &[]),
        ("J24b", r#"{"bytesValue":"AP_-"}"#, "AP/+", &[]),
        ("J24c", r#"{"bytesValue":"AA"}"#, "AA==", &[]),
        ("J24c", r#"{"bytesValue":"AA=="}"#, "AA==", &[]),
        ("J24c", r#"{"bytesValue":"A\u0041\u003d="}"#, "AA==", &[]),
        ("J24d", r#"{"bytesValue":"!!"}"#, "!!", &[BytesNotBase64]),
        ("J24d", r#"{"bytesValue":"A"}"#, "A", &[BytesNotBase64]),
        ("J24e", r#"{"bytesValue":5}"#, "5", &[ValueType]),
        ("J24e", r#"{"bytesValue":[1,2]}"#, "[1,2]", &[ValueType]),
        ("J25a", r#"{"stringValue":"a\"\\\/\b\f\n\r\tz"}"#, "a\"\\/\u{8}\u{c}\n\r\tz", &[]),
        ("J25b", r#"{"stringValue":"\ud83d\ude00é"}"#, "😀é", &[]),
        ("J25c", r#"{"stringValue":"x\ud83d"}"#, "x\u{fffd}", &[LoneSurrogate]),
        ("J25d", r#"{"stringValue":"\ude00x"}"#, "\u{fffd}x", &[LoneSurrogate]),
        ("J25e", r#"{"stringValue":"\ude00\ud83d"}"#, "\u{fffd}\u{fffd}", &[LoneSurrogate]),
        ("J25f", r#"{"stringValue":"a\u0000b"}"#, "a\0b", &[]),
        ("J25", r#"{"stringValue":null}"#, "", &[]),
        ("J25", r#"{"stringValue":5}"#, "5", &[ValueType]),
        ("J25", r#"{"stringValue":false}"#, "false", &[ValueType]),
        ("J25", r#"{"stringValue":{"a": [1, "b"]}}"#, r#"{"a":[1,"b"]}"#, &[ValueType]),
    ]);
}

#[test]
fn a_value_is_the_last_of_its_members_and_unknown_ones_mean_nothing() {
    check_values(&[
        ("J26c", r#"{"intValue":"1","stringValue":"a"}"#, "a", &[ValueAmbiguous]),
        ("J26c", r#"{"stringValue":"a","stringValue":"b"}"#, "b", &[]),
        ("J26c", r#"{"arrayValue":{},"intValue":1}"#, "1", &[ValueAmbiguous]),
        ("J26c", r#"{"intValue":1,"arrayValue":{}}"#, "[]", &[ValueAmbiguous]),
        ("J26c", r#"{"stringValue":"a","intValue":null}"#, "a", &[]),
        ("J26d", r#"{"futureValue":{"x":[1]}}"#, "", &[]),
        ("J26d", r#"{"futureValue":1,"stringValue":"a"}"#, "a", &[]),
        ("J26d", r#"{"zzz":[{}],"stringValue":"a"}"#, "a", &[]),
        ("J26d", r#"{"stringValue":"a","zzz":{"y":[[]]}}"#, "a", &[]),
        ("J26d", r#"{"stringValueStrindex":7}"#, "", &[]),
        ("J18", r#"{"string_value":"a"}"#, "a", &[SnakeCaseKeys]),
        ("J42", r#"{"\u0073tringValue":"a"}"#, "a", &[]),
    ]);
}

#[test]
fn lists_and_maps_are_compact_json_in_arrival_order() {
    check_values(&[
        ("J27b", r#"{"arrayValue":{"values":[]}}"#, "[]", &[]),
        ("J27b", r#"{"arrayValue":{"values":null}}"#, "[]", &[]),
        ("J27b", r#"{"arrayValue":null}"#, "", &[]),
        (
            "J27c",
            r#"{"arrayValue":{"values":[{"stringValue":"a\n"},{"intValue":"1"},{"doubleValue":0.5},{"boolValue":true},{},{"bytesValue":"AA"}]}}"#,
            r#"["a\n",1,0.5,true,null,"AA=="]"#,
            &[],
        ),
        ("J27c", r#"{"arrayValue":{"values":[{"doubleValue":"NaN"},{"doubleValue":null}]}}"#, r#"["NaN",null]"#, &[]),
        ("J27d", r#"{"arrayValue":{"values":[null,{"intValue":2},null]}}"#, "[null,2,null]", &[]),
        ("J27", r#"{"arrayValue":{"values":[{"intValue":1}],"values":[{"intValue":2}]}}"#, "[1,2]", &[]),
        (
            "J27",
            r#"{"arrayValue":{"values":[{"intValue":1}]},"arrayValue":{"values":[{"intValue":2}]}}"#,
            "[1,2]",
            &[],
        ),
        ("J27", r#"{"arrayValue":{"zzz":[1],"values":[{"arrayValue":{}}]}}"#, "[[]]", &[]),
        ("J27", r#"{"arrayValue":{"values":5}}"#, "[]", &[FieldType]),
        ("J27", r#"{"arrayValue":5}"#, "5", &[ValueType]),
        ("J27", r#"{"arrayValue":[{"intValue":1}]}"#, "[1]", &[ValueBare]),
        ("J28", r#"{"kvlistValue":{}}"#, "{}", &[]),
        (
            "J28",
            r#"{"kvlistValue":{"values":[{"key":"a","value":{"intValue":"1"}},{"value":{"kvlistValue":{"values":[]}},"key":"b\""}]}}"#,
            r#"{"a":1,"b\"":{}}"#,
            &[],
        ),
        ("J28", r#"{"kvlistValue":{"values":[{},{"key":"b"},{"value":{"boolValue":true}}]}}"#, r#"{"":null,"b":null,"":true}"#, &[]),
        (
            "J28",
            r#"{"kvlistValue":{"values":[null,{"key":"x","value":{"intValue":1},"key":"yy","value":{"intValue":22}}]}}"#,
            r#"{"yy":22}"#,
            &[NullElement],
        ),
        ("J28", r#"{"kvlistValue":{"values":[5,{"key":"x","value":5}]}}"#, r#"{"x":5}"#, &[AttributeUnreadable, ValueBare]),
    ]);
}

#[test]
fn bare_values_are_kept_as_what_they_are() {
    check_values(&[
        ("row 21", r#""x""#, "x", &[ValueBare]),
        ("row 21", "5", "5", &[ValueBare]),
        ("row 21", "1.50", "1.5", &[ValueBare]),
        ("row 21", "-0", "-0", &[ValueBare]),
        ("row 21", "18446744073709551616", "18446744073709552000", &[ValueBare]),
        ("row 21", "1e999", "1e999", &[ValueBare, DoubleRange]),
        ("row 21", "true", "true", &[ValueBare]),
        ("row 21", r#"[ 1, "a" , null, [true] ]"#, r#"[1,"a",null,[true]]"#, &[ValueBare]),
        ("row 21", r#"[{"stringValue":"a"}]"#, r#"["a"]"#, &[ValueBare]),
        ("row 21", r#"{ "a" : { "b" : [ ] } }"#, r#"{"a":{"b":[]}}"#, &[ValueBare]),
        ("row 21", r#"{"userValue":1,"name":"x"}"#, r#"{"userValue":1,"name":"x"}"#, &[ValueBare]),
        ("row 21", "[]", "[]", &[ValueBare]),
    ]);
}

#[test]
fn ids_are_decoded_where_they_say_one_thing_only() {
    check_spans(&[
        ("J13", r#""traceId":"5B8EFFF798038103D269B633813FC60C""#, "}span 5b8efff798038103d269b633813fc60c/", &[]),
        ("J14", r#""traceId":"W47/95gDgQPSabYzgT/GDA==""#, "}span 5b8efff798038103d269b633813fc60c/", &[IdBase64]),
        ("J14", r#""spanId":"7uGbfsPBsXQ""#, "/eee19b7ec3c1b174 ", &[IdBase64]),
        ("J15", r#""traceId":"00000000000000000000000000000000""#, "!trace_id_zero", &[]),
        ("J15", r#""traceId":"\u0035b8efff798038103d269b633813fc60c""#, "}span 5b8efff798038103d269b633813fc60c/", &[]),
        ("J15", r#""spanId":"0000000000000000""#, "!span_id_zero", &[]),
        ("J15", r#""traceId":"0x5b8efff798038103d269b633813fc60c""#, "!trace_id_malformed", &[]),
        ("J16a", r#""traceId":"""#, "!trace_id_missing", &[]),
        ("J16c", r#""traceId":null"#, "!trace_id_missing", &[]),
        ("J16c", r#""spanId":null"#, "!span_id_missing", &[]),
        ("J16d", r#""traceId":true"#, "!trace_id_malformed", &[]),
        ("J16d", r#""traceId":["5b8efff798038103d269b633813fc60c"]"#, "!trace_id_malformed", &[]),
        ("J16d", r#""spanId":{"a":[]}"#, "!span_id_malformed", &[]),
        ("J17a", r#""parentSpanId":"""#, "parent= ", &[]),
        ("J17c", r#""parentSpanId":"0000000000000000""#, "parent= ", &[]),
        ("J17d", r#""parentSpanId":"EEE19B7EC3C1B175""#, "parent=eee19b7ec3c1b175", &[]),
        ("J17d", r#""parentSpanId":"abc""#, "parent= ", &[ParentDropped]),
        ("J17d", r#""parentSpanId":5"#, "parent= ", &[ParentDropped]),
    ]);
}

#[test]
fn enums_are_read_by_number_or_name() {
    check_spans(&[
        ("J19b", r#""kind":"server""#, "kind=2 ", &[EnumName]),
        ("J19d", r#""kind":"span_kind_Consumer""#, "kind=5 ", &[EnumName]),
        ("J19d", r#""kind":"3""#, "kind=3 ", &[EnumName]),
        ("J19d", r#""kind":"UNSPECIFIED""#, "kind=0 ", &[EnumName]),
        ("J19g", r#""kind":2.5"#, "kind=0 ", &[EnumUnreadable]),
        ("J19g", r#""kind":"nonsense""#, "kind=0 ", &[EnumUnreadable]),
        ("J19g", r#""kind":"""#, "kind=0 ", &[EnumUnreadable]),
        ("J19h", r#""kind":99"#, "kind=99 ", &[]),
        ("J19i", r#""kind":-1"#, "kind=-1 ", &[]),
        ("J19k", r#""kind":null"#, "kind=0 ", &[]),
        ("J19k", r#""kind":{"a":1}"#, "kind=0 ", &[EnumUnreadable]),
        ("J19k", r#""kind":[2]"#, "kind=0 ", &[EnumUnreadable]),
        ("J19l", r#""kind":-2147483649"#, "kind=0 ", &[EnumUnreadable]),
        ("J31b", r#""status":{"code":"error","message":"m"}"#, "status=2:m ", &[EnumName]),
        ("J31b", r#""status":{"code":"Ok"}"#, "status=1: ", &[EnumName]),
        ("J31b", r#""status":{"code":7}"#, "status=7: ", &[]),
        ("J31", r#""status":{}"#, "status=0: ", &[]),
        ("J31", r#""status":{"message":"m"},"status":{"code":2}"#, "status=2:m ", &[]),
        ("J31", r#""status":{"message":"m","code":2},"status":null"#, "status=0: ", &[]),
        ("J31", r#""status":"ERROR""#, "status=2: ", &[FieldType, EnumName]),
        ("J31", r#""status":[]"#, "status=0: ", &[FieldType, EnumUnreadable]),
    ]);
}

#[test]
fn times_are_exact_nanoseconds_in_any_spelling() {
    check_spans(&[
        ("J20a", r#""startTimeUnixNano":1544712660300000001"#, " 1544712660300000001..", &[]),
        ("J20b", r#""startTimeUnixNano":1.5447126603e18"#, " 1544712660300000000..", &[]),
        ("J20b", r#""startTimeUnixNano":"1544712660300000000.0""#, " 1544712660300000000..", &[]),
        ("row 10", r#""startTimeUnixNano":1544712660300000000.75"#, " 1544712660300000000..", &[TimeFractional]),
        ("J20", r#""startTimeUnixNano":"18446744073709551615""#, " 18446744073709551615..", &[]),
        ("J20", r#""startTimeUnixNano":18446744073709551616"#, " 0..", &[TimeUnreadable]),
        ("J20", r#""startTimeUnixNano":-1"#, " 0..", &[TimeUnreadable]),
        ("J20", r#""startTimeUnixNano":-0.5"#, " 0..", &[TimeUnreadable]),
        ("J20", r#""startTimeUnixNano":null"#, " 0..", &[]),
        ("J20", r#""startTimeUnixNano":"""#, " 0..", &[TimeUnreadable]),
        ("J20", r#""startTimeUnixNano":"2018-12-13T14:51:00Z""#, " 0..", &[TimeUnreadable]),
        ("J20", r#""startTimeUnixNano":true"#, " 0..", &[TimeUnreadable]),
        ("J20", r#""startTimeUnixNano":"+5""#, " 5..", &[NumberSpelling]),
        ("J20", r#""startTimeUnixNano":"\u0035""#, " 5..", &[]),
        (
            "row 9",
            r#""startTimeUnixNano":{"low":-1294967296,"high":359659421,"unsigned":true}"#,
            " 1544725453893295616..",
            &[LongObject],
        ),
        ("row 9", r#""startTimeUnixNano":{"low":1,"high":-1,"unsigned":false}"#, " 0..", &[LongObject, TimeUnreadable]),
        ("row 9", r#""startTimeUnixNano":{"nanos":1}"#, " 0..", &[TimeUnreadable]),
    ]);
}

#[test]
fn counts_and_flags_are_32_bits() {
    check_spans(&[
        ("J32a", r#""droppedEventsCount":"7","droppedLinksCount":8e0"#, "dropped=0,7,8.", &[]),
        ("J32b", r#""droppedAttributesCount":"-1""#, "dropped=0,", &[CountClamped]),
        ("J32", r#""droppedAttributesCount":4294967296"#, "dropped=4294967295,", &[CountClamped]),
        ("J32", r#""droppedAttributesCount":1e30"#, "dropped=4294967295,", &[CountClamped]),
        ("J32", r#""droppedAttributesCount":1.5"#, "dropped=1,", &[CountClamped]),
        ("J32", r#""droppedAttributesCount":"x""#, "dropped=0,", &[FieldType]),
        ("J32", r#""droppedAttributesCount":null"#, "dropped=0,", &[]),
        ("J33a", r#""flags":769"#, "flags=769 ", &[]),
        ("J33b", r#""flags":"257""#, "flags=257 ", &[]),
        ("J33d", r#""flags":4294967295"#, "flags=4294967295 ", &[]),
        ("J33d", r#""flags":4294967296"#, "flags=4294967295 ", &[CountClamped]),
        ("J33", r#""flags":true"#, "flags=0 ", &[FieldType]),
    ]);
}

#[test]
fn a_field_of_another_type_never_costs_the_span() {
    check_spans(&[
        ("", r#""name":5"#, "name=5 ", &[FieldType]),
        ("", r#""name":{"a":1}"#, "name= ", &[FieldType]),
        ("", r#""name":null"#, "name= ", &[]),
        ("", r#""traceState":["a"]"#, "state= ", &[FieldType]),
        ("", r#""attributes":"x""#, "name=a ", &[FieldType]),
        ("", r#""attributes":null"#, "name=a ", &[]),
        ("", r#""events":{}"#, "name=a ", &[FieldType]),
        ("", r#""links":5"#, "name=a ", &[FieldType]),
        ("", r#""events":["x",null]"#, "name=a ", &[FieldType, NullElement]),
        ("", r#""attributes":["x",null,{"a":1}]"#, "name=a ", &[AttributeUnreadable, NullElement, AttributeUnreadable]),
        ("", r#""attributes":[{"key":5,"value":{"intValue":1}}]"#, "Span.5=1\n", &[FieldType]),
    ]);
}

#[test]
fn attributes_come_in_any_shape() {
    check_spans(&[
        ("J29", r#""attributes":{"k":"v","n":{"intValue":"1"},"m":{"a":1}}"#, "Span.k=v\nSpan.n=1\nSpan.m={\"a\":1}\n", &[AttributesAsMap]),
        ("J29", r#""attributes":{}"#, "name=a ", &[AttributesAsMap]),
        ("J36", r#""attributes":[{"value":{"stringValue":"v"},"key":"k"}]"#, "Span.k=v\n", &[]),
        ("J36", r#""attributes":[{"key":"k"}]"#, "Span.k=\n", &[]),
        ("J36", r#""attributes":[{}]"#, "Span.=\n", &[]),
        ("J36", r#""attributes":[{"key":"","value":{"intValue":"1"}}]"#, "Span.=1\n", &[]),
        ("J36", r#""attributes":[{"key":"a\nb","value":{"stringValue":"c\td"},"zzz":{}}]"#, "Span.a\nb=c\td\n", &[]),
        ("J36", r#""attributes":[{"key":"k","value":null}]"#, "Span.k=\n", &[]),
        ("J36", r#""attributes":[{"key":null,"value":{"boolValue":true}}]"#, "Span.=true\n", &[]),
        ("J12b", r#""attributes":[{"key":"a","value":{"intValue":1}}],"attributes":[{"key":"b","value":{"intValue":2}}]"#, "Span.a=1\nSpan.b=2\n", &[]),
        ("J12", r#""name":"first","name":"last""#, "name=last ", &[]),
        ("J12", r#""attributes":[{"key":"a","key":"b","value":{"intValue":1},"value":{"intValue":2}}]"#, "Span.b=2\n", &[]),
        ("J42", r#""\u006eame":"escaped","\u006b\u0069nd":3"#, "name=escaped kind=3 ", &[]),
        ("J43", r#""":{"":[]},"zzz":1.5e-3"#, "name=a ", &[]),
        ("J44", r#""unknown":[{"a":{"b":[null,true,false,"x\u0041",-1.5e+3]}}]"#, "name=a ", &[]),
    ]);
}

#[test]
fn events_and_links_carry_their_own() {
    check_spans(&[
        (
            "",
            r#""events":[{"name":"e\n","timeUnixNano":"5","attributes":[{"key":"k","value":{"intValue":1}}],"droppedAttributesCount":1},{}]"#,
            "event{\nEvent.k=1\n}event 5 e\n\nevent{\n}event 0 \n",
            &[],
        ),
        (
            "",
            r#""links":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","traceState":"a=b","flags":1,"attributes":{"k":1}}]"#,
            "link{\nLink.k=1\n}link 5b8efff798038103d269b633813fc60c/eee19b7ec3c1b174 a=b\n",
            &[AttributesAsMap],
        ),
        ("", r#""links":[{"traceId":"00","spanId":"eee19b7ec3c1b174"},{}]"#, "link{\n}link  \nlink{\n}link  \n", &[]),
        ("J18", r#""events":[{"time_unix_nano":5}]"#, "}event 5 \n", &[SnakeCaseKeys]),
    ]);
}
