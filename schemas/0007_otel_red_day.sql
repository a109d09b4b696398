-- Rows of otel_red added up by day, of whole days: Hour is midnight, and Version is made of those of the slots.
CREATE TABLE IF NOT EXISTS otel_red_day AS otel_red
ENGINE = ReplacingMergeTree(Version)
PARTITION BY toYYYYMM(Hour, 'UTC')
ORDER BY (Hour, ServiceName, ProjectId, SpanName, SpanKind, IsRequest)
TTL Hour + INTERVAL {retention_days} DAY + INTERVAL 7 DAY -- if retention
SETTINGS
    ttl_only_drop_parts = 1,
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    -- a query for a service decompresses few rows of other services
    min_bytes_for_wide_part = 0,
    min_compress_block_size = 8192,
    max_compress_block_size = 16384,
    index_granularity = 256
