-- Rollup of otel_traces: calls between services by hour, with errors and a histogram of the durations. Derived after the
-- slots of the hour before, of the hour and of the hour after; the total row of an hour names them, and proves that its
-- other rows are complete.
CREATE TABLE IF NOT EXISTS otel_calls
(
    Hour DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    -- of the caller
    ClientName LowCardinality(String) CODEC(ZSTD(1)),
    ClientProjectId LowCardinality(String) CODEC(ZSTD(1)),
    -- of the called span
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ProjectId LowCardinality(String) CODEC(ZSTD(1)),
    DeploymentId LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    Errors UInt64 CODEC(ZSTD(1)),
    DurationMax UInt64 CODEC(ZSTD(1)),
    -- histogram: see otel_red
    Buckets Array(UInt16) CODEC(ZSTD(1)),
    BucketSpans Array(UInt64) CODEC(T64, ZSTD(1)),
    -- otel_traces; copies: calls that are stored with different projects, deployments or kinds; empty: the total row
    Source LowCardinality(String) CODEC(ZSTD(1)),
    -- in the total row: digest of the statement that derived the rows, and the versions of the three slots
    Key String CODEC(ZSTD(1)),
    Version UInt64 CODEC(ZSTD(1)),
    Spans UInt64 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(Version)
PARTITION BY toYYYYMM(Hour, 'UTC')
ORDER BY (Hour, Source, ClientName, ServiceName, ProjectId, DeploymentId, SpanKind, ClientProjectId)
TTL Hour + INTERVAL {retention_days} DAY + INTERVAL 7 DAY -- if retention
SETTINGS
    ttl_only_drop_parts = 1,
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 1024
