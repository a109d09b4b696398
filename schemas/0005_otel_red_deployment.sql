-- Rollup of the requests (kind Server or Consumer, or without a parent) by hour and deployment: see otel_red.
CREATE TABLE IF NOT EXISTS otel_red_deployment
(
    Hour DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    ProjectId LowCardinality(String) CODEC(ZSTD(1)),
    DeploymentId LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    Version UInt64 CODEC(ZSTD(1)),
    Spans UInt64 CODEC(ZSTD(1)),
    Errors UInt64 CODEC(ZSTD(1)),
    Weight Float64 CODEC(ZSTD(1)),
    WeightedSpans UInt64 CODEC(ZSTD(1)),
    ErrorWeight Float64 CODEC(ZSTD(1)),
    WeightVariance Float64 CODEC(ZSTD(1)),
    DurationSum UInt128 CODEC(ZSTD(1)),
    DurationMax UInt64 CODEC(ZSTD(1)),
    Buckets Array(UInt16) CODEC(ZSTD(1)),
    BucketSpans Array(UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = ReplacingMergeTree(Version)
PARTITION BY toYYYYMM(Hour, 'UTC')
ORDER BY (Hour, ProjectId, DeploymentId, ServiceName, SpanKind)
TTL Hour + INTERVAL {retention_days} DAY + INTERVAL 7 DAY -- if retention
SETTINGS
    ttl_only_drop_parts = 1,
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 1024
