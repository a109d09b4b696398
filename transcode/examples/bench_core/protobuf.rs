//! A delivery as `application/x-protobuf`, fields in the order of SDKs.

use crate::encode::{double, fixed32, fixed64, int, len};
use crate::payload::{Attributes, Resource, Span, Value};

/// Returns the request body.
pub fn body(delivery: &[Resource]) -> Vec<u8> {
    delivery
        .iter()
        .flat_map(|resource| len(1, resource_spans(resource)))
        .collect()
}

fn resource_spans(resource: &Resource) -> Vec<u8> {
    let (name, version) = resource.scope;
    let scope = len(1, [len(1, name), len(2, version)].concat());
    let spans = resource
        .spans
        .iter()
        .flat_map(|item| len(2, span(item)))
        .collect();
    [
        len(1, attributes(1, &resource.attributes)),
        len(2, [scope, spans].concat()),
    ]
    .concat()
}

fn span(span: &Span) -> Vec<u8> {
    let event = |exception: &Attributes| {
        let time = fixed64(1, span.end_unix_nano);
        len(
            11,
            [time, len(2, "exception"), attributes(3, exception)].concat(),
        )
    };
    let status = if span.status_code == 0 {
        vec![]
    } else {
        int(3, span.status_code)
    };
    [
        len(1, span.trace_id),
        len(2, span.span_id),
        span.parent_span_id
            .map(|parent| len(4, parent))
            .unwrap_or_default(),
        len(5, &span.name),
        int(6, span.kind),
        fixed64(7, span.start_unix_nano),
        fixed64(8, span.end_unix_nano),
        attributes(9, &span.attributes),
        span.exception.as_ref().map(event).unwrap_or_default(),
        len(15, status),
        fixed32(16, 0x101),
    ]
    .concat()
}

fn attributes(number: u32, attributes: &Attributes) -> Vec<u8> {
    let pair = |(key, value): &(&str, Value)| {
        let any_value = match value {
            Value::Text(text) => len(1, text),
            Value::Bool(value) => int(2, i64::from(*value)),
            Value::Int(value) => int(3, *value),
            Value::Double(value) => double(4, *value),
        };
        len(number, [len(1, key), len(2, any_value)].concat())
    };
    attributes.iter().flat_map(pair).collect()
}
