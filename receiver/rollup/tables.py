"""Names of the rollups, and the expressions that they are derived with."""

from __future__ import annotations

from typing import NamedTuple

RED = "otel_red"
DEPLOYMENT = "otel_red_deployment"
SLOTS = "otel_rollup_slots"
ATTRIBUTE_KEYS = "otel_attribute_keys"
ATTRIBUTE_VALUES = "otel_attribute_values"
TABLES = (SLOTS, RED, DEPLOYMENT, ATTRIBUTE_KEYS, ATTRIBUTE_VALUES)
"""All tables, the slots first."""
HOUR_S = 3_600
HOUR_NS = HOUR_S * 10**9
HOURS_OF_DAY = 24

SECONDS_MAX = 600
"""Time limit of a statement; an hour of 100,000 spans/s takes about half of it."""
MEMORY_BYTES_MAX = 1 << 30
QUERY_ID = "trace-drain-rollup"
"""Identifies the statements that a stop of the embedded store cancels."""
SETTINGS = (
    f"SETTINGS max_threads = 1, max_insert_threads = 1, max_execution_time = {SECONDS_MAX}, "
    f"log_comment = '{QUERY_ID}', max_memory_usage = {MEMORY_BYTES_MAX}, "
    f"max_bytes_before_external_group_by = {MEMORY_BYTES_MAX // 2}"
)
"""One thread: the writer's INSERTs and the intakes go first."""

HOUR = f"intDiv(toUnixTimestamp64Nano(Timestamp), {HOUR_NS})"
"""Hour of a span, in hours since 1970."""
BUCKET = "toUInt16(if(Duration = 0, 0, 1 + floor(4 * log2(Duration))))"
"""Bucket of a duration: 4 for each octave. See schemas/0004_otel_red.sql."""
ENTRY_KINDS = "('Server', 'Consumer')"


class Rollup(NamedTuple):
    """A rollup: its table, what it groups by, and which spans it counts."""

    table: str
    keys: tuple[str, ...]
    condition: str = ""


ROLLUPS = (
    Rollup(RED, ("ProjectId", "ServiceName", "SpanName", "SpanKind")),
    Rollup(
        DEPLOYMENT,
        ("ProjectId", "DeploymentId", "ServiceName", "SpanName", "SpanKind"),
        f"SpanKind IN {ENTRY_KINDS}",
    ),
)


class Measure(NamedTuple):
    """A measure: its value for a set of spans, and for a single span."""

    aggregate: str
    single: str


MEASURES = {
    "Spans": Measure("count()", "toUInt64(1)"),
    "Errors": Measure("countIf(StatusCode = 'Error')", "toUInt64(StatusCode = 'Error')"),
    "Weight": Measure("sum(ifNull(SampleWeight, 0))", "ifNull(SampleWeight, 0)"),
    "WeightedSpans": Measure("count(SampleWeight)", "toUInt64(isNotNull(SampleWeight))"),
    # 128 bits: the sum of a few durations that a sender made up exceeds 64 bits.
    "DurationSum": Measure("sum(toUInt128(Duration))", "toUInt128(Duration)"),
    "DurationMax": Measure("max(Duration)", "Duration"),
    "Buckets": Measure(f"sumMap([{BUCKET}], [toUInt64(1)]).1", f"[{BUCKET}]"),
    "BucketSpans": Measure(f"sumMap([{BUCKET}], [toUInt64(1)]).2", "[toUInt64(1)]"),
}
"""Columns of a rollup."""
