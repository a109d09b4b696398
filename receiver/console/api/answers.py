"""Responses with the result of a query: a document, a trace, or lines that are sent while the query runs.

Invariant: HEAD checks the parameters and runs no query.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import hdrs, web

from receiver.console.api.lines import StreamedAnswer
from receiver.console.api.query_queue import QueryQueue
from receiver.console.api.reader import Query
from receiver.console.api.responses import head_of, read_whole, send
from receiver.console.api.source import ApiSource, ApiSourceFor
from receiver.engine.store import Store
from receiver.errors import NoSuchTrace
from receiver.http.media_types import JSON


class SourceRoutes:
    """Base of handlers that read spans."""

    def __init__(self, source_for: ApiSourceFor) -> None:
        self._source_for = source_for


async def send_document(source: ApiSource, queue: QueryQueue, query: Query) -> web.StreamResponse:
    """Send a JSON document."""
    answer = StreamedAnswer(JSON, query)
    if source.request.method == hdrs.METH_HEAD:
        return head_of(answer)
    async with source.stream(queue, query) as pieces:
        body = b"".join([piece async for piece in pieces])
    return web.Response(body=body, headers=head_of(answer).headers)


async def send_built(
    source: ApiSource, queue: QueryQueue, build: Callable[[Store], bytes]
) -> web.StreamResponse:
    """Send a JSON document that a function builds from the results of its statements."""
    return await send_document(source, queue, lambda store: iter((build(store),)))


async def send_lines(source: ApiSource, queue: QueryQueue, answer: StreamedAnswer) -> web.StreamResponse:
    """Send an answer while its query runs."""
    if source.request.method == hdrs.METH_HEAD:
        return head_of(answer)
    async with source.stream(queue, answer.pieces) as pieces:
        return await send(source.request, await anext(pieces, b""), pieces, answer)


async def send_trace(source: ApiSource, answer: StreamedAnswer) -> web.StreamResponse:
    """Send a trace, as a whole if it is small, so that it has an entity tag."""
    if source.request.method == hdrs.METH_HEAD:
        return head_of(answer)
    async with source.stream(source.queues.short, answer.pieces) as pieces:
        first = await anext(pieces, None)
        if first is None:
            raise NoSuchTrace("no span of this trace is stored; it has expired or has not arrived")
        first, whole = await read_whole(first, pieces, answer)
        return whole or await send(source.request, first, pieces, answer)
