"""Names of the rollups, and the expressions that they are derived with."""

from __future__ import annotations

from typing import NamedTuple

SLOTS = "otel_rollup_slots"
ATTRIBUTE_KEYS = "otel_attribute_keys"
ATTRIBUTE_VALUES = "otel_attribute_values"
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
BUCKETS_PER_OCTAVE = 16
BUCKET = f"toUInt16(if(Duration = 0, 0, 1 + floor({BUCKETS_PER_OCTAVE} * log2(Duration))))"
"""Bucket of a duration. See schemas/0004_otel_red.sql."""
IS_REQUEST = "(SpanKind IN ('Server', 'Consumer') OR ParentSpanId = '')"
"""Condition of the spans that are requests."""
_EXPRESSION_OF = {"IsRequest": f"toUInt8({IS_REQUEST}) AS IsRequest"}


class Rollup(NamedTuple):
    """A rollup: its table, what it groups by, and which spans it counts."""

    table: str
    keys: tuple[str, ...]
    condition: str = "1"

    @property
    def day_table(self) -> str:
        """Return the table with the same rows added up by day."""
        return f"{self.table}_day"

    @property
    def keys_of_span(self) -> str:
        """Return the expressions of the keys for a span, separated by commas."""
        return ", ".join(_EXPRESSION_OF.get(key, key) for key in self.keys)


OPERATIONS = Rollup("otel_red", ("ServiceName", "ProjectId", "SpanName", "SpanKind", "IsRequest"))
DEPLOYMENTS = Rollup(
    "otel_red_deployment", ("ProjectId", "DeploymentId", "ServiceName", "SpanKind"), IS_REQUEST
)
ROLLUPS = (OPERATIONS, DEPLOYMENTS)
ATTRIBUTE_TABLES = (ATTRIBUTE_KEYS, ATTRIBUTE_VALUES)
TABLES = (
    SLOTS,
    *(table for rollup in ROLLUPS for table in (rollup.table, rollup.day_table)),
    *ATTRIBUTE_TABLES,
)
"""All tables, the slots first."""


class Measure(NamedTuple):
    """A measure: its value for a set of spans, for a single span, and for a set of rows of a rollup."""

    of_spans: str
    of_span: str
    of_rows: str


MEASURES = {
    "Spans": Measure("count()", "toUInt64(1)", "sum(Spans)"),
    "Errors": Measure("countIf(StatusCode = 'Error')", "toUInt64(StatusCode = 'Error')", "sum(Errors)"),
    "Weight": Measure("sum(ifNull(SampleWeight, 0))", "ifNull(SampleWeight, 0)", "sum(Weight)"),
    "WeightedSpans": Measure(
        "count(SampleWeight)", "toUInt64(isNotNull(SampleWeight))", "sum(WeightedSpans)"
    ),
    "ErrorWeight": Measure(
        "sumIf(ifNull(SampleWeight, 0), StatusCode = 'Error')",
        "if(StatusCode = 'Error', ifNull(SampleWeight, 0), 0)",
        "sum(ErrorWeight)",
    ),
    "WeightVariance": Measure(
        "sum(ifNull(SampleWeight * (SampleWeight - 1), 0))",
        "ifNull(SampleWeight * (SampleWeight - 1), 0)",
        "sum(WeightVariance)",
    ),
    # 128 bits: the sum of a few durations that a sender made up exceeds 64 bits.
    "DurationSum": Measure("sum(toUInt128(Duration))", "toUInt128(Duration)", "sum(DurationSum)"),
    "DurationMax": Measure("max(Duration)", "Duration", "max(DurationMax)"),
    "Buckets": Measure(
        f"sumMap([{BUCKET}], [toUInt64(1)]).1", f"[{BUCKET}]", "sumMap(Buckets, BucketSpans).1"
    ),
    "BucketSpans": Measure(
        f"sumMap([{BUCKET}], [toUInt64(1)]).2", "[toUInt64(1)]", "sumMap(Buckets, BucketSpans).2"
    ),
}
"""Columns of a rollup."""
