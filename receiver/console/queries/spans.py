"""Spans: every stored column of the newest spans that match."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson
from msgspec.structs import replace

from receiver.console.queries.filters.filter import And, Comparison, Filter, Intrinsic
from receiver.console.queries.filters.newest_first import newest_first
from receiver.console.queries.limits import LimitedLines, within_time
from receiver.console.queries.page_cursor import PageCursor
from receiver.console.queries.question import Asked
from receiver.console.queries.selection import selection
from receiver.console.queries.traces.trace_model import start_ns_of
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import Store
from receiver.errors import LimitExceeded
from receiver.time_range import TimeRange

_NOTHING = Sql("")
_ARROW_SETTINGS = (
    ", output_format_arrow_string_as_string = 1, result_overflow_mode = 'throw', max_result_rows = {rows_max}"
)
_SPANS = """
SELECT *
FROM {table}
WHERE {where}
ORDER BY Timestamp DESC{order}
LIMIT {limit:UInt64} OFFSET {offset:UInt64}
{settings}{more_settings}
"""


_PAGE_ORDER = Sql(", TraceId, SpanId, SegmentEpoch, SegmentSeq")
"""Order of spans with equal times, for pages. It costs reading these columns of all matching spans."""
_AFTER = Sql("""
(
    Timestamp < fromUnixTimestamp64Nano({cursor_ns:Int64})
    OR Timestamp = fromUnixTimestamp64Nano({cursor_ns:Int64})
        AND (TraceId, SpanId, SegmentEpoch, SegmentSeq)
            >= ({cursor_trace:String}, {cursor_span:String}, {cursor_epoch:UInt64}, {cursor_seq:UInt64})
)
""")
_COUNT = """
SELECT count()
FROM
(
    SELECT 1
    FROM {table}
    WHERE {where}
    LIMIT {limit:UInt64}
)
{settings}
"""


def spans(store: Store, asked: Asked[tuple[Filter, ...]], now_s: float) -> LimitedLines:
    """Return the newest matching spans, newest first, one JSON object a line."""
    tree = And((*asked.own, asked.filter))
    selected = selection(store, asked._replace(filter=tree), now_s)
    wanted = {**selected.parameters, "limit": asked.limit + 1, "offset": 0}
    if asked.cursor is None:
        lines = _newest(store, _statement(selected.where()), wanted, tree, now_s)
        return LimitedLines(within_time(lines), asked.limit)
    page = _Page(asked.cursor, wanted)
    where = compose("{where} AND {page}", where=selected.where(), page=page.condition)
    statement = _statement(where, order=_PAGE_ORDER)
    lines = store.lines(statement, {**wanted, **page.parameters})
    return LimitedLines(within_time(lines), asked.limit, next_page=page.next_after)


def _newest(
    store: Store, statement: Sql, wanted: Mapping[str, str | int], tree: Filter, now_s: float
) -> Iterator[bytes]:
    """Yield the lines of the parts of the range until there are enough."""
    from_ns, to_ns, limit = (int(wanted[name]) for name in ("from_ns", "to_ns", "limit"))
    missing = limit

    def has_found() -> bool:
        return missing < limit

    for part in newest_first(tree, (from_ns, to_ns), now_s, has_found):
        for piece in store.lines(statement, {**wanted, **part, "limit": missing}):
            missing -= piece.count(b"\n")
            yield piece
        if not missing:
            return


class _Page:
    """A page: its part of a statement, and the cursor of the page after it.

    Rows keep their position while others arrive, so each page continues exactly where the last one ended.
    """

    def __init__(self, cursor: PageCursor, wanted: Mapping[str, str | int]) -> None:
        self.condition = Sql("1")
        self.parameters: dict[str, str | int] = {}
        self._last = cursor
        if cursor.time_ns is None:
            bounds = {"from_ns": int(wanted["from_ns"]), "to_ns": int(wanted["to_ns"])}
            self._last = replace(cursor, **bounds)
            return
        self.condition = _AFTER
        self.parameters = {
            "from_ns": cursor.from_ns,
            "to_ns": cursor.to_ns,
            # The condition includes the position itself. This many of its rows were on earlier pages.
            "offset": cursor.equal_count,
            "cursor_ns": cursor.time_ns,
            "cursor_trace": cursor.trace_id,
            "cursor_span": cursor.span_id,
            "cursor_epoch": cursor.epoch,
            "cursor_seq": cursor.seq,
        }

    def next_after(self, lines: list[bytes]) -> str:
        """Return the cursor of the page after these lines, which follow the lines of the last call."""
        last = self._position(lines[-1])
        equal_count = next(
            (count for count, line in enumerate(reversed(lines)) if self._position(line) != last), len(lines)
        )
        # All these lines have the position at which the lines before them ended.
        if equal_count == len(lines) and last == replace(self._last, equal_count=0):
            equal_count += self._last.equal_count
        self._last = replace(last, equal_count=equal_count)
        return self._last.text()

    def _position(self, line: bytes) -> PageCursor:
        row = orjson.loads(line)
        return replace(
            self._last,
            time_ns=start_ns_of(row["Timestamp"]),
            trace_id=row["TraceId"],
            span_id=row["SpanId"],
            epoch=row["SegmentEpoch"],
            seq=row["SegmentSeq"],
            equal_count=0,
        )


def spans_arrow(store: Store, asked: Asked[tuple[Filter, ...]], now_s: float) -> Iterator[bytes]:
    """Yield the newest matching spans, newest first, as an Arrow stream.

    Nothing in such a stream could say that it was cut, so it fails if more spans match than the limit.
    """
    selected = selection(store, asked._replace(filter=And((*asked.own, asked.filter))), now_s)
    wanted = {**selected.parameters, "limit": asked.limit + 1}
    counted = compose(_COUNT, where=selected.where())
    # Before the first byte, so that the client gets an error with its reason and not a broken stream.
    if store.rows(counted, wanted)[0][0] > asked.limit:
        raise LimitExceeded(
            f"over {asked.limit} spans match; expected a larger limit, a filter, or a shorter time range",
            field="rows",
        )
    # Spans may arrive after the count. A row too many makes the statement fail.
    settings = compose(_ARROW_SETTINGS, rows_max=asked.limit)
    statement = _statement(selected.where(), settings=settings)
    yield from within_time(store.arrow(statement, {**wanted, "offset": 0}))


def _statement(where: Sql, *, order: Sql = _NOTHING, settings: Sql = _NOTHING) -> Sql:
    return compose(_SPANS, where=where, order=order, more_settings=settings)


def parse_own(query: Mapping[str, str], _: TimeRange) -> tuple[Filter, ...]:
    """Parse the parameters `project` and `service`, which compare exactly; an empty text means no name."""
    names = [name for name in ("project", "service") if name in query]
    return tuple(Comparison(Intrinsic(name), "=", query[name]) for name in names)
