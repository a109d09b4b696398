//! Columns of `otel_traces`: their names and types in the table, and their types in a block.
//!
//! A block uses `LowCardinality` types where they are smaller; the engine converts them on insertion. All
//! columns are always sent, because readers infer a file's structure from its first block.

macro_rules! fields {
    ($($field:ident: $name:literal, $table:literal => $wire:literal;)*) => {
        /// One column.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names are the table's own")]
        pub enum Field { $($field,)* }

        impl Field {
            /// All columns, in the table's order.
            pub const ALL: &'static [Self] = &[$(Self::$field,)*];

            /// Returns the column's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$field => $name,)* }
            }

            /// Returns the column's type in the table.
            #[must_use]
            pub const fn table_type(self) -> &'static str {
                match self { $(Self::$field => $table,)* }
            }

            /// Returns the column's type in a block.
            #[must_use]
            pub const fn wire_type(self) -> &'static str {
                match self { $(Self::$field => $wire,)* }
            }
        }
    };
}

fields! {
    Timestamp: "Timestamp", "DateTime64(9)" => "DateTime64(9)";
    TraceId: "TraceId", "String" => "LowCardinality(String)";
    SpanId: "SpanId", "String" => "FixedString(16)";
    ParentSpanId: "ParentSpanId", "String" => "FixedString(16)";
    TraceState: "TraceState", "String" => "LowCardinality(String)";
    SpanName: "SpanName", "LowCardinality(String)" => "LowCardinality(String)";
    SpanKind: "SpanKind", "LowCardinality(String)" => "LowCardinality(String)";
    ServiceName: "ServiceName", "LowCardinality(String)" => "LowCardinality(String)";
    ResourceAttributes: "ResourceAttributes", "Map(LowCardinality(String), String)" => "Map(LowCardinality(String), LowCardinality(String))";
    ScopeName: "ScopeName", "String" => "LowCardinality(String)";
    ScopeVersion: "ScopeVersion", "String" => "LowCardinality(String)";
    SpanAttributes: "SpanAttributes", "Map(LowCardinality(String), String)" => "Map(LowCardinality(String), LowCardinality(String))";
    Duration: "Duration", "UInt64" => "UInt64";
    StatusCode: "StatusCode", "LowCardinality(String)" => "LowCardinality(String)";
    StatusMessage: "StatusMessage", "String" => "LowCardinality(String)";
    EventsTimestamp: "Events.Timestamp", "Array(DateTime64(9))" => "Array(DateTime64(9))";
    EventsName: "Events.Name", "Array(LowCardinality(String))" => "Array(LowCardinality(String))";
    EventsAttributes: "Events.Attributes", "Array(Map(LowCardinality(String), String))" => "Array(Map(LowCardinality(String), LowCardinality(String)))";
    LinksTraceId: "Links.TraceId", "Array(String)" => "Array(LowCardinality(String))";
    LinksSpanId: "Links.SpanId", "Array(String)" => "Array(FixedString(16))";
    LinksTraceState: "Links.TraceState", "Array(String)" => "Array(LowCardinality(String))";
    LinksAttributes: "Links.Attributes", "Array(Map(LowCardinality(String), String))" => "Array(Map(LowCardinality(String), LowCardinality(String)))";
    ProjectId: "ProjectId", "LowCardinality(String)" => "LowCardinality(String)";
    DeploymentId: "DeploymentId", "LowCardinality(String)" => "LowCardinality(String)";
    Drain: "Drain", "LowCardinality(String)" => "LowCardinality(String)";
    ReceivedAt: "ReceivedAt", "DateTime64(3, 'UTC')" => "DateTime64(3, 'UTC')";
    SegmentEpoch: "SegmentEpoch", "UInt64" => "UInt64";
    SegmentSeq: "SegmentSeq", "UInt64" => "UInt64";
    TraceFlags: "TraceFlags", "UInt32" => "UInt32";
    DroppedAttributesCount: "DroppedAttributesCount", "UInt32" => "UInt32";
    DroppedEventsCount: "DroppedEventsCount", "UInt32" => "UInt32";
    DroppedLinksCount: "DroppedLinksCount", "UInt32" => "UInt32";
    ScopeAttributes: "ScopeAttributes", "Map(LowCardinality(String), String)" => "Map(LowCardinality(String), LowCardinality(String))";
    ResourceSchemaUrl: "ResourceSchemaUrl", "LowCardinality(String)" => "LowCardinality(String)";
    ScopeSchemaUrl: "ScopeSchemaUrl", "LowCardinality(String)" => "LowCardinality(String)";
    SampleWeight: "SampleWeight", "Nullable(Float64)" => "Nullable(Float64)";
    SampleThreshold: "SampleThreshold", "Nullable(UInt64)" => "Nullable(UInt64)";
    SampleReason: "SampleReason", "LowCardinality(String)" => "LowCardinality(String)";
}

/// Names of the span kinds, by number.
pub const KINDS: [&str; 6] = [
    "Unspecified",
    "Internal",
    "Server",
    "Client",
    "Producer",
    "Consumer",
];
/// Names of the status codes, by number.
pub const STATUSES: [&str; 3] = ["Unset", "Ok", "Error"];

macro_rules! schemas {
    ($($file:literal)*) => {
        &[$(($file, include_str!(concat!("../../schemas/", $file))),)*]
    };
}

/// File name and text of every numbered SQL statement, in order.
pub const SCHEMAS: &[(&str, &str)] = schemas! {
    "0000_trace_drain_migrations.sql"
    "0001_otel_traces.sql"
    "0002_otel_traces_trace_id_ts.sql"
    "0003_otel_traces_trace_id_ts_mv.sql"
    "0004_otel_red.sql"
    "0005_otel_red_deployment.sql"
    "0006_otel_rollup_slots.sql"
    "0007_otel_red_day.sql"
    "0008_otel_red_deployment_day.sql"
    "0009_otel_attribute_keys.sql"
    "0010_otel_attribute_values.sql"
    "0011_otel_deployment_events.sql"
    "0012_otel_errors.sql"
    "0013_otel_deployments.sql"
    "0014_otel_traces_codecs.sql"
    "0015_otel_calls.sql"
    "0016_otel_traces_resource_values.sql"
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_file_is_listed_in_order() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas");
        let names = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();

        assert_eq!(
            SCHEMAS.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            names
        );
    }
}
