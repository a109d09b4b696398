"""Service map: which services call which, with calls, errors and percentiles of the duration of each edge.

A call is a Server or Consumer span whose parent is stored and belongs to another service. The called span
counts: its status, its duration, and the filter. A span that two senders sent counts once.

The statement joins the spans with the calls by hashes of trace and span id, which are faster than the ids and
differ for different spans in practice. If the calls do not fit the memory, the engine writes them to disk.

Invariant: over a longer range than `RANGE_S_MIN`, the edges are those of its hours added up, from the rollup
or from the spans. So an hour of a rollup depends on few spans outside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from receiver.console.queries.aggregates.proven_hours import ProvenHours, proven_calls
from receiver.console.queries.aggregates.red_measures import OF_ROWS
from receiver.console.queries.aggregates.rollup_lines import Reading, columns_of, is_short, lines_of_reading
from receiver.console.queries.limits import GROUP_MEMORY_BYTES_MAX, LimitedLines, limited_lines, within_time
from receiver.console.queries.question import Asked
from receiver.console.queries.rollup import proofs
from receiver.console.queries.rollup.calls import (
    BY_CALL,
    CALL_KEYS,
    CALL_MEASURES,
    CHECKED,
    IS_CALL,
    callers_of,
    calls_of_spans,
)
from receiver.console.queries.rollup.ranges import Range, Values, condition
from receiver.console.queries.rollup.tables import CALLS, HOUR_NS, MEASURES
from receiver.console.queries.selection import selection
from receiver.engine.sql_text import Sql, compose, identifier, joined, names
from receiver.engine.store import Store

_EDGES = """
SELECT
    client,
    server,
    spans AS calls,
    errors,
    errors / calls AS error_rate,
    quantiles[1] / 1e6 AS p50_ms,
    quantiles[2] / 1e6 AS p95_ms
FROM
(
    SELECT client, server, {measures}
    FROM ({calls})
    GROUP BY client, server
)
ORDER BY calls DESC, client, server
LIMIT {limit:UInt64}
{aggregation_settings}, join_algorithm = 'grace_hash', max_bytes_in_join = {join_bytes_max}
"""
# After the join, because a caller that was stored twice joins twice.
_ONCE = "{calls} LIMIT 1 BY {by_call}"
_OF_SPANS: Final = Sql(
    "count() AS spans, countIf(is_error) AS errors, quantilesExact(0.5, 0.95)(Duration) AS quantiles"
)
_ROWS = """
SELECT ClientName AS client, ServiceName AS server, {measures}
FROM {rollup}
WHERE {rows} AND Source != '' AND ({filter})
"""
_ROWS_OF_SPANS = "SELECT client, server, toUInt64(is_error) AS Errors, {measures} FROM ({calls})"
_MEASURES_OF_SPAN: Final = joined(
    ", ",
    (
        compose("{value} AS {name}", value=MEASURES[name].of_span, name=identifier(name))
        for name in CALL_MEASURES
        if name != "Errors"
    ),
)


class EdgeRow(TypedDict):
    """The calls from one service to another."""

    client: str
    server: str
    calls: int
    errors: int
    error_rate: float
    p50_ms: float
    p95_ms: float


def service_map(store: Store, asked: Asked[None], now_s: float) -> LimitedLines:
    """Return the edges between services, one JSON object a line, those with the most calls first."""
    selected = selection(store, asked, now_s)
    from_ns, to_ns = asked.range.bounds_ns(now_s)
    values: Values = {**selected.parameters, "limit": asked.limit + 1}
    if is_short(asked.range, now_s):
        callers = condition([Range(*callers_of(from_ns, to_ns))], values, "callers")
        calls = calls_of_spans(callers, selected.where(IS_CALL), by_hour=False)
        edges = _edges(_OF_SPANS, compose(_ONCE, calls=calls, by_call=BY_CALL))
        return limited_lines(store, edges, values, asked.limit)

    def reading() -> Reading | None:
        if not columns_of(asked.filter) <= {*CALL_KEYS}:
            return None
        found = proven_calls(store, from_ns, to_ns)
        if not found.slots:
            return None

        def is_same() -> bool:
            return proven_calls(store, from_ns, to_ns).versions_of_slots == found.versions_of_slots

        def is_unchanged(store: Store) -> bool:
            return proofs.is_unchanged(store, CHECKED, found.parts, is_same)

        rows = _rows(found, selected.condition, values)
        return Reading(_edges(OF_ROWS, rows), values, is_unchanged)

    def of_spans() -> tuple[Sql, Values]:
        whole = [Range(from_ns, to_ns)]
        return _edges(_OF_SPANS, _calls(whole, selected.condition, values)), values

    return LimitedLines(within_time(lines_of_reading(store, reading, of_spans)), asked.limit)


def _edges(measures: Sql, calls: Sql) -> Sql:
    return compose(_EDGES, measures=measures, calls=calls, join_bytes_max=GROUP_MEMORY_BYTES_MAX)


def _rows(hours: ProvenHours, filtered: Sql, values: Values) -> Sql:
    """Return rows of the rollup and calls of the other hours, with the measures of the rollup."""
    rows = compose(
        _ROWS,
        measures=names(CALL_MEASURES),
        rollup=CALLS,
        rows=hours.of_rollup(CALLS, values),
        filter=filtered,
    )
    if not (ranges := hours.of_spans()):
        return rows
    calls = _calls(ranges, filtered, values)
    of_spans = compose(_ROWS_OF_SPANS, measures=_MEASURES_OF_SPAN, calls=calls)
    return compose("{rows} UNION ALL {of_spans}", rows=rows, of_spans=of_spans)


def _calls(ranges: Sequence[Range], filtered: Sql, values: Values) -> Sql:
    """Return the calls of ranges with callers of their whole hours, and add the parameters."""
    callers = [
        Range(*callers_of(spans.from_ns // HOUR_NS * HOUR_NS, -(-spans.to_ns // HOUR_NS) * HOUR_NS))
        for spans in ranges
    ]
    called = compose(
        "{ranges} AND {is_call} AND ({filter})",
        ranges=condition(ranges, values, "calls"),
        is_call=IS_CALL,
        filter=filtered,
    )
    by_call = compose("hour, {by_call}", by_call=BY_CALL)
    calls = calls_of_spans(condition(callers, values, "callers"), called)
    return compose(_ONCE, calls=calls, by_call=by_call)
