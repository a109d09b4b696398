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

    -- traces are looked up by id alone; 0.1 % false positives
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    -- finds rare attribute values in milliseconds; keys occur in nearly every granule, so they have no index
    INDEX idx_span_attr_value mapValues(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    -- finds the slowest spans of a day
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1,
    -- the writer counts a segment's rows before it deletes the file: 5 to 20 ms with these two indexes
    INDEX idx_segment SegmentSeq TYPE minmax GRANULARITY 1,
    INDEX idx_received_at ReceivedAt TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
-- a day is dropped as files, and is the unit in which the writer repairs an incomplete INSERT
PARTITION BY toDate(Timestamp, 'UTC')
-- nearly every query names a project and a time range; spans of a trace are adjacent
ORDER BY (ProjectId, toStartOfFiveMinutes(Timestamp), TraceId)
TTL toDateTime(Timestamp, 'UTC') + INTERVAL {retention_days} DAY -- if retention
SETTINGS
    -- counts parts, not INSERTs: 300 segments of 33 days each
    non_replicated_deduplication_window = 10000,
    -- expired rows are deleted as whole parts, without rewriting
    ttl_only_drop_parts = 1,
    -- a query for one attribute reads only its bucket, from the first merge on
    map_serialization_version = 'with_buckets', -- if map_buckets
    map_serialization_version_for_zero_level_parts = 'basic', -- if map_buckets
    map_buckets_strategy = 'constant', -- if map_buckets
    max_buckets_in_map = 6, -- if map_buckets
    map_buckets_min_avg_size = 0, -- if map_buckets
    -- the segment file is deleted after the INSERT, so parts and merges must be durable by then
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 8192
