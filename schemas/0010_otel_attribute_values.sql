-- Rollup of otel_traces: values of the promoted attributes, and of all attributes of resources, by hour and project,
-- with the number of spans that have each. Derived as otel_red is; see otel_attribute_keys.
CREATE TABLE IF NOT EXISTS otel_attribute_values
(
    Hour DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    ProjectId LowCardinality(String) CODEC(ZSTD(1)),
    -- the column that the values are from: of a promoted attribute, or ResourceAttributes; empty: the total row
    Source LowCardinality(String) CODEC(ZSTD(1)),
    -- the key in ResourceAttributes, empty for a promoted attribute; in the total row: see otel_attribute_keys
    Key LowCardinality(String) CODEC(ZSTD(1)),
    Value String CODEC(ZSTD(1)),
    -- 1: the row stands for all values of the attribute, which are too many or too long to be listed
    IsOmitted UInt8 CODEC(ZSTD(1)),
    Version UInt64 CODEC(ZSTD(1)),
    Spans UInt64 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(Version)
PARTITION BY toYYYYMM(Hour, 'UTC')
-- the rows of an attribute are adjacent
ORDER BY (Source, Key, Hour, ProjectId, Value, IsOmitted)
TTL Hour + INTERVAL {retention_days} DAY + INTERVAL 7 DAY -- if retention
SETTINGS
    ttl_only_drop_parts = 1,
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 8192
