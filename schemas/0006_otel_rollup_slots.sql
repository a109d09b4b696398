-- Hours that the rollups cover, and the rows that each was derived from: a rollup is read only where these prove that
-- it equals the spans. A derivation writes a row before it begins and another one when it is complete.
CREATE TABLE IF NOT EXISTS otel_rollup_slots
(
    Hour DateTime('UTC'),
    Version UInt64,
    IsComplete UInt8,
    -- spans in the hour, and how many of them are requests
    Spans UInt64,
    RequestSpans UInt64,
    -- only spans that were received until then are covered
    ReceivedTo DateTime64(3, 'UTC'),
    -- id of the table and the last mutation of the day's parts
    Source String,
    -- 2 * Version + IsComplete
    Step UInt64
)
ENGINE = ReplacingMergeTree(Step)
ORDER BY Hour
TTL Hour + INTERVAL {retention_days} DAY + INTERVAL 7 DAY -- if retention
SETTINGS
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 8192
