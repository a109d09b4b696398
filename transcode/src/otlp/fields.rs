//! Schema: the messages of a trace export request, with the tags of their fields.
//!
//! From opentelemetry-proto 1.11. Fields that the decoder ignores are listed too, so that a wrong wire type
//! is detected: that identifies a logs or metrics request.

use crate::wire::Message;

macro_rules! message {
    ($module:ident at $path:literal { $($name:ident = $number:literal $wire:ident $field:literal,)* }) => {
        pub mod $module {
            use crate::wire::{Message, wire_type};

            $(pub const $name: u32 = $number << 3 | wire_type::$wire;)*

            pub static MESSAGE: Message = Message {
                path: $path,
                fields: &[$(($name, concat!($path, ".", $field)),)*],
            };
        }
    };
}

/// The whole request. Not built by the macro because its path is not part of its fields' paths.
pub static REQUEST: Message = Message {
    path: "body",
    fields: &[(RESOURCE_SPANS, "resource_spans")],
};
pub const RESOURCE_SPANS: u32 = 1 << 3 | crate::wire::wire_type::LEN;

message! { resource_spans at "resource_spans" {
    RESOURCE = 1 LEN "resource",
    SCOPE_SPANS = 2 LEN "scope_spans",
    SCHEMA_URL = 3 LEN "schema_url",
    INSTRUMENTATION_LIBRARY_SPANS = 1000 LEN "instrumentation_library_spans",
} }

message! { resource at "resource_spans.resource" {
    ATTRIBUTES = 1 LEN "attributes",
    DROPPED_ATTRIBUTES_COUNT = 2 VARINT "dropped_attributes_count",
    ENTITY_REFS = 3 LEN "entity_refs",
} }

message! { scope_spans at "resource_spans.scope_spans" {
    SCOPE = 1 LEN "scope",
    SPANS = 2 LEN "spans",
    SCHEMA_URL = 3 LEN "schema_url",
} }

message! { scope at "resource_spans.scope_spans.scope" {
    NAME = 1 LEN "name",
    VERSION = 2 LEN "version",
    ATTRIBUTES = 3 LEN "attributes",
    DROPPED_ATTRIBUTES_COUNT = 4 VARINT "dropped_attributes_count",
} }

message! { span at "resource_spans.scope_spans.spans" {
    TRACE_ID = 1 LEN "trace_id",
    SPAN_ID = 2 LEN "span_id",
    TRACE_STATE = 3 LEN "trace_state",
    PARENT_SPAN_ID = 4 LEN "parent_span_id",
    NAME = 5 LEN "name",
    KIND = 6 VARINT "kind",
    START_TIME_UNIX_NANO = 7 I64 "start_time_unix_nano",
    END_TIME_UNIX_NANO = 8 I64 "end_time_unix_nano",
    ATTRIBUTES = 9 LEN "attributes",
    DROPPED_ATTRIBUTES_COUNT = 10 VARINT "dropped_attributes_count",
    EVENTS = 11 LEN "events",
    DROPPED_EVENTS_COUNT = 12 VARINT "dropped_events_count",
    LINKS = 13 LEN "links",
    DROPPED_LINKS_COUNT = 14 VARINT "dropped_links_count",
    STATUS = 15 LEN "status",
    FLAGS = 16 I32 "flags",
} }

message! { event at "resource_spans.scope_spans.spans.events" {
    TIME_UNIX_NANO = 1 I64 "time_unix_nano",
    NAME = 2 LEN "name",
    ATTRIBUTES = 3 LEN "attributes",
    DROPPED_ATTRIBUTES_COUNT = 4 VARINT "dropped_attributes_count",
} }

message! { link at "resource_spans.scope_spans.spans.links" {
    TRACE_ID = 1 LEN "trace_id",
    SPAN_ID = 2 LEN "span_id",
    TRACE_STATE = 3 LEN "trace_state",
    ATTRIBUTES = 4 LEN "attributes",
    DROPPED_ATTRIBUTES_COUNT = 5 VARINT "dropped_attributes_count",
    FLAGS = 6 I32 "flags",
} }

message! { status at "resource_spans.scope_spans.spans.status" {
    MESSAGE_TEXT = 2 LEN "message",
    CODE = 3 VARINT "code",
} }

message! { key_value at "attributes" {
    KEY = 1 LEN "key",
    VALUE = 2 LEN "value",
    KEY_STRINDEX = 3 VARINT "key_strindex",
} }

message! { any_value at "attributes.value" {
    STRING_VALUE = 1 LEN "string_value",
    BOOL_VALUE = 2 VARINT "bool_value",
    INT_VALUE = 3 VARINT "int_value",
    DOUBLE_VALUE = 4 I64 "double_value",
    ARRAY_VALUE = 5 LEN "array_value",
    KVLIST_VALUE = 6 LEN "kvlist_value",
    BYTES_VALUE = 7 LEN "bytes_value",
    STRING_VALUE_STRINDEX = 8 VARINT "string_value_strindex",
} }

message! { list at "attributes.value.array_value" {
    VALUES = 1 LEN "values",
} }
