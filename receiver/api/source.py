"""Source of spans for pages and tools: asks through the queues and limits of the API.

The API cancels the queries of a client that has disconnected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from receiver.api.access import CALLER
from receiver.api.query_queue import QueryQueue
from receiver.api.routes import Api
from receiver.errors import ReceiverError, StoreTrouble
from receiver.query.limits import LimitedLines, limit_exceeded
from receiver.query.questions import QUESTIONS
from receiver.query.traces.traces import hides_spans, normalized_trace_id, outline, span

Row = dict[str, Any]


class Answer(NamedTuple):
    """The rows of an answer to a question."""

    rows: list[Row]
    is_cut: bool = False
    """Whether more rows match than the limit."""
    close_keys: Sequence[str] = ()
    """Stored attributes whose keys are similar to those of a filter without a match."""


def error_text(error: ReceiverError) -> str:
    """Return the text of an error for a reader, without values of rows."""
    if isinstance(error, StoreTrouble):
        return str(limit_exceeded(error) or f"the store: {error.label}")
    return str(error)


class ApiSource:
    """Source of spans for one request."""

    def __init__(self, api: Api, request: web.Request) -> None:
        self._api = api
        self._request = request

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        """Ask a question of the table in `receiver/query/questions.py`."""
        question = QUESTIONS[name]
        asked = question.parse(query)
        queue = self._api.queues.short if question.is_short else self._api.queues.heavy
        return await self._answer(queue, lambda: question.ask(self._api.store, asked, time.time()))

    async def outline(self, trace_id: str) -> list[Row]:
        """Return the columns of each span of a trace that its place in a waterfall depends on."""
        plain = normalized_trace_id(trace_id)
        answer = await self._answer(self._api.queues.short, lambda: outline(self._api.store, plain))
        return answer.rows

    async def hides_spans(self, trace_id: str) -> bool:
        """Return whether the trace has spans of projects that the caller may not see."""
        plain, projects = normalized_trace_id(trace_id), self._request[CALLER].projects
        if not projects:
            return False
        api, found = self._api, list[bool]()

        def pieces() -> Iterator[bytes]:
            found.append(hides_spans(api.store, plain, projects))
            yield b""

        async with api.stream(self._request, api.queues.short, pieces) as answer:
            await anext(answer, b"")
        return found[0]

    async def span(self, trace_id: str, span_id: str) -> Row | None:
        """Return every stored column of a span; `None` if it is not stored."""
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
        rows = [orjson.loads(line) for line in body.splitlines()]
        return Answer(rows, asked[0].is_cut, asked[0].close_keys)
