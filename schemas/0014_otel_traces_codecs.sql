-- Smaller columns of otel_traces. The statement rewrites no part: new parts and merges use the codecs.
ALTER TABLE otel_traces
    -- clocks tick in nanoseconds, or in micro- or milliseconds, which GCD divides by
    MODIFY COLUMN Timestamp CODEC(GCD, Delta(8), T64, ZSTD(1)),
    MODIFY COLUMN `Events.Timestamp` CODEC(GCD, Delta(8), T64, ZSTD(1)),
    MODIFY COLUMN Duration CODEC(T64, ZSTD(1)),
    -- resources repeat: level 3 is half as large, and as fast
    MODIFY COLUMN ResourceAttributes CODEC(ZSTD(3))
