-- Applied migrations: one row per numbered statement.
CREATE TABLE IF NOT EXISTS trace_drain_migrations
(
    Number UInt32,
    Name String,
    AppliedAt DateTime64(3, 'UTC') DEFAULT now64(3),
    Receiver String,
    Engine String
)
ENGINE = MergeTree
ORDER BY Number
SETTINGS
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 8192
