//! Attribute values as SDKs write them: the stored text and the warnings.
//!
//! Table columns: related conformance case | value | stored text | warnings.

mod recording;

use recording::{attribute_with, cells, recording_of};

fn check_values(table: &str) {
    for [id, value, stored, warnings] in cells(table) {
        let recording = recording_of(&attribute_with(&value));

        let text = recording.text();
        assert!(
            text.contains(&format!("⏎Span.k={stored}⏎}}span")),
            "{id} {value}: {text}"
        );
        assert_eq!(recording.warning_keys(), warnings, "{id} {value}");
        assert_eq!(
            (recording.stored, recording.rejected),
            (1, 0),
            "{id} {value}"
        );
    }
}

#[test]
fn integers_are_stored_exactly_or_as_their_json_type() {
    check_values(
        r#"
J21a  | {"intValue":"5"} | 5 |
J21b  | {"intValue":5} | 5 |
J21   | {"intValue":"9223372036854775807"} | 9223372036854775807 |
J21   | {"intValue":-9223372036854775808} | -9223372036854775808 |
J21d  | {"intValue":"9223372036854775808"} | 9223372036854776000 | int_as_double
J21d  | {"intValue":9223372036854776000} | 9223372036854776000 | int_as_double
J21e  | {"intValue":1.0} | 1 |
J21e  | {"intValue":"-3.00"} | -3 |
J21g  | {"intValue":12e-1} | 1.2 | int_as_double
J21i  | {"intValue":"1e+21"} | 1e+21 | int_as_double
J21k  | {"intValue":""} |  | value_type
J21k  | {"intValue":"abc"} | abc | value_type
J21k  | {"intValue":"NaN"} | NaN | value_type
J21k  | {"intValue":"0x10"} | 0x10 | value_type
J21l  | {"intValue":true} | true | value_type
J21m  | {"intValue":"007"} | 7 | number_spelling
J21m  | {"intValue":" 5 "} | 5 | number_spelling
J21m  | {"intValue":"\u002b1"} | 1 | number_spelling
J21n  | {"intValue":-0} | 0 |
J21n  | {"intValue":"-0"} | 0 |
J21   | {"intValue":1e400} | 1e400 | int_as_double double_range
row 9 | {"intValue":{"low":5,"high":0,"unsigned":false}} | 5 | long_object
row 9 | {"intValue":{"low":-1,"high":-1}} | -1 | long_object
row 9 | {"intValue":{"high":-1,"unsigned":true,"low":-1}} | 18446744073709552000 | long_object int_as_double
row 9 | {"intValue":{"low":1}} | {"low":1} | value_type
row 9 | {"intValue":[1, 2]} | [1,2] | value_type
"#,
    );
}

#[test]
fn doubles_are_stored_in_their_shortest_form() {
    check_values(
        r#"
J22a | {"doubleValue":1.5} | 1.5 |
J22a | {"doubleValue":1.50} | 1.5 |
J22a | {"doubleValue":2} | 2 |
J22a | {"doubleValue":1e3} | 1000 |
J22a | {"doubleValue":0.1e-6} | 1e-7 |
J22a | {"doubleValue":0.30000000000000004} | 0.30000000000000004 |
J22c | {"doubleValue":"NaN"} | NaN |
J22e | {"doubleValue":"-Infinity"} | -Infinity |
J22e | {"doubleValue":"inf"} | Infinity | number_spelling
J22e | {"doubleValue":"+Infinity"} | Infinity | number_spelling
J22e | {"doubleValue":"nan"} | NaN | number_spelling
J22f | {"doubleValue":null} |  |
J22g | {"doubleValue":"abc"} | abc | value_type
J22g | {"doubleValue":""} |  | value_type
J22g | {"doubleValue":"+1.5"} | 1.5 | number_spelling
J22g | {"doubleValue":true} | true | value_type
J22h | {"doubleValue":"-1e400"} | -1e400 | double_range
J22i | {"doubleValue":-0} | -0 |
J22i | {"doubleValue":"-0.0"} | -0 |
J22  | {"doubleValue":1e-400} | 0 |
"#,
    );
}

#[test]
fn booleans_texts_and_bytes_are_read_as_their_member_declares() {
    check_values(
        r#"
J23a | {"boolValue":false} | false |
J23b | {"boolValue":0} | false | value_type
J23b | {"boolValue":"TRUE"} | true | value_type
J23b | {"boolValue":"maybe"} | maybe | value_type
J23b | {"boolValue":2} | 2 | value_type
J24a | {"bytesValue":"AP/+"} | AP/+ |
J24a | {"bytesValue":""} |  |
J24b | {"bytesValue":"AP_-"} | AP/+ |
J24c | {"bytesValue":"AA"} | AA== |
J24c | {"bytesValue":"AA=="} | AA== |
J24c | {"bytesValue":"A\u0041\u003d="} | AA== |
J24d | {"bytesValue":"!!"} | !! | bytes_not_base64
J24d | {"bytesValue":"A"} | A | bytes_not_base64
J24e | {"bytesValue":5} | 5 | value_type
J24e | {"bytesValue":[1,2]} | [1,2] | value_type
J25a | {"stringValue":"a\"\\\/\b\f\n\r\tz"} | a"\/␈␌␊␍␉z |
J25b | {"stringValue":"\ud83d\ude00é"} | 😀é |
J25c | {"stringValue":"x\ud83d"} | x� | lone_surrogate
J25d | {"stringValue":"\ude00x"} | �x | lone_surrogate
J25e | {"stringValue":"\ude00\ud83d"} | �� | lone_surrogate
J25f | {"stringValue":"a\u0000b"} | a␀b |
J25  | {"stringValue":null} |  |
J25  | {"stringValue":5} | 5 | value_type
J25  | {"stringValue":false} | false | value_type
J25  | {"stringValue":{"a": [1, "b"]}} | {"a":[1,"b"]} | value_type
"#,
    );
}

#[test]
fn last_member_of_a_value_counts_and_unknown_members_are_ignored() {
    check_values(
        r#"
J26c | {"intValue":"1","stringValue":"a"} | a | value_ambiguous
J26c | {"stringValue":"a","stringValue":"b"} | b |
J26c | {"arrayValue":{},"intValue":1} | 1 | value_ambiguous
J26c | {"intValue":1,"arrayValue":{}} | [] | value_ambiguous
J26c | {"stringValue":"a","intValue":null} | a |
J26d | {"futureValue":{"x":[1]}} |  |
J26d | {"futureValue":1,"stringValue":"a"} | a |
J26d | {"zzz":[{}],"stringValue":"a"} | a |
J26d | {"stringValue":"a","zzz":{"y":[[]]}} | a |
J26d | {"stringValueStrindex":7} |  |
J18  | {"string_value":"a"} | a | snake_case_keys
J18  | {"string\u005fvalue":"a"} | a | snake_case_keys
J26d | {"future\u0056alue":{"x":[1]}} |  |
J42  | {"\u0073tringValue":"a"} | a |
"#,
    );
}

#[test]
fn lists_and_maps_are_stored_as_compact_json_in_arrival_order() {
    check_values(
        r#"
J27b | {"arrayValue":{"values":[]}} | [] |
J27b | {"arrayValue":{"values":null}} | [] |
J27b | {"arrayValue":null} |  |
J27c | {"arrayValue":{"values":[{"stringValue":"a\n"},{"intValue":"1"},{"doubleValue":0.5},{"boolValue":true},{},{"bytesValue":"AA"}]}} | ["a\n",1,0.5,true,null,"AA=="] |
J27c | {"arrayValue":{"values":[{"doubleValue":"NaN"},{"doubleValue":null}]}} | ["NaN",null] |
J27d | {"arrayValue":{"values":[null,{"intValue":2},null]}} | [null,2,null] |
J27  | {"arrayValue":{"values":[{"intValue":1}],"values":[{"intValue":2}]}} | [1,2] |
J27  | {"arrayValue":{"values":[{"intValue":1}]},"arrayValue":{"values":[{"intValue":2}]}} | [1,2] |
J27  | {"arrayValue":{"zzz":[1],"values":[{"arrayValue":{}}]}} | [[]] |
J27  | {"arrayValue":{"values":5}} | [] | field_type
J27  | {"arrayValue":5} | 5 | value_type
J27  | {"arrayValue":[{"intValue":1}]} | [1] | value_bare
J28  | {"kvlistValue":{}} | {} |
J28  | {"kvlistValue":{"values":[{"key":"a","value":{"intValue":"1"}},{"value":{"kvlistValue":{"values":[]}},"key":"b\""}]}} | {"a":1,"b\"":{}} |
J28  | {"kvlistValue":{"values":[{},{"key":"b"},{"value":{"boolValue":true}}]}} | {"":null,"b":null,"":true} |
J28  | {"kvlistValue":{"values":[null,{"key":"x","value":{"intValue":1},"key":"yy","value":{"intValue":22}}]}} | {"yy":22} | null_element
J28  | {"kvlistValue":{"values":[5,{"key":"x","value":5}]}} | {"x":5} | attribute_unreadable value_bare
"#,
    );
}

#[test]
fn bare_values_are_stored_by_their_json_type() {
    check_values(
        r#"
row 21 | "x" | x | value_bare
row 21 | 5 | 5 | value_bare
row 21 | 1.50 | 1.5 | value_bare
row 21 | -0 | -0 | value_bare
row 21 | 18446744073709551616 | 18446744073709552000 | value_bare
row 21 | 1e999 | 1e999 | value_bare double_range
row 21 | true | true | value_bare
row 21 | [ 1, "a" , null, [true] ] | [1,"a",null,[true]] | value_bare
row 21 | [{"stringValue":"a"}] | ["a"] | value_bare
row 21 | { "a" : { "b" : [ ] } } | {"a":{"b":[]}} | value_bare
row 21 | {"userValue":1,"name":"x"} | {"userValue":1,"name":"x"} | value_bare
row 21 | [] | [] | value_bare
"#,
    );
}
