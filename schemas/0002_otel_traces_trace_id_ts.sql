-- Time range of each trace: Grafana and the receiver's own trace lookup read it first, so its rows must not
-- expire before the spans do.
CREATE TABLE IF NOT EXISTS otel_traces_trace_id_ts
(
    TraceId String CODEC(ZSTD(1)),
    Start SimpleAggregateFunction(min, DateTime64(9)) CODEC(Delta(8), ZSTD(1)),
    End SimpleAggregateFunction(max, DateTime64(9)) CODEC(Delta(8), ZSTD(1)),

    -- skips days without the requested ids. 0.01 % false positives, because a search looks up hundreds of ids at a
    -- time, and a granule is read if any of them seems to be in it
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.0001) GRANULARITY 1
)
ENGINE = AggregatingMergeTree
PARTITION BY toDate(Start, 'UTC')
ORDER BY TraceId
TTL toDateTime(End, 'UTC') + INTERVAL {retention_days} DAY + INTERVAL 2 DAY -- if retention
SETTINGS
    non_replicated_deduplication_window = 10000,
    ttl_only_drop_parts = 1,
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    -- ids are looked up one by one, so fewer rows around each are read
    index_granularity = 1024
