-- Spans: the columns of the OpenTelemetry ClickHouse exporter, with its names and types, then the
-- receiver's own columns.
CREATE TABLE IF NOT EXISTS otel_traces
(
    Timestamp DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)),
    TraceState String CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration UInt64 CODEC(ZSTD(1)),
    StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    StatusMessage String CODEC(ZSTD(1)),
    Events Nested
    (
        Timestamp DateTime64(9),
        Name LowCardinality(String),
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    Links Nested
    (
        TraceId String,
        SpanId String,
        TraceState String,
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),

    ProjectId LowCardinality(String) CODEC(ZSTD(1)),
    DeploymentId LowCardinality(String) CODEC(ZSTD(1)),
    Drain LowCardinality(String) CODEC(ZSTD(1)),
    ReceivedAt DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    SegmentEpoch UInt64 CODEC(ZSTD(1)),
    SegmentSeq UInt64 CODEC(Delta(8), ZSTD(1)),
    TraceFlags UInt32 CODEC(ZSTD(1)),
    DroppedAttributesCount UInt32 CODEC(ZSTD(1)),
    DroppedEventsCount UInt32 CODEC(ZSTD(1)),
    DroppedLinksCount UInt32 CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ScopeSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    SampleWeight Nullable(Float64) CODEC(ZSTD(1)),
    SampleThreshold Nullable(UInt64) CODEC(ZSTD(1)),
    SampleReason LowCardinality(String) CODEC(ZSTD(1)),

    -- traces are looked up by id alone, hundreds at a time in a search; 0.01 % false positives
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.0001) GRANULARITY 1,
    -- finds rare attribute values in milliseconds; INSERTs do not build it, merges do (25.10 and later). Keys
    -- occur in nearly every granule, so they have no index
    INDEX idx_span_attr_value mapValues(SpanAttributes) TYPE bloom_filter(0.001) GRANULARITY 1,
    -- a key without a scope may be an attribute of the resource, so granules are skipped only if both indexes
    -- lack the value (engines that use indexes in OR)
    INDEX idx_resource_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.001) GRANULARITY 1,
    -- finds the slowest spans of a day
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1,
    -- finds the newest spans: newer engines stop reading at granules that cannot contain newer ones
    INDEX idx_timestamp Timestamp TYPE minmax GRANULARITY 1,
    -- skips granules of other projects in queries for a service; most services belong to one project
    INDEX idx_service ServiceName TYPE set(64) GRANULARITY 1,
    -- the writer counts a segment's rows before it deletes the file: 5 to 20 ms with these two indexes
    INDEX idx_segment SegmentSeq TYPE minmax GRANULARITY 1,
    INDEX idx_received_at ReceivedAt TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
-- a day is dropped as files, and is the unit in which the writer repairs an incomplete INSERT
PARTITION BY toDate(Timestamp, 'UTC')
-- nearly every query names a project, a service or both, and a time range; a trace's spans of one service are
-- adjacent
ORDER BY (ProjectId, ServiceName, toStartOfFiveMinutes(Timestamp), TraceId)
TTL toDateTime(Timestamp, 'UTC') + INTERVAL {retention_days} DAY -- if retention
SETTINGS
    -- counts parts, not INSERTs: 300 segments of 33 days each
    non_replicated_deduplication_window = 10000,
    -- expired rows are deleted as whole parts, without rewriting
    ttl_only_drop_parts = 1,
    -- newer engines store the lengths of strings apart by default: 12 bytes a span more
    string_serialization_version = 'single_stream', -- if single_stream
    -- merges combine more parts at a time, so a span is rewritten less often; the number of parts stays the same
    merge_selector_base = 12, -- if merge_base
    -- the segment file is deleted after the INSERT, so parts and merges must be durable by then
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 8192
