"""Source of spans for pages and tools: asks through the queues and limits of the API.

The API cancels the queries of a client that has disconnected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from receiver.api.query_queue import QueryQueue
from receiver.api.routes import Api
from receiver.query.limits import LimitedLines
from receiver.query.questions import QUESTIONS
from receiver.query.traces.traces import normalized_trace_id, outline, rows_of, span

Row = dict[str, Any]


class Answer(NamedTuple):
    """The rows of an answer to a question."""

    rows: list[Row]
    is_cut: bool = False
    """Whether more rows match than the limit."""
    close_keys: Sequence[str] = ()
    """Stored attributes whose keys are similar to those of a filter without a match."""


class Source(Protocol):
    """Source of spans for one request of a page or a tool."""

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        """Ask a question of the table in `receiver/query/questions.py`."""

    async def outline(self, trace_id: str) -> list[Row]:
        """Return the columns of each span of a trace that its place in a waterfall depends on."""

    async def span(self, trace_id: str, span_id: str) -> Row | None:
        """Return every stored column of a span; `None` if it is not stored."""


SourceFor = Callable[[web.Request], Source]
"""Returns the source of spans for a request. Its queries are cancelled if the client disconnects."""


class ApiSource:
    """`Source` with the queues and limits of the API."""

    def __init__(self, api: Api, request: web.Request) -> None:
        self._api = api
        self._request = request

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        """See `Source`."""
        question = QUESTIONS[name]
        asked = question.parse(query)
        queue = self._api.queues.short if question.is_short else self._api.queues.heavy
        return await self._answer(queue, lambda: question.ask(self._api.store, asked, time.time()))

    async def outline(self, trace_id: str) -> list[Row]:
        """See `Source`."""
        plain = normalized_trace_id(trace_id)
        answer = await self._answer(self._api.queues.short, lambda: outline(self._api.store, plain))
        return answer.rows

    async def span(self, trace_id: str, span_id: str) -> Row | None:
        """See `Source`."""
        plain = normalized_trace_id(trace_id)
        answer = await self._answer(self._api.queues.short, lambda: span(self._api.store, plain, span_id))
        return answer.rows[0] if answer.rows else None

    async def _answer(self, queue: QueryQueue, ask: Callable[[], LimitedLines]) -> Answer:
        asked: list[LimitedLines] = []

        def pieces() -> Iterator[bytes]:
            asked.append(ask())
            yield from asked[0].pieces()

        async with self._api.stream(self._request, queue, pieces) as found:
            body = b"".join([piece async for piece in found])
        # Seconds for the largest traces: other requests go on meanwhile.
        rows = await asyncio.to_thread(lambda: list(rows_of([body])))
        return Answer(rows, asked[0].is_cut, asked[0].close_keys)
