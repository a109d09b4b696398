"""Search: summaries of the traces that match a filter.

Statements find the ids of the traces with the newest matching spans, if possible in the newest part of the
range alone: see `newest_first`. Their whole time range comes from the companion table, and a further one
summarizes all their spans, also those outside the range. A filter by fields of the trace needs the whole time
range of all candidates before. A search in another order reads all spans of all matching traces.

Invariant: pages sort traces by their first matching span. A span that is stored between two pages moves its
trace only to a later page, so no trace is missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, NotRequired, TypedDict

import orjson
from msgspec.structs import replace

from receiver.console.queries.filters import filter as filters
from receiver.console.queries.filters.close_keys import close_keys
from receiver.console.queries.filters.filter_forms import parse_any_form
from receiver.console.queries.filters.newest_first import newest_first
from receiver.console.queries.filters.trace_sql import TraceCondition, trace_compose
from receiver.console.queries.filters.traceql import parse_traceql
from receiver.console.queries.group_key import GroupKey
from receiver.console.queries.limits import TRACES_DEFAULT, LimitedLines, within_time
from receiver.console.queries.page_cursor import PARAMETER as CURSOR
from receiver.console.queries.page_cursor import PageCursor
from receiver.console.queries.selection import trace_selection
from receiver.console.queries.traces.trace_columns import (
    Order,
    attributes_of_traces,
    order_expression,
    parse_columns,
    parse_order,
)
from receiver.engine.sql_text import SECONDS_MAX, Sql, compose, started_between
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.time_range import TimeRange

BATCH_TRACES = 500
"""Traces that a statement summarizes: bounds its parameters, and its memory."""

Match = tuple[str, int, int]
"""Id of a trace, and the times of its first and its last matching span."""

_MATCHED = """
SELECT
    TraceId,
    toUnixTimestamp64Nano(min(Timestamp)) AS Oldest,
    toUnixTimestamp64Nano(max(Timestamp)) AS Newest
FROM {table}
WHERE {in_range}
  AND ({condition})
GROUP BY TraceId
{having}
ORDER BY {order} DESC, TraceId
LIMIT {limit:UInt64}
{short_settings}
"""
_RECEIVED = Sql("ReceivedAt <= fromUnixTimestamp64Milli({asked_ms:Int64}, 'UTC')")
_AFTER = Sql("Oldest < {cursor_ns:Int64} OR Oldest = {cursor_ns:Int64} AND TraceId > {cursor_trace:String}")
_BOUNDS = """
SELECT count(), toUnixTimestamp64Nano(min(Start)), toUnixTimestamp64Nano(max(End))
FROM {companion}
PREWHERE TraceId IN {ids}
{short_settings}
"""
_SUMMARIES = """
SELECT
    TraceId AS trace_id,
    {trace_service} AS service,
    {trace_name} AS name,
    argMin(DeploymentId, {root_first}) AS deployment,
    concat(replaceOne(toString(min(Timestamp)), ' ', 'T'), 'Z') AS start,
    toFloat64({trace_duration}) / 1e6 AS duration_ms,
    {trace_spans} AS spans,
    {trace_errors} AS errors{attributes}
FROM {table}
PREWHERE {in_closed_range}
  AND TraceId IN {ids:Array(String)}
GROUP BY TraceId
{short_settings}
"""


_SORTED = """
SELECT TraceId, toUnixTimestamp64Nano(min(Timestamp)), toUnixTimestamp64Nano(max(Timestamp))
FROM {table}
WHERE {whole} AND TraceId IN ({matching})
GROUP BY TraceId
ORDER BY {order}, TraceId
LIMIT {limit:UInt64}
{short_settings}
"""
_MATCHING = "SELECT TraceId FROM {table} WHERE {in_range} AND ({condition}) GROUP BY TraceId {having}"
_WHOLE = started_between("whole_from_ns", "whole_to_ns", is_closed=True)


class TraceSummary(TypedDict):
    """Summary of a trace."""

    trace_id: str
    service: str
    name: str
    deployment: str
    start: str
    duration_ms: float
    spans: int
    errors: int
    columns: NotRequired[dict[str, str]]
    """Attribute → value of the root span, or of the earliest span that has it; empty if no span has it."""


class SearchQuery(NamedTuple):
    """A search: a filter of traces in a time range, the order and the attributes of the answer."""

    filter: filters.TraceFilter = filters.HasSpan(filters.And(()))
    range: TimeRange = TimeRange()
    limit: int = TRACES_DEFAULT
    cursor: PageCursor | None = None
    order: Order | None = None
    """`None`: those with the newest matching spans first."""
    columns: Mapping[str, GroupKey] = {}
    """Name of an attribute in the request → its key."""


def parse_search(query: Mapping[str, str], time_range: TimeRange) -> SearchQuery:
    """Parse the parameters of a search, without its limit and its cursor."""
    order = parse_order(query.get("sort", ""))
    if order is not None and CURSOR in query:
        raise MalformedBody("sort and cursor: expected only one; pages are sorted by time", field="sort")
    columns = parse_columns(query.get("columns", ""))
    return SearchQuery(parse_traces(query), time_range, order=order, columns=columns)


def parse_traces(query: Mapping[str, str]) -> filters.TraceFilter:
    """Parse the filter of traces: in TraceQL, in the one-line form or in JSON."""
    if "filter" in query and "q" in query:
        raise MalformedBody("filter and q: expected only one of them; q is TraceQL", field="q")
    return parse_traceql(query["q"]) if "q" in query else parse_any_form(query.get("filter", ""))


class WholeTraces(NamedTuple):
    """Ids of traces, and the first and the last time of all their spans: the parameters of a statement."""

    ids: Sequence[str]
    from_ns: int
    to_ns: int


NO_TRACES = WholeTraces((), 0, 0)


def search(
    store: Store, wanted: SearchQuery, *, now_s: float, clock: Callable[[], float] = time.monotonic
) -> LimitedLines:
    """Return a summary of each trace, one JSON object a line, those with the newest matching spans first.

    Pages have the traces with the newest first matching span first.
    """
    page = None
    if wanted.cursor is not None:
        page = _Page(wanted.cursor, wanted.range.bounds_ns(now_s), now_s)
    return LimitedLines(
        within_time(_summaries(store, wanted, now_s, clock, page), clock),
        wanted.limit,
        lambda: close_keys(store, wanted.filter, wanted.range.parameters(now_s)),
        None if page is None else page.next_after,
    )


class _Page:
    """A page: its part of a statement, and the cursor of the page after it.

    Spans that arrive after the first page would move their traces to later pages, so pages ignore them. Spans
    that had arrived before, but were not stored yet, do move a trace that was listed, which then repeats.
    """

    def __init__(self, cursor: PageCursor, bounds_ns: tuple[int, int], now_s: float) -> None:
        if cursor.time_ns is None:
            self.after = Sql("1")
            from_ns, to_ns = bounds_ns
            cursor = replace(cursor, from_ns=from_ns, to_ns=to_ns, asked_ms=int(now_s * 1_000))
        else:
            self.after = _AFTER
        self.parameters: dict[str, str | int] = {
            "from_ns": cursor.from_ns,
            "to_ns": cursor.to_ns,
            "asked_ms": cursor.asked_ms,
            "cursor_ns": cursor.time_ns or 0,
            "cursor_trace": cursor.trace_id,
        }
        self._cursor = cursor
        self._oldest_ns_of: dict[str, int] = {}

    def record(self, matched: Sequence[Match]) -> None:
        """Record the positions of the traces of this page."""
        self._oldest_ns_of = {trace_id: oldest for trace_id, oldest, _ in matched}

    def next_after(self, lines: list[bytes]) -> str:
        """Return the cursor of the page after these lines."""
        # By the last printed trace: more were matched than the limit allows to print.
        trace_id = str(orjson.loads(lines[-1])["trace_id"])
        return replace(self._cursor, time_ns=self._oldest_ns_of[trace_id], trace_id=trace_id).text()


def _summaries(
    store: Store, wanted: SearchQuery, now_s: float, clock: Callable[[], float], page: _Page | None
) -> Iterator[bytes]:
    began_s = clock()
    matched = _matched(store, wanted, now_s, page)
    attributes, keys = attributes_of_traces(store, wanted.columns)
    statement = trace_compose(_SUMMARIES, attributes=attributes)
    for place in range(0, len(matched), BATCH_TRACES):
        if clock() - began_s >= SECONDS_MAX:
            return  # the caller raises: see `within_time`
        batch = matched[place : place + BATCH_TRACES]
        pieces = store.lines(statement, {**_whole(store, batch)._asdict(), **keys})
        lines = {
            orjson.loads(line)["trace_id"]: line
            for piece in pieces
            for line in piece.splitlines(keepends=True)
        }
        # Sorted here, because the ids in a second clause cost the engine a millisecond.
        yield b"".join(lines[trace_id] for trace_id, _, _ in batch if trace_id in lines)


def _matched(store: Store, wanted: SearchQuery, now_s: float, page: _Page | None) -> Sequence[Match]:
    """Return the traces with the newest matching spans; of a page, those with the newest first matching span.

    If newer parts of the range have enough traces, the rest is not read: its traces are older.
    """
    tree = wanted.filter
    condition = trace_selection(store, tree, wanted.range, now_s)
    parameters, where, having = condition.parameters, condition.where, condition.having
    if page is not None:
        parameters |= page.parameters
        # A page begins after a trace: a condition on rows would return traces of earlier pages again, because
        # of their older spans.
        where = compose("({where}) AND {received}", where=where, received=_RECEIVED)
        having = compose("({having}) AND ({after})", having=having or 1, after=page.after)
    if condition.candidates:
        parameters |= _whole_range(store, condition.candidates, parameters)
    if wanted.order is not None:
        return _sorted(store, condition._replace(parameters=parameters), wanted.order, wanted.limit)
    statement = compose(
        _MATCHED,
        condition=where,
        having=compose("HAVING {having}", having=having) if having else Sql(""),
        order=Sql("Newest") if page is None else Sql("Oldest"),
    )
    parameters["limit"] = wanted.limit + 1
    # A trace without a span in the newest part may have it in the rest, which decides about NOT and AND.
    reads_whole_traces = having or condition.candidates
    if page is None and isinstance(tree, filters.HasSpan) and not reads_whole_traces:
        return _newest(store, statement, parameters, tree.part, now_s)
    matched = store.rows(statement, parameters)
    if page is not None:
        page.record(matched)
    return matched


def _whole_range(store: Store, traces: Sql, parameters: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return the time range of all spans of the traces that a statement returns, as parameters."""
    bounds = compose(_BOUNDS, ids=compose("({traces})", traces=traces))
    found, start_ns, end_ns = store.rows(bounds, parameters)[0]
    from_ns, to_ns = int(parameters["from_ns"]), int(parameters["to_ns"])
    # The companion may lack traces for a moment, so the range of the question is always part of it.
    return {
        "whole_from_ns": min(start_ns, from_ns) if found else from_ns,
        "whole_to_ns": max(end_ns, to_ns) if found else to_ns,
    }


def _sorted(store: Store, condition: TraceCondition, order: Order, limit: int) -> Sequence[Match]:
    """Return the first of all matching traces in another order than by time."""
    having = compose("HAVING {having}", having=condition.having) if condition.having else Sql("")
    matching = compose(_MATCHING, condition=condition.where, having=having)
    parameters = condition.parameters
    # Candidates are at least the matching traces, so their range is wide enough.
    if not condition.candidates:
        parameters |= _whole_range(store, matching, parameters)
    by, keys = order_expression(store, order)
    statement = compose(_SORTED, whole=_WHOLE, matching=matching, order=by)
    return store.rows(statement, {**parameters, **keys, "limit": limit + 1})


def _newest(
    store: Store, statement: str, parameters: Mapping[str, str | int], tree: filters.Filter, now_s: float
) -> Sequence[Match]:
    """Read the parts of the range until there are enough traces."""
    found: dict[str, Match] = {}
    from_ns, to_ns, limit = (int(parameters[name]) for name in ("from_ns", "to_ns", "limit"))
    for part in newest_first(tree, (from_ns, to_ns), now_s, lambda: bool(found)):
        for match in store.rows(statement, {**parameters, **part}):
            # The newest matching span of a trace is in the first part that has the trace.
            found.setdefault(match[0], match)
        # The statement may return one trace more than the answer, which shows that there are more.
        if len(found) >= limit:
            break
    return [*found.values()][:limit]


def found_traces(store: Store, wanted: SearchQuery, now_s: float) -> WholeTraces:
    """Return the newest matching traces, those with the newest matching spans first."""
    matched = _matched(store, wanted, now_s, None)[: wanted.limit]
    return _whole(store, matched) if matched else NO_TRACES


def whole_traces(store: Store, ids: Sequence[str]) -> WholeTraces:
    """Return these traces; `NO_TRACES` if the companion table has none of them."""
    bounds = compose(_BOUNDS, ids=Sql("{ids:Array(String)}"))
    found, from_ns, to_ns = store.rows(bounds, {"ids": ids})[0]
    return WholeTraces(ids, from_ns, to_ns) if found else NO_TRACES


def _whole(store: Store, matched: Sequence[Match]) -> WholeTraces:
    """Return the matched traces.

    The companion may lack traces for a moment, so the range covers the matching spans in any case.
    """
    ids = [trace_id for trace_id, _, _ in matched]
    from_ns = min(oldest for _, oldest, _ in matched)
    to_ns = max(newest for _, _, newest in matched)
    whole = whole_traces(store, ids)
    if whole.ids:
        from_ns, to_ns = min(from_ns, whole.from_ns), max(to_ns, whole.to_ns)
    return WholeTraces(ids, from_ns, to_ns)
