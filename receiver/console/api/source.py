"""Source of spans for pages and tools: runs their queries with the queues and limits of the API.

The API cancels the queries of a client that has disconnected.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import structlog
from aiohttp import web

from receiver.console.api.access import CALLER
from receiver.console.api.query_queue import QueryQueue, Queues
from receiver.console.api.reader import PreparedKey, Query, Reader
from receiver.console.queries.filters.filter import Filter
from receiver.console.queries.group_key import GroupKey
from receiver.console.queries.limits import LimitedLines
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.raw_sql.catalog import columns_by_table
from receiver.console.queries.raw_sql.statement import Column, SqlQuery, sql
from receiver.console.queries.traces import traces
from receiver.engine.sql_text import SECONDS_MAX
from receiver.engine.store import Store
from receiver.errors import LimitExceeded, StoreTrouble
from receiver.http.peer import network_of

Row = dict[str, Any]
Result = TypeVar("Result")
SQL_BYTES_MAX = 8 << 20
"""Maximum size of an answer to a SQL statement on a page."""
WALL_SECONDS_MAX = SECONDS_MAX + 10
"""Time without output after which an answer ends although the engine does not stop."""
SQL_COLUMNS_MAX = 2_000


class Answer(NamedTuple):
    """The rows of an answer to a query."""

    rows: list[Row]
    is_cut: bool = False
    """Whether more rows match than the limit."""
    close_keys: Sequence[str] = ()
    """Stored attributes whose keys are similar to those of a filter without a match."""


class SqlAnswer(NamedTuple):
    """The rows of a SQL statement."""

    columns: list[Column]
    rows: list[Row]
    """Values by the names of the columns. Integers have all their digits."""
    is_cut: bool
    seconds: float
    """Time since the request was received, including the wait in the queue."""


class Source(Protocol):
    """Source of spans for a request of a page or a tool."""

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        """Run a query of the table in `receiver/console/queries/questions.py`."""

    async def outline(
        self, trace_id: str, read: Callable[[list[Row]], Result], by: GroupKey | None = None
    ) -> Result | None:
        """Return the result of `read`, called in a thread with the spans of a trace; `None` without spans.

        A row has the columns that determine the position of a span in a waterfall, and its value of `by`.
        """

    async def matching(self, trace_id: str, tree: Filter) -> list[str]:
        """Return the ids of the spans of a trace that match a filter."""

    async def hides_spans(self, trace_id: str) -> bool:
        """Return whether the trace has spans of projects that the caller may not see."""

    async def span(self, trace_id: str, span_id: str) -> Row | None:
        """Return every stored column of a span; `None` if it is not stored."""


class LimitableSource(Source, Protocol):
    """Source whose reads can be limited further."""

    def within(self, projects: Sequence[str]) -> Source:
        """Return a source of the spans of these projects that the caller may see."""


class SourceWithSql(LimitableSource, Protocol):
    """Source of a page, which may also show results of SQL statements."""

    @property
    def allows_sql(self) -> bool:
        """Return whether the receiver answers SQL statements."""

    async def sql(self, asked: SqlQuery) -> SqlAnswer:
        """Answer a SQL statement."""

    def prepare(self, trace_id: str, answer: Callable[[], bytes]) -> None:
        """Compute an answer about a trace in a thread, for the next request that a caller sends for it."""

    async def prepared(self, trace_id: str) -> bytes | None:
        """Return the answer that a page for a caller with the same rights has prepared, once."""

    async def linking(self, trace_id: str, span_id: str) -> Answer:
        """Return the spans of any trace that link to a span."""

    async def sql_columns(self) -> list[Row]:
        """Return table, name and type of each column that a SQL statement may read."""


SourceFor = Callable[[web.Request], Source]
"""Returns the source of spans for a request. Its queries are cancelled if the client disconnects."""


class ApiSource:
    """`Source` with the queues and limits of the API. Every query for a request goes through it."""

    def __init__(self, reader: Reader, request: web.Request, projects: Sequence[str] | None = None) -> None:
        """`projects`: the only projects that it reads; by default the projects of the caller."""
        self.request = request
        self._reader = reader
        self._projects = request[CALLER].projects if projects is None else projects

    @property
    def queues(self) -> Queues:
        """Return the queues that admit queries."""
        return self._reader.queues

    def stream(self, queue: QueryQueue, query: Query) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Run a query for the request, and yield the pieces of its answer: see `Reader.stream`."""
        return self._reader.stream(self.request, queue, query, self._projects)

    @asynccontextmanager
    async def stream_sql(
        self, queue: QueryQueue, digest: str, query: Query
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Run a SQL statement as `stream` does, with a limit of wall-clock time and a line in the log."""
        async with _audited(self.request, digest), self.stream(queue, query) as pieces:
            yield _timely(pieces)

    def within(self, projects: Sequence[str]) -> ApiSource:
        """See `LimitableSource`."""
        visible = [project for project in projects if not self._projects or project in self._projects]
        # An empty list would mean all projects.
        return ApiSource(self._reader, self.request, visible or self._projects)

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        """See `Source`."""
        question = QUESTIONS[name]
        asked = question.parse(query)
        queue = self.queues.short if question.is_short else self.queues.heavy
        return await self._answer(queue, lambda store: question.ask(store, asked, time.time()))

    async def outline(
        self, trace_id: str, read: Callable[[list[Row]], Result], by: GroupKey | None = None
    ) -> Result | None:
        """See `Source`."""
        plain = traces.normalized_trace_id(trace_id)
        slots = self._reader.outlines
        await slots.acquire()
        try:
            _, body = await self._body(self.queues.short, lambda store: traces.outline(store, plain, by))
        except BaseException:
            slots.release()
            raise
        # Takes seconds for the largest traces; other requests continue meanwhile. The slot is occupied until
        # the thread ends, even if the client disconnects.
        reading = asyncio.get_running_loop().run_in_executor(None, _read_rows, body, read)
        reading.add_done_callback(lambda _: slots.release())
        return await asyncio.shield(reading)

    def prepare(self, trace_id: str, answer: Callable[[], bytes]) -> None:
        """See `SourceWithSql`."""
        self._reader.prepared.put(self._prepared_key(trace_id), answer)

    async def prepared(self, trace_id: str) -> bytes | None:
        """See `SourceWithSql`."""
        return await self._reader.prepared.take(self._prepared_key(trace_id))

    def _prepared_key(self, trace_id: str) -> PreparedKey:
        return traces.normalized_trace_id(trace_id), tuple(sorted(self._projects))

    async def matching(self, trace_id: str, tree: Filter) -> list[str]:
        """See `Source`."""
        plain = traces.normalized_trace_id(trace_id)
        answer = await self._answer(self.queues.short, lambda store: traces.matching(store, plain, tree))
        return [row["SpanId"] for row in answer.rows]

    async def linking(self, trace_id: str, span_id: str) -> Answer:
        """See `Source`."""
        plain = traces.normalized_trace_id(trace_id)
        return await self._answer(self.queues.heavy, lambda store: traces.linking(store, plain, span_id))

    async def hides_spans(self, trace_id: str) -> bool:
        """See `Source`."""
        plain, projects = traces.normalized_trace_id(trace_id), self._projects
        if not projects:
            return False
        found = list[bool]()

        def pieces(store: Store) -> Iterator[bytes]:
            found.append(traces.hides_spans(store, plain, projects))
            yield b""

        async with self.stream(self.queues.short, pieces) as answer:
            await anext(answer, b"")
        return found[0]

    async def span(self, trace_id: str, span_id: str) -> Row | None:
        """See `Source`."""
        plain = traces.normalized_trace_id(trace_id)
        answer = await self._answer(self.queues.short, lambda store: traces.span(store, plain, span_id))
        return answer.rows[0] if answer.rows else None

    @property
    def allows_sql(self) -> bool:
        """Return whether the receiver answers SQL statements."""
        return self._reader.allows_sql

    async def sql(self, asked: SqlQuery) -> SqlAnswer:
        """Answer a SQL statement, with the limits and the line in the log that it has over HTTP."""
        columns: list[Column] = []
        asked_lines: list[LimitedLines] = []

        def pieces(store: Store) -> Iterator[bytes]:
            asked_lines.append(sql(store, asked, columns.extend))
            yield from asked_lines[0].pieces()

        began_s, body = time.monotonic(), b""
        async with self.stream_sql(self.queues.sql, asked.digest, pieces) as found:
            async for piece in found:
                body += piece
                if len(body) > SQL_BYTES_MAX:
                    text = f"the answer is larger than {SQL_BYTES_MAX} bytes; expected fewer rows or columns"
                    raise LimitExceeded(text, field="bytes")
        # Not orjson, which reads integers of more than 64 bits as floats, and rejects invalid UTF-8.
        rows = [json.loads(line.decode(errors="replace")) for line in body.splitlines()]
        return SqlAnswer(columns, rows, asked_lines[0].is_cut, time.monotonic() - began_s)

    async def sql_columns(self) -> list[Row]:
        """Return table, name and type of each column that a SQL statement may read."""
        answer = await self._answer(
            self.queues.short, lambda store: LimitedLines(columns_by_table(store), SQL_COLUMNS_MAX)
        )
        return answer.rows

    async def _answer(self, queue: QueryQueue, ask: Callable[[Store], LimitedLines]) -> Answer:
        asked, body = await self._body(queue, ask)
        # Takes seconds for the largest answers; other requests continue meanwhile.
        rows = await asyncio.to_thread(lambda: list(traces.rows_of([body])))
        return Answer(rows, asked.is_cut, asked.close_keys)

    async def _body(
        self, queue: QueryQueue, ask: Callable[[Store], LimitedLines]
    ) -> tuple[LimitedLines, bytes]:
        asked: list[LimitedLines] = []

        def pieces(store: Store) -> Iterator[bytes]:
            asked.append(ask(store))
            yield from asked[0].pieces()

        async with self.stream(queue, pieces) as found:
            body = b"".join([piece async for piece in found])
        return asked[0], body


ApiSourceFor = Callable[[web.Request], ApiSource]


def _read_rows(body: bytes, read: Callable[[list[Row]], Result]) -> Result | None:
    rows = list(traces.rows_of([body]))
    return read(rows) if rows else None


async def _timely(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer. Raises `StoreTrouble` after `WALL_SECONDS_MAX` without a piece.

    A slow client has no effect: the spool holds the pieces that it has not read.
    """
    while (piece := await _next_piece(pieces)) is not None:
        yield piece


async def _next_piece(pieces: AsyncIterator[bytes]) -> bytes | None:
    try:
        async with asyncio.timeout(WALL_SECONDS_MAX):
            return await anext(pieces, None)
    except TimeoutError as error:
        text = f"the statement did not stop within {WALL_SECONDS_MAX} s"
        raise StoreTrouble(text, code=159, name="TIMEOUT_EXCEEDED") from error


@asynccontextmanager
async def _audited(request: web.Request, digest: str) -> AsyncIterator[None]:
    """Log the client, the digest, the duration and the result of a statement, without its text."""
    began_s, failure = time.monotonic(), ""
    try:
        yield
    # Not only `Exception`: the server cancels the handler of a client that disconnects.
    except BaseException as error:
        failure = type(error).__name__
        raise
    finally:
        structlog.get_logger().info(
            "SQL statement ended",
            peer=network_of(request.remote),
            digest=digest,
            seconds=round(time.monotonic() - began_s, 3),
            error=failure,
        )
