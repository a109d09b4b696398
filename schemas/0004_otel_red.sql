-- Rollup of otel_traces: rate, errors and durations by hour and operation. Derived from the spans, and dropped and
-- derived again at any time; otel_rollup_slots says which rows are complete.
CREATE TABLE IF NOT EXISTS otel_red
(
    Hour DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    ProjectId LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    -- kind Server or Consumer, or without a parent
    IsRequest UInt8 CODEC(ZSTD(1)),
    -- of the derivation that wrote the row
    Version UInt64 CODEC(ZSTD(1)),
    Spans UInt64 CODEC(ZSTD(1)),
    Errors UInt64 CODEC(ZSTD(1)),
    -- sum of the sample weights, and the number of spans that have one
    Weight Float64 CODEC(ZSTD(1)),
    WeightedSpans UInt64 CODEC(ZSTD(1)),
    -- sum of the weights of the errors, and of weight * (weight - 1), for the margin of an estimate
    ErrorWeight Float64 CODEC(ZSTD(1)),
    WeightVariance Float64 CODEC(ZSTD(1)),
    DurationSum UInt128 CODEC(ZSTD(1)),
    DurationMax UInt64 CODEC(ZSTD(1)),
    -- histogram: bucket 0 is a duration of 0, bucket b > 0 begins at 2 ^ ((b - 1) / 16) nanoseconds
    Buckets Array(UInt16) CODEC(ZSTD(1)),
    -- small numbers: T64 halves the time to read them
    BucketSpans Array(UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = ReplacingMergeTree(Version)
-- a query of ten days reads few parts
PARTITION BY toYYYYMM(Hour, 'UTC')
-- each derivation writes an hour, so parts overlap only where an hour was derived again, and FINAL costs nothing
-- the operations of a service are adjacent
ORDER BY (Hour, ServiceName, ProjectId, SpanName, SpanKind, IsRequest)
TTL Hour + INTERVAL {retention_days} DAY + INTERVAL 7 DAY -- if retention
SETTINGS
    ttl_only_drop_parts = 1,
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    -- a service has few rows of an hour, and a larger granule would contain those of all others
    index_granularity = 1024
