-- Small indexes for queries without a project. Existing parts get them with their next merge.
ALTER TABLE otel_traces
    -- newest spans: newer engines stop reading at granules that cannot contain newer rows
    ADD INDEX IF NOT EXISTS idx_timestamp Timestamp TYPE minmax GRANULARITY 1,
    -- most services belong to one project: granules of other projects are skipped
    ADD INDEX IF NOT EXISTS idx_service ServiceName TYPE set(64) GRANULARITY 1
