"""Trace queries: find the time range of a trace in the companion table, then read spans in that range."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import orjson

from receiver.console.queries.filters.filter import Filter
from receiver.console.queries.group_key import GroupKey
from receiver.console.queries.limits import COMPARED_SPANS_MAX, SPANS_MAX, LimitedLines, within_time
from receiver.console.queries.selection import matching_any_time
from receiver.console.queries.traces.otlp import RESOURCE_COLUMNS, SCOPE_COLUMNS, OtlpFormat, encoded
from receiver.console.queries.traces.trace_comparison import differences
from receiver.console.queries.traces.trace_model import IDENTITY, Row, Trace, trace_of
from receiver.engine.sql_text import Sql, compose, identifier, joined
from receiver.engine.store import Parameters, Store
from receiver.errors import MalformedBody

EVENT_MARKS_MAX = 20
"""Maximum number of events of a span, the first, whose times are in its outline."""
LINKING_MAX = 100
LINKING_BEFORE_S = 3_600
LINKING_AFTER_S = 86_400
"""A span usually links to spans that started before it: a consumer to its producers."""
_HEX_32 = re.compile(r"[0-9a-f]{32}")

_WHEN = compose("""
SELECT
    toUnixTimestamp64Nano(if(count() = 0, now64(9) - INTERVAL 1 HOUR, min(Start))),
    toUnixTimestamp64Nano(if(count() = 0, now64(9), max(End)))
FROM {companion}
PREWHERE TraceId = {trace_id:String}
{short_settings}
""")
_OF_TRACE = compose("""
FROM {table}
PREWHERE {in_closed_range}
  AND TraceId = {trace_id:String}
""")
_GROUP = joined(
    ", ",
    (compose("toString({column})", column=identifier(each)) for each in (*RESOURCE_COLUMNS, *SCOPE_COLUMNS)),
)
_compose = compose.knowing(of_trace=_OF_TRACE, identity=IDENTITY, group=_GROUP)
_SPANS = _compose("""
SELECT *
{of_trace}
ORDER BY Timestamp, SpanId
LIMIT {limit:UInt64}
{settings}
""")
_GROUPED = _compose("""
SELECT *
{of_trace}
ORDER BY {group}, Timestamp, SpanId
LIMIT 1 BY {identity}
LIMIT {limit:UInt64}
{settings}
""")
_SINGLE_SPAN = _compose("""
SELECT *
{of_trace}
  AND SpanId = {span_id:String}
ORDER BY Timestamp
LIMIT {limit:UInt64}
{settings}
""")
_MATCHING = """
SELECT SpanId
{of_trace}
WHERE {condition}
LIMIT {limit:UInt64}
{short_settings}
"""
_HIDDEN = _compose("""
SELECT 1
{of_trace}
  AND ProjectId NOT IN {projects:Array(String)}
LIMIT {limit:UInt64}
{short_settings}, {all_rows}
""")
_OUTLINE = """
SELECT
    {identity},
    StatusCode,
    StatusMessage,
    ProjectId,
    DeploymentId,
    arrayMap(
        (at, name) -> (toUnixTimestamp64Nano(at), name = 'exception'),
        arraySlice(Events.Timestamp, 1, {events_max}),
        arraySlice(Events.Name, 1, {events_max})
    ) AS EventMarks,
    {group_value} AS GroupValue
{of_trace}
ORDER BY Timestamp, SpanId
LIMIT {limit:UInt64}
{settings}
"""
_GROUP_VALUE = "if({is_present}, toString({value}), NULL)"
_LINKING = _compose("""
SELECT
    TraceId AS trace_id,
    SpanId AS span_id,
    ServiceName AS service,
    SpanName AS name,
    concat(replaceOne(toString(Timestamp), ' ', 'T'), 'Z') AS start
FROM {table}
PREWHERE {in_closed_range}
  AND has(Links.SpanId, {span_id:String})
WHERE arrayExists(
    (trace, span) -> trace = {trace_id:String} AND span = {span_id:String}, Links.TraceId, Links.SpanId
)
ORDER BY Timestamp, TraceId, SpanId
LIMIT {limit:UInt64}
{settings}
""")


def trace(store: Store, trace_id: str, spans_max: int = SPANS_MAX) -> LimitedLines:
    """Return the spans of a trace by start time, one JSON object a line. An unknown trace has no lines."""
    return LimitedLines(_lines(store, _SPANS, trace_id, spans_max), spans_max)


def outline(
    store: Store, trace_id: str, by: GroupKey | None = None, spans_max: int = SPANS_MAX
) -> LimitedLines:
    """Return the columns of each span that its place in a waterfall depends on, one JSON object a line.

    `EventMarks`: time and whether it is an exception, of its first events. `GroupValue`: its value of `by`.
    """
    statement = _outline(_group_value(store, by))
    return LimitedLines(
        _lines(store, statement, trace_id, spans_max, by.parameters if by else None), spans_max
    )


def linking(store: Store, trace_id: str, span_id: str, spans_max: int = LINKING_MAX) -> LimitedLines:
    """Return the spans of any trace with a link to a span, one JSON object a line, the earliest first.

    They started between `LINKING_BEFORE_S` before the trace of the span and `LINKING_AFTER_S` after it.
    """
    more, around_s = {"span_id": span_id}, (LINKING_BEFORE_S, LINKING_AFTER_S)
    return LimitedLines(_lines(store, _LINKING, trace_id, spans_max, more, around_s), spans_max)


def span(store: Store, trace_id: str, span_id: str) -> LimitedLines:
    """Return every stored column of one span, as one JSON object; no line if the span is not stored."""
    return LimitedLines(_lines(store, _SINGLE_SPAN, trace_id, 1, {"span_id": span_id}), 1)


def matching(store: Store, trace_id: str, tree: Filter, spans_max: int = SPANS_MAX) -> LimitedLines:
    """Return the id of each span of a trace that matches a filter, one JSON object a line."""
    selected = matching_any_time(store, tree)
    statement = _compose(_MATCHING, condition=selected.condition)
    return LimitedLines(_lines(store, statement, trace_id, spans_max, selected.parameters), spans_max)


def hides_spans(store: Store, trace_id: str, projects: Sequence[str]) -> bool:
    """Return whether the trace has spans outside the projects of a caller; without projects, it has none."""
    return bool(projects) and any(_lines(store, _HIDDEN, trace_id, 0, {"projects": list(projects)}))


def trace_otlp(store: Store, trace_id: str, form: OtlpFormat, spans_max: int = SPANS_MAX) -> Iterator[bytes]:
    """Return the trace as one `TracesData` without copies of spans, in pieces; none for an unknown trace.

    Raises for a trace with more spans than the maximum, because OTLP cannot express that spans are missing.
    """
    # The first row is read before a byte is written: an unknown trace has to yield nothing.
    rows = rows_of(_lines(store, _GROUPED, trace_id, spans_max))
    first = next(rows, None)
    if first is not None:
        yield from encoded(_at_most(chain([first], rows), spans_max), form)


def comparison(
    store: Store, trace_id: str, other_id: str, spans_max: int = COMPARED_SPANS_MAX
) -> Iterator[bytes]:
    """Return the differences of two traces, one JSON object a line. No lines if either trace is unknown."""
    first, second = (_outline_tree(store, each, spans_max) for each in (trace_id, other_id))
    if first and second:
        for difference in differences(first, second):
            yield orjson.dumps(difference) + b"\n"


def compared_trace(rows: Sequence[Row], spans_max: int = COMPARED_SPANS_MAX) -> Trace:
    """Return the trace of at least one row of `outline`. Raises for too many to compare."""
    if len(rows) > spans_max:
        raise MalformedBody(
            f"a trace has over {spans_max} spans; expected two smaller traces to compare", field="trace_id"
        )
    return trace_of(rows)


def group_of(row: Row) -> list[str]:
    """Return the key that brings rows of one resource and scope together."""
    return [str(row[column]) for column in (*RESOURCE_COLUMNS, *SCOPE_COLUMNS)]


def normalized_trace_id(trace_id: str) -> str:
    """Return a trace id in lower case without the dashes of a UUID."""
    # Tools show ids in capitals or as a UUID.
    plain = trace_id.strip().lower().replace("-", "")
    if not _HEX_32.fullmatch(plain):
        raise MalformedBody(f"trace id has {len(plain)} characters; expected 32 hex digits", field="trace_id")
    return plain


def _outline(group_value: Sql) -> Sql:
    return _compose(_OUTLINE, events_max=EVENT_MARKS_MAX, group_value=group_value)


def _group_value(store: Store, by: GroupKey | None) -> Sql:
    if by is None:
        return Sql("NULL")
    found = by.expressions(store)
    return compose(_GROUP_VALUE, is_present=found.is_present_sql, value=found.value_sql)


def _lines(  # noqa: PLR0913, PLR0917 - a statement and its limits
    store: Store,
    statement: str,
    trace_id: str,
    spans_max: int,
    more: Parameters | None = None,
    around_s: tuple[int, int] = (0, 0),
) -> Iterator[bytes]:
    """Yield at most a line more than the maximum, which shows that more spans match.

    `around_s`: time before and after the trace in which spans are read, too.
    """
    parameters: Parameters = {"trace_id": normalized_trace_id(trace_id), **(more or {})}
    # The table is not sorted by trace id, so without a time range this would read all of it. The spans of an
    # unknown trace are looked up, too, in the last hour: an answer that came sooner would tell users with
    # limited projects which traces of other projects exist.
    from_ns, to_ns = store.rows(_WHEN, parameters)[0]
    before_ns, after_ns = (seconds * 10**9 for seconds in around_s)
    bounds = {"from_ns": from_ns - before_ns, "to_ns": to_ns + after_ns, "limit": spans_max + 1}
    yield from within_time(store.lines(statement, {**parameters, **bounds}))


def rows_of(pieces: Iterable[bytes]) -> Iterator[Row]:
    """Yield the objects of an answer in lines."""
    return (orjson.loads(line) for piece in pieces for line in piece.splitlines())


def _at_most(rows: Iterable[Row], spans_max: int) -> Iterator[Row]:
    for place, row in enumerate(rows):
        if place == spans_max:
            raise MalformedBody(f"the trace has over {spans_max} spans, too many for OTLP", field="trace_id")
        yield row


def _outline_tree(store: Store, trace_id: str, spans_max: int) -> Trace | None:
    rows = list(rows_of(_lines(store, _outline(Sql("NULL")), trace_id, spans_max)))
    return compared_trace(rows, spans_max) if rows else None
