-- Rollup of otel_traces: a row for each span with an error, with the type and the template of its message. Derived as
-- otel_red is; the total row of an hour proves that its other rows are complete.
CREATE TABLE IF NOT EXISTS otel_errors
(
    Hour DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    -- number of the row in its derivation, which tells equal spans apart
    Row UInt64 CODEC(Delta(8), ZSTD(1)),
    Timestamp DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ProjectId LowCardinality(String) CODEC(ZSTD(1)),
    DeploymentId LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    SampleWeight Nullable(Float64) CODEC(ZSTD(1)),
    Type LowCardinality(String) CODEC(ZSTD(1)),
    Message LowCardinality(String) CODEC(ZSTD(1)),
    -- otel_traces; empty: the total row
    Source LowCardinality(String) CODEC(ZSTD(1)),
    -- in the total row: digest of the statement that derived the rows
    Key LowCardinality(String) CODEC(ZSTD(1)),
    Version UInt64 CODEC(ZSTD(1)),
    -- 1; in the total row: sum of the other rows
    Spans UInt64 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(Version)
PARTITION BY toYYYYMM(Hour, 'UTC')
ORDER BY (Hour, Source, Row)
TTL Hour + INTERVAL {retention_days} DAY + INTERVAL 7 DAY -- if retention
SETTINGS
    ttl_only_drop_parts = 1,
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 8192
