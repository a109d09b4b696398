//! Field names of OTLP/JSON, and their `snake_case` forms.

macro_rules! fields {
    ($($field:ident $camel:literal $($snake:literal)?;)*) => {
        /// A field of any OTLP message on the traces path, or `Unknown`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) enum Field {
            $($field,)*
            #[default]
            Unknown,
        }

        impl Field {
            /// Every field with its name.
            #[cfg(test)]
            pub const ALL: &'static [(Self, &'static [u8])] = &[$((Self::$field, $camel),)*];

            /// Returns the field of an OTLP/JSON name.
            #[inline]
            pub fn of(name: &[u8]) -> Self {
                match name {
                    $($camel => Self::$field,)*
                    _ => Self::Unknown,
                }
            }

            /// Returns the field of a name in `snake_case`.
            #[cold]
            pub fn of_snake_case(name: &[u8]) -> Self {
                $($(if name == $snake { return Self::$field; })?)*
                Self::Unknown
            }
        }
    };
}

fields! {
    ResourceSpans b"resourceSpans" b"resource_spans";
    ResourceLogs b"resourceLogs" b"resource_logs";
    ResourceMetrics b"resourceMetrics" b"resource_metrics";
    ResourceProfiles b"resourceProfiles" b"resource_profiles";
    Resource b"resource";
    ScopeSpans b"scopeSpans" b"scope_spans";
    InstrumentationLibrarySpans b"instrumentationLibrarySpans" b"instrumentation_library_spans";
    SchemaUrl b"schemaUrl" b"schema_url";
    Scope b"scope";
    InstrumentationLibrary b"instrumentationLibrary" b"instrumentation_library";
    Spans b"spans";
    Attributes b"attributes";
    DroppedAttributesCount b"droppedAttributesCount" b"dropped_attributes_count";
    EntityRefs b"entityRefs" b"entity_refs";
    Name b"name";
    Version b"version";
    TraceId b"traceId" b"trace_id";
    SpanId b"spanId" b"span_id";
    ParentSpanId b"parentSpanId" b"parent_span_id";
    TraceState b"traceState" b"trace_state";
    Flags b"flags";
    Kind b"kind";
    StartTimeUnixNano b"startTimeUnixNano" b"start_time_unix_nano";
    EndTimeUnixNano b"endTimeUnixNano" b"end_time_unix_nano";
    Events b"events";
    DroppedEventsCount b"droppedEventsCount" b"dropped_events_count";
    Links b"links";
    DroppedLinksCount b"droppedLinksCount" b"dropped_links_count";
    Status b"status";
    Code b"code";
    Message b"message";
    TimeUnixNano b"timeUnixNano" b"time_unix_nano";
    Key b"key";
    Value b"value";
    Values b"values";
    StringValue b"stringValue" b"string_value";
    BoolValue b"boolValue" b"bool_value";
    IntValue b"intValue" b"int_value";
    DoubleValue b"doubleValue" b"double_value";
    ArrayValue b"arrayValue" b"array_value";
    KvlistValue b"kvlistValue" b"kvlist_value";
    BytesValue b"bytesValue" b"bytes_value";
    Low b"low";
    High b"high";
    Unsigned b"unsigned";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snake_case(name: &str) -> String {
        let underscored = |letter: char| {
            let lower = letter.to_ascii_lowercase();
            if lower == letter {
                letter.to_string()
            } else {
                format!("_{lower}")
            }
        };
        name.chars().map(underscored).collect()
    }

    #[test]
    fn every_field_is_known_by_both_names() {
        for &(field, name) in Field::ALL {
            let snake = snake_case(std::str::from_utf8(name).unwrap());

            assert_eq!(Field::of(name), field);
            if snake.as_bytes() != name {
                assert_eq!(Field::of_snake_case(snake.as_bytes()), field, "{snake}");
            }
        }
    }

    #[test]
    fn other_names_are_unknown() {
        for name in ["", "Name", "names", "trace_id", "traceid", "TraceId"] {
            assert_eq!(Field::of(name.as_bytes()), Field::Unknown, "{name}");
        }
        assert_eq!(Field::of_snake_case(b"trace__id"), Field::Unknown);
    }
}
