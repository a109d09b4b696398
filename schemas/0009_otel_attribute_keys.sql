-- Rollup of otel_traces: keys of the attributes of spans and resources by hour and project, with the number of spans
-- that have each. Derived as otel_red is; the total row of an hour proves that its other rows are complete.
CREATE TABLE IF NOT EXISTS otel_attribute_keys
(
    Hour DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    ProjectId LowCardinality(String) CODEC(ZSTD(1)),
    -- the column that has the key: SpanAttributes or ResourceAttributes; empty: the total row
    Source LowCardinality(String) CODEC(ZSTD(1)),
    -- in the total row: the promoted attributes that the hour was derived with
    Key LowCardinality(String) CODEC(ZSTD(1)),
    Version UInt64 CODEC(ZSTD(1)),
    Spans UInt64 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(Version)
PARTITION BY toYYYYMM(Hour, 'UTC')
-- the rows of an attribute are adjacent
ORDER BY (Source, Key, Hour, ProjectId)
TTL Hour + INTERVAL {retention_days} DAY + INTERVAL 7 DAY -- if retention
SETTINGS
    ttl_only_drop_parts = 1,
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 8192
