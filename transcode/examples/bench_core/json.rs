//! A delivery as `application/json`, formatted as SDKs format it.

use std::fmt::Write as _;

use crate::payload::{Attributes, Resource, Span, Value};

/// Returns the request body.
pub fn body(delivery: &[Resource]) -> Vec<u8> {
    format!(
        "{{\"resourceSpans\":[{}]}}",
        joined(delivery, resource_spans)
    )
    .into_bytes()
}

fn joined<T>(items: &[T], write: impl Fn(&T) -> String) -> String {
    items.iter().map(write).collect::<Vec<_>>().join(",")
}

fn resource_spans(resource: &Resource) -> String {
    let (name, version) = resource.scope;
    format!(
        "{{\"resource\":{{\"attributes\":{}}},\"scopeSpans\":[{{\"scope\":{{\"name\":{name:?},\"version\":{version:?}}},\"spans\":[{}]}}]}}",
        attributes(&resource.attributes),
        joined(&resource.spans, span)
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn span(span: &Span) -> String {
    let parent = span
        .parent_span_id
        .map(|id| format!("\"parentSpanId\":\"{}\",", hex(&id)));
    let event = |exception: &Attributes| {
        format!(
            "{{\"timeUnixNano\":\"{}\",\"name\":\"exception\",\"attributes\":{},\"droppedAttributesCount\":0}}",
            span.end_unix_nano,
            attributes(exception)
        )
    };
    format!(
        "{{\"traceId\":\"{}\",\"spanId\":\"{}\",{}\"flags\":257,\"name\":{:?},\"kind\":{},\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\",\"attributes\":{},\"droppedAttributesCount\":0,\"events\":[{}],\"droppedEventsCount\":0,\"status\":{{\"code\":{}}},\"links\":[],\"droppedLinksCount\":0}}",
        hex(&span.trace_id),
        hex(&span.span_id),
        parent.unwrap_or_default(),
        span.name,
        span.kind,
        span.start_unix_nano,
        span.end_unix_nano,
        attributes(&span.attributes),
        span.exception.as_ref().map(event).unwrap_or_default(),
        span.status_code
    )
}

fn attributes(attributes: &Attributes) -> String {
    let pair = |(key, value): &(&str, Value)| {
        let any_value = match value {
            Value::Text(text) => format!("\"stringValue\":{}", quoted(text)),
            Value::Bool(value) => format!("\"boolValue\":{value}"),
            Value::Int(value) => format!("\"intValue\":\"{value}\""),
            Value::Double(value) => format!("\"doubleValue\":{value}"),
        };
        format!("{{\"key\":{key:?},\"value\":{{{any_value}}}}}")
    };
    format!("[{}]", joined(attributes, pair))
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    _transcode::text::push_json_string(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}
