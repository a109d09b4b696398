"""Sums of the requests in some segments: one statement that finds the rows as the writer does.

The engine limits the number of groups, so that names which differ in every span cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from receiver.console.queries.rollup.tables import IS_REQUEST
from receiver.console.queries.span_metrics.series import OTHER, ZERO, SeriesKey, SpanSeries, TraceExemplar
from receiver.engine.sql_text import compose, identifier
from receiver.engine.store import Store
from receiver.reports import RecordedSegment

QUERY_ID: Final = "trace-drain-span-metrics"
"""Identifies the statement that a stop of the embedded store cancels."""
GROUPS_MAX: Final = 10_000
"""Groups that one statement keeps apart; of smaller ones only the project is kept."""
CHARS_MAX: Final = 128
"""Length of a label value; longer texts are cut."""

# The index of a duration is that of a native histogram of Prometheus with schema 2.
_STATEMENT: Final = compose(
    """
SELECT groupArray((is_request, project, kept_deployment, kept_service, kept_operation, sums))
FROM
(
    SELECT
        is_request, project,
        if(is_kept, deployment, {other:String}) AS kept_deployment,
        if(is_kept, service, {other:String}) AS kept_service,
        if(is_kept, operation, {other:String}) AS kept_operation,
        tuple(
            sum(spans), sum(errors), sum(weight), sum(error_weight), sum(duration_ns),
            sumMap(buckets.1, buckets.2),
            argMax(slow, slow.2), argMax(failed, failed.2)
        ) AS sums
    FROM
    (
        SELECT *, row_number() OVER (ORDER BY spans DESC) <= {groups_max} AS is_kept
        FROM
        (
            SELECT
                {is_request} AS is_request,
                if(is_request, substringUTF8(ProjectId, 1, {chars_max}), '') AS project,
                if(is_request, substringUTF8(DeploymentId, 1, {chars_max}), '') AS deployment,
                if(is_request, substringUTF8(ServiceName, 1, {chars_max}), '') AS service,
                if(is_request, substringUTF8(SpanName, 1, {chars_max}), '') AS operation,
                count() AS spans,
                countIf(StatusCode = 'Error') AS errors,
                sum(ifNull(SampleWeight, 1)) AS weight,
                sumIf(ifNull(SampleWeight, 1), StatusCode = 'Error') AS error_weight,
                sum(toFloat64(Duration)) AS duration_ns,
                sumMap([if(Duration = 0, {zero}, toInt16(ceil(4 * log2(Duration / 1e9))))], [toUInt64(1)])
                    AS buckets,
                argMax((TraceId, Duration, toUnixTimestamp64Milli(Timestamp)), Duration) AS slow,
                argMaxIf(
                    (TraceId, Duration, toUnixTimestamp64Milli(Timestamp)), Duration, StatusCode = 'Error'
                ) AS failed
            FROM {table}
            WHERE (
                SegmentSeq IN {seqs:Array(UInt64)}
                AND (SegmentEpoch, SegmentSeq) IN
                    (SELECT arrayJoin(arrayZip({epochs:Array(UInt64)}, {seqs:Array(UInt64)})))
                OR SegmentEpoch IN {parts_epochs:Array(UInt64)}
            )
            AND ReceivedAt BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
                               AND fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            GROUP BY is_request, project, deployment, service, operation
        )
    )
    GROUP BY is_request, project, kept_deployment, kept_service, kept_operation
    ORDER BY sum(spans) DESC
)
SETTINGS max_threads = 1, max_execution_time = 60, max_memory_usage = {memory_bytes_max},
    log_comment = '{query_id}', additional_table_filters = {}
""",
    is_request=IS_REQUEST,
    groups_max=GROUPS_MAX,
    chars_max=CHARS_MAX,
    zero=ZERO,
    memory_bytes_max=1 << 30,
    query_id=identifier(QUERY_ID),
)


class Requests(NamedTuple):
    """Sums of the requests in some segments."""

    groups: list[tuple[SeriesKey, SpanSeries]]
    """Sums by labels, large groups first."""
    rows: int
    """Rows of the segments in the store, also those that are not requests."""


def requests_of(store: Store, segments: Sequence[RecordedSegment]) -> Requests:
    """Sum up the requests in these segments. Raises `StoreTrouble`."""
    found = store.rows(
        _STATEMENT,
        {
            "epochs": [each.id.epoch for each in segments],
            "seqs": [each.id.seq for each in segments],
            "parts_epochs": [each.parts_epoch for each in segments if each.parts_epoch is not None],
            "from_ms": min(each.received_ms[0] for each in segments),
            "to_ms": max(each.received_ms[1] for each in segments),
            "other": OTHER,
        },
    )
    groups: list[tuple[SeriesKey, SpanSeries]] = []
    rows = 0
    # One array, so that an answer that was cut lacks its row and is an error here.
    ((found_groups,),) = found
    for is_request, *labels, sums in found_groups:
        rows += int(sums[0])
        if is_request:
            groups.append((SeriesKey(*labels), _series(sums)))
    return Requests(groups, rows)


def _series(sums: Sequence[Any]) -> SpanSeries:
    requests, errors, weight, error_weight, duration_ns, (indexes, counts), slow, failed = sums
    return SpanSeries(
        requests=int(requests),
        errors=int(errors),
        estimated_requests=float(weight),
        estimated_errors=float(error_weight),
        seconds=float(duration_ns) / 1e9,
        buckets={int(index): int(count) for index, count in zip(indexes, counts, strict=True)},
        failed=_exemplar(*failed),
        slow=_exemplar(*slow),
    )


def _exemplar(trace_id: str, duration_ns: int, at_ms: int) -> TraceExemplar | None:
    # Empty without a failed request, or if the sender left the id out.
    return TraceExemplar(trace_id, duration_ns / 1e9, at_ms / 1e3) if trace_id else None
