-- Rollup of otel_traces: first and last span, and numbers of spans, by hour, deployment and service. Derived as otel_red
-- is; the total row of an hour proves that its other rows are complete.
CREATE TABLE IF NOT EXISTS otel_deployments
(
    Hour DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    ProjectId LowCardinality(String) CODEC(ZSTD(1)),
    DeploymentId LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    -- start of the first and of the last span
    First DateTime64(9) CODEC(ZSTD(1)),
    Last DateTime64(9) CODEC(ZSTD(1)),
    Errors UInt64 CODEC(ZSTD(1)),
    -- otel_traces; empty: the total row
    Source LowCardinality(String) CODEC(ZSTD(1)),
    -- in the total row: digest of the statement that derived the rows
    Key LowCardinality(String) CODEC(ZSTD(1)),
    Version UInt64 CODEC(ZSTD(1)),
    Spans UInt64 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(Version)
PARTITION BY toYYYYMM(Hour, 'UTC')
ORDER BY (Hour, Source, ProjectId, DeploymentId, ServiceName)
TTL Hour + INTERVAL {retention_days} DAY + INTERVAL 7 DAY -- if retention
SETTINGS
    ttl_only_drop_parts = 1,
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 8192
