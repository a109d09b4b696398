-- Events of deployments, as the platform's API returned them: build log, changes of state, requests. An event that
-- two receivers fetched at once has several rows until a merge, so queries read a row for each EventId.
CREATE TABLE IF NOT EXISTS otel_deployment_events
(
    -- the project that a webhook of the platform names for the deployment; empty if none does
    ProjectId LowCardinality(String) CODEC(ZSTD(1)),
    DeploymentId LowCardinality(String) CODEC(ZSTD(1)),
    Created DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    -- digest of the event's id, or of its content if it has none
    EventId String CODEC(ZSTD(1)),
    Type LowCardinality(String) CODEC(ZSTD(1)),
    ReadyState LowCardinality(String) CODEC(ZSTD(1)),
    -- of the answer to a request; 0: none
    StatusCode UInt16 CODEC(ZSTD(1)),
    RequestId String CODEC(ZSTD(1)),
    PlatformId String CODEC(ZSTD(1)),
    -- the whole event as JSON, with the fields that have no column
    Event String CODEC(ZSTD(1)),
    -- when the receiver fetched it
    FetchedAt DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),

    Text String ALIAS JSONExtractString(Event, 'payload', 'text'),
    Serial String ALIAS JSONExtractString(Event, 'payload', 'serial'),
    StepName String ALIAS JSONExtractString(Event, 'payload', 'info', 'name'),
    Step String ALIAS JSONExtractString(Event, 'payload', 'info', 'step'),
    Entrypoint String ALIAS JSONExtractString(Event, 'payload', 'info', 'entrypoint'),
    RequestMethod String ALIAS JSONExtractString(Event, 'payload', 'proxy', 'method'),
    RequestHost String ALIAS JSONExtractString(Event, 'payload', 'proxy', 'host'),
    RequestPath String ALIAS JSONExtractString(Event, 'payload', 'proxy', 'path'),

    -- finds the events of a request among those of a deployment
    INDEX idx_request RequestId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_platform PlatformId TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = ReplacingMergeTree
-- a page shows the events of a deployment in a time range
ORDER BY (ProjectId, DeploymentId, Created, EventId)
-- since they were fetched: the events of a deployment that is older than the retention can be fetched, too
TTL toDateTime(FetchedAt, 'UTC') + INTERVAL {event_retention_days} DAY -- if event_retention
SETTINGS
    non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, -- if embedded
    fsync_part_directory = 1, -- if embedded
    min_rows_to_fsync_after_merge = 1, -- if embedded
    old_parts_lifetime = 480, -- if embedded
    index_granularity = 8192
