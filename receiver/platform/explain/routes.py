"""Routes of explanations.

GET  /api/v1/traces/{id}/explain      the first request, byte for byte, and the cost
POST /api/v1/traces/{id}/explain      send it: a line of JSON for each event of `conversation`
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import hdrs, web

from receiver.console.api.access import CALLER
from receiver.console.api.description.operation import BY_QUERY, TRACE, Operation
from receiver.console.api.lines import StreamedAnswer, end_line
from receiver.console.api.query_queue import CLIENT_CHECK_S
from receiver.console.api.responses import send, whole_json
from receiver.console.api.route import Route
from receiver.console.api.source import LimitableSource
from receiver.console.queries.question import reject_unknown_parameters
from receiver.http.media_types import JSON, JSON_LINES, require_json
from receiver.platform.explain.conversation import Event
from receiver.platform.explain.explainer import Explainer

T = TypeVar("T")
PATH: Final = "/api/v1/traces/{id}/explain"
_ERRORS: Final = (*BY_QUERY, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
_PREVIEW: Final = Operation(
    "previewExplanation",
    "What an explanation of the trace would send to a language model, byte for byte, and its cost.",
    (TRACE,),
    errors=_ERRORS,
)
_EXPLANATION: Final = Operation(
    "explainTrace",
    "Send the trace to the language model of the settings: a line per request, call, sentence and end.",
    (TRACE,),
    (JSON_LINES,),
    _ERRORS,
)
_ANSWER: Final = StreamedAnswer(JSON_LINES, lambda _: iter(()), end_line)


class ExplainRoutes:
    def __init__(self, source_for: Callable[[web.Request], LimitableSource], explainer: Explainer) -> None:
        self._source_for = source_for
        self._explainer = explainer

    def routes(self) -> tuple[Route, ...]:
        # `operator`, because an explanation costs money and sends data to the platform.
        return (
            Route("GET", PATH, self._preview, "operator", within_projects=True, operation=_PREVIEW),
            Route("POST", PATH, self._explain, "operator", within_projects=True, operation=_EXPLANATION),
        )

    async def _preview(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        if request.method == hdrs.METH_HEAD:
            return web.Response(headers={hdrs.CONTENT_TYPE: JSON})
        preview = await self._explainer.preview(self._source_for(request), request.match_info["id"])
        return whole_json(HTTPStatus.OK, preview)

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        require_json(request.content_type)
        reject_unknown_parameters(request.query)
        events = self._explainer.explain(
            self._source_for(request), request.match_info["id"], request[CALLER].name
        )
        async with aclosing(_lines(request, events)) as lines:
            return await send(request, await anext(lines), lines, _ANSWER)


async def _lines(request: web.Request, events: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(events) as open_events:
        while (event := await while_connected(request, _next(open_events))) is not None:
            yield msgspec.json.encode(event) + b"\n"


async def _next(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)


async def while_connected(request: web.Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine. Cancel it and raise `ConnectionResetError` if the client leaves."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=CLIENT_CHECK_S))[0]:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the client closed the connection")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
