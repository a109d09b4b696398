-- Small indexes for the questions that name no project. Parts that are there get them with their next merge.
ALTER TABLE otel_traces
    -- the newest of many: newer engines stop reading where nothing can be newer than what they have
    ADD INDEX IF NOT EXISTS idx_timestamp Timestamp TYPE minmax GRANULARITY 1,
    -- services mostly belong to a project: the granules of the others are not read
    ADD INDEX IF NOT EXISTS idx_service ServiceName TYPE set(64) GRANULARITY 1
