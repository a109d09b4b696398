"""Searches of other tools: the traces found with their services, with their matching spans, or whole.

Invariant: a span that two senders sent counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from receiver.console.queries.filters.trace_sql import trace_compose
from receiver.console.queries.limits import within_time
from receiver.console.queries.search import SearchQuery, WholeTraces
from receiver.console.queries.selection import trace_selection
from receiver.console.queries.traces.trace_model import Row
from receiver.console.queries.traces.traces import rows_of
from receiver.engine.sql_text import compose
from receiver.engine.store import Parameters, Store
from receiver.errors import LimitExceeded

FOUND_SPANS_MAX: Final = 100_000
"""Maximum number of spans of all traces that a search returns whole."""
_OF_TRACES = compose("""
FROM {table}
WHERE TraceId IN {ids:Array(String)}
  AND {in_closed_range}
""")
_compose = trace_compose.knowing(of_traces=_OF_TRACES)
_OVERVIEWS = _compose("""
-- id of a span → its children, and an empty text if the span itself is stored
WITH groupUniqArrayMap(map(SpanId, '', ParentSpanId, SpanId)) AS children_of
SELECT
    TraceId AS trace_id,
    {trace_service} AS service,
    {trace_name} AS name,
    toUnixTimestamp64Nano(min(Timestamp)) AS start_ns,
    toString({trace_duration}) AS duration_ns,
    {trace_spans} AS spans,
    {trace_errors} AS errors,
    arraySum(
        (parent, children) -> if(parent = '' OR has(children, ''), 0, length(children)),
        mapKeys(children_of),
        mapValues(children_of)
    ) AS orphans,
    uniqExactMap(map(toString(ServiceName), SpanId)) AS service_spans,
    uniqExactMapIf(map(toString(ServiceName), SpanId), StatusCode = 'Error') AS service_errors
{of_traces}
GROUP BY TraceId
ORDER BY indexOf({ids:Array(String)}, trace_id)
{settings}
""")
_COUNT = _compose("""
SELECT count()
{of_traces}
{settings}
""")
# `transform` looks each id up; `indexOf` would compare it with all ids.
_WHOLE = _compose("""
SELECT *
{of_traces}
ORDER BY
    transform(TraceId, {ids:Array(String)}, {places:Array(UInt64)}, toUInt64(0)),
    Timestamp,
    SpanId
LIMIT 1 BY TraceId, {identity}
{settings}
""")
_MATCHING = """
FROM {table}
WHERE TraceId IN {ids:Array(String)}
  AND {in_range}
  AND ({condition})
"""
_MATCHING_COUNTS = """
SELECT TraceId, uniqExact({identity})
{matching}
GROUP BY TraceId
{settings}
"""
# The ids of the first spans are found first, so that only their attributes are read.
_FIRST_MATCHING = """
SELECT
    TraceId,
    SpanId,
    SpanName,
    toUnixTimestamp64Nano(Timestamp) AS StartNs,
    Duration,
    ResourceAttributes,
    SpanAttributes
{matching}
  AND (TraceId, SpanId) IN
(
    SELECT
        TraceId,
        arrayJoin(arraySlice(arraySort(groupUniqArray((Timestamp, SpanId))), 1, {spans_max:UInt64})).2
    {matching}
    GROUP BY TraceId
)
ORDER BY TraceId, Timestamp, SpanId
LIMIT 1 BY TraceId, SpanId
{settings}
"""


class Matching(NamedTuple):
    """The spans of a trace that match a search."""

    matched: int
    first: list[Row]
    """The first of them, by start."""


def overviews(store: Store, found: WholeTraces) -> Iterator[Row]:
    """Yield the root, the times and the spans by service of each trace, in the order of the ids."""
    if found.ids:
        yield from _rows(store, _OVERVIEWS, found._asdict())


def whole_spans(store: Store, found: WholeTraces, spans_max: int = FOUND_SPANS_MAX) -> Iterator[Row]:
    """Yield every stored column of all spans, trace by trace, by start. Raises for more than the maximum."""
    if not found.ids:
        return
    # Before the spans are sorted, and before the first is sent: an answer that has begun cannot fail.
    if store.rows(_COUNT, found._asdict())[0][0] > spans_max:
        raise LimitExceeded(
            f"the traces have over {spans_max} spans; expected a smaller limit of traces", field="spans"
        )
    yield from _rows(store, _WHOLE, {**found._asdict(), "places": list(range(len(found.ids)))})


def matching_spans(
    store: Store, wanted: SearchQuery, found: WholeTraces, now_s: float, spans_max: int
) -> dict[str, Matching]:
    """Return the spans of each trace that match, and at most `spans_max` of them with their attributes."""
    if not found.ids:
        return {}
    condition = trace_selection(store, wanted.filter, wanted.range, now_s)
    matching = compose(_MATCHING, condition=condition.where)
    parameters: dict[str, Any] = {
        **condition.parameters,
        "ids": found.ids,
        # Of these traces all spans are in this range, which fields of the trace are computed from.
        "whole_from_ns": found.from_ns,
        "whole_to_ns": found.to_ns,
        "spans_max": spans_max,
    }
    counts = store.rows(_compose(_MATCHING_COUNTS, matching=matching), parameters)
    of_trace = {trace_id: Matching(count, []) for trace_id, count in counts}
    for row in _rows(store, compose(_FIRST_MATCHING, matching=matching), parameters):
        # A span may have arrived since the count.
        of_trace.setdefault(row["TraceId"], Matching(1, [])).first.append(row)
    return of_trace


def _rows(store: Store, statement: str, parameters: Parameters) -> Iterator[Row]:
    return rows_of(within_time(store.lines(statement, parameters)))
