"""Names of the rollups, and the expressions that they are derived with."""

from __future__ import annotations

from typing import NamedTuple

from receiver.engine.sql_text import Sql, compose, identifier, joined

SLOTS = Sql("otel_rollup_slots")
ATTRIBUTE_KEYS = Sql("otel_attribute_keys")
ATTRIBUTE_VALUES = Sql("otel_attribute_values")
ERRORS = Sql("otel_errors")
SEEN = Sql("otel_deployments")
CALLS = Sql("otel_calls")
HOUR_S = 3_600
HOUR_NS = HOUR_S * 10**9
HOURS_OF_DAY = 24

SECONDS_MAX = 1_800
"""Time limit of a statement. The calls of an hour of 100,000 spans/s, the longest one, take about a third."""
MEMORY_BYTES_MAX = 1 << 30
QUERY_ID = "trace-drain-rollup"
"""Identifies the statements that a stop of the embedded store cancels."""
SETTINGS = compose(
    "SETTINGS max_threads = 1, max_insert_threads = 1, max_execution_time = {seconds_max}, "
    "log_comment = '{query_id}', max_memory_usage = {memory_bytes_max}, "
    "max_bytes_before_external_group_by = {group_bytes_max}",
    seconds_max=SECONDS_MAX,
    query_id=identifier(QUERY_ID),
    memory_bytes_max=MEMORY_BYTES_MAX,
    group_bytes_max=MEMORY_BYTES_MAX // 2,
)
"""One thread: the writer's INSERTs and the intakes go first."""

HOUR = compose("intDiv(toUnixTimestamp64Nano(Timestamp), {hour_ns})", hour_ns=HOUR_NS)
"""Hour of a span, in hours since 1970."""
BUCKETS_PER_OCTAVE = 16
BUCKET = compose(
    "toUInt16(if(Duration = 0, 0, 1 + floor({per_octave} * log2(Duration))))", per_octave=BUCKETS_PER_OCTAVE
)
"""Bucket of a duration. See schemas/0004_otel_red.sql."""
# The batch may have gaps, so the hours are compared, too, and not only the first and the end.
_IS_DERIVED = compose(
    "{in_range} AND has({hours:Array(Int64)}, toInt64({hour})) "
    "AND ReceivedAt <= fromUnixTimestamp64Milli({received_to_ms:Int64}, 'UTC')",
    hour=HOUR,
)
rollup_compose = compose.knowing(
    is_derived=_IS_DERIVED,
    hour=HOUR,
    hour_s=HOUR_S,
    slots=SLOTS,
    attribute_keys=ATTRIBUTE_KEYS,
    attribute_values=ATTRIBUTE_VALUES,
    settings=SETTINGS,
)
"""Composer of the statements that write the rollups."""
IS_REQUEST = Sql("(SpanKind IN ('Server', 'Consumer') OR ParentSpanId = '')")
"""Condition of the spans that are requests."""
_EXPRESSION_OF = {"IsRequest": compose("toUInt8({is_request}) AS IsRequest", is_request=IS_REQUEST)}


class Rollup(NamedTuple):
    """A rollup: its table, what it groups by, and which spans it counts."""

    table: Sql
    keys: tuple[str, ...]
    condition: Sql = Sql("1")

    @property
    def day_table(self) -> Sql:
        """Return the table with the same rows added up by day."""
        return compose("{name}_day", name=self.table)

    @property
    def keys_of_span(self) -> Sql:
        """Return the expressions of the keys for a span."""
        return joined(", ", (_EXPRESSION_OF.get(key, identifier(key)) for key in self.keys))


OPERATIONS = Rollup(Sql("otel_red"), ("ServiceName", "ProjectId", "SpanName", "SpanKind", "IsRequest"))
DEPLOYMENTS = Rollup(
    Sql("otel_red_deployment"), ("ProjectId", "DeploymentId", "ServiceName", "SpanKind"), IS_REQUEST
)
ROLLUPS = (OPERATIONS, DEPLOYMENTS)
ATTRIBUTE_TABLES = (ATTRIBUTE_KEYS, ATTRIBUTE_VALUES)
TOTALLED = (*ATTRIBUTE_TABLES, ERRORS, SEEN)
"""Rollups whose hours have a total row, which proves that the other rows are complete."""
TABLES = (
    SLOTS,
    *(table for rollup in ROLLUPS for table in (rollup.table, rollup.day_table)),
    *TOTALLED,
    CALLS,
)
"""All tables, the slots first."""


class Measure(NamedTuple):
    """A measure: its value for a set of spans, for a single span, and for a set of rows of a rollup."""

    of_spans: Sql
    of_span: Sql
    of_rows: Sql


MEASURES = {
    "Spans": Measure(Sql("count()"), Sql("toUInt64(1)"), Sql("sum(Spans)")),
    "Errors": Measure(
        Sql("countIf(StatusCode = 'Error')"), Sql("toUInt64(StatusCode = 'Error')"), Sql("sum(Errors)")
    ),
    "Weight": Measure(
        Sql("sum(ifNull(SampleWeight, 0))"), Sql("ifNull(SampleWeight, 0)"), Sql("sum(Weight)")
    ),
    "WeightedSpans": Measure(
        Sql("count(SampleWeight)"), Sql("toUInt64(isNotNull(SampleWeight))"), Sql("sum(WeightedSpans)")
    ),
    "ErrorWeight": Measure(
        Sql("sumIf(ifNull(SampleWeight, 0), StatusCode = 'Error')"),
        Sql("if(StatusCode = 'Error', ifNull(SampleWeight, 0), 0)"),
        Sql("sum(ErrorWeight)"),
    ),
    "WeightVariance": Measure(
        Sql("sum(ifNull(SampleWeight * (SampleWeight - 1), 0))"),
        Sql("ifNull(SampleWeight * (SampleWeight - 1), 0)"),
        Sql("sum(WeightVariance)"),
    ),
    # 128 bits: the sum of a few durations that a sender made up exceeds 64 bits.
    "DurationSum": Measure(
        Sql("sum(toUInt128(Duration))"), Sql("toUInt128(Duration)"), Sql("sum(DurationSum)")
    ),
    "DurationMax": Measure(Sql("max(Duration)"), Sql("Duration"), Sql("max(DurationMax)")),
    "Buckets": Measure(
        compose("sumMap([{bucket}], [toUInt64(1)]).1", bucket=BUCKET),
        compose("[{bucket}]", bucket=BUCKET),
        Sql("sumMap(Buckets, BucketSpans).1"),
    ),
    "BucketSpans": Measure(
        compose("sumMap([{bucket}], [toUInt64(1)]).2", bucket=BUCKET),
        Sql("[toUInt64(1)]"),
        Sql("sumMap(Buckets, BucketSpans).2"),
    ),
}
"""Columns of a rollup."""
