-- Time range of each trace: Grafana and the receiver's own trace lookup read it first, so its rows must not
-- expire before the spans do.
CREATE TABLE IF NOT EXISTS otel_traces_trace_id_ts
(
    TraceId String CODEC(ZSTD(1)),
    Start SimpleAggregateFunction(min, DateTime64(9)) CODEC(Delta(8), ZSTD(1)),
    End SimpleAggregateFunction(max, DateTime64(9)) CODEC(Delta(8), ZSTD(1)),

    -- skips parts whose range of ids covers the requested id but that do not contain it
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.01) GRANULARITY 1
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
    index_granularity = 8192
