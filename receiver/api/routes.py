"""Operators' API: queries over HTTP, answered as JSON or as lines of JSON.

    GET /api/v1/traces/{id}                                   the spans of a trace
    GET /api/v1/spans?since=15m&project=&service=&limit=100   the newest spans that match
    GET /api/v1/ledger?since=24h&project=&drain=&verify=1     received spans by outcome
    GET /api/v1/counts?trace_id=ab12&digits=16&since=15m      spans by prefix of their trace id
    GET /api/v1/schema                                        state of the tables
    GET /api/v1/health                                        checks of store and writer
    /api/v1/dead                                              dead letters: see `dead_letters`

Invariant: client input reaches the store as a parameter only; an unknown parameter is rejected. The last line
    of a streamed response holds the number of lines; an incomplete response lacks it and the last chunk.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from receiver.api.dead_letters import DeadLetterRoutes
from receiver.api.lines import JSON_LINES, end_line
from receiver.api.parameters import reject_unknown_parameters
from receiver.api.spool import ClientTooSlow, SpoolSpace
from receiver.api.streaming import stream_from_thread
from receiver.dead_letters.letter_files import NoSuchDeadLetter
from receiver.dead_letters.listing import DeadLetterConflict
from receiver.engine.store import Store
from receiver.errors import ANSWER_OF, ReceiverError, StoreTrouble
from receiver.http.origin import OriginCheck
from receiver.logs import limited
from receiver.query.counts import CountQuery, counts, parse_digits, parse_prefix
from receiver.query.spans import SpanFilter, parse_limit, parse_since, spans
from receiver.query.traces import trace

REQUESTS_MAX = 4
"""Concurrent requests of each kind, short and streamed. Each needs a thread and memory."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Unauthorized(ReceiverError):  # noqa: N818 - a verdict
    """The request has no token or a wrong one."""


class NoSuchTrace(ReceiverError):  # noqa: N818 - a verdict
    """The store has no span of it."""


STATUS_OF: Mapping[type[ReceiverError], int] = {
    **{kind: answer.status for kind, answer in ANSWER_OF.items()},
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    NoSuchTrace: HTTPStatus.NOT_FOUND,
    NoSuchDeadLetter: HTTPStatus.NOT_FOUND,
    DeadLetterConflict: HTTPStatus.CONFLICT,
    ClientTooSlow: HTTPStatus.SERVICE_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Api:
    """What the handlers need."""

    store: Store
    token: Callable[[], str]
    """Empty: no token is required."""
    health: Callable[[], dict[str, str]]
    schema: Callable[[], object]
    ledger: Callable[[Mapping[str, str]], object]
    """Runs a ledger query with these parameters; blocks."""
    pool: ThreadPoolExecutor
    """Threads for short responses."""
    stream_pool: ThreadPoolExecutor
    """Threads for streamed responses, which may take a minute."""
    space: SpoolSpace
    hosts: Collection[str] = ()
    """DNS names that clients may use."""

    def application(self, letters: DeadLetterRoutes | None = None) -> web.Application:
        """Return the application with all routes."""
        origin = OriginCheck("api", self.hosts)
        application = web.Application(middlewares=[origin.middleware, _map_errors, self._require_token])
        application.router.add_get("/api/v1/traces/{id}", self._trace)
        application.router.add_get("/api/v1/spans", self._spans)
        application.router.add_get("/api/v1/ledger", self._ledger)
        application.router.add_get("/api/v1/counts", self._counts)
        application.router.add_get("/api/v1/schema", self._schema)
        application.router.add_get("/api/v1/health", self._health)
        if letters is not None:
            letters.add_to(application.router)
        application.on_response_prepare.append(_add_security_headers)
        return application

    @web.middleware
    async def _require_token(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject a request without the configured token."""
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        token = self.token()
        if token and not hmac.compare_digest(given, f"Bearer {token}".encode()):
            raise Unauthorized("no or another token; expected 'Authorization: Bearer TOKEN' (api_token)")
        return await handler(request)

    async def _trace(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query)
        trace_id = request.match_info["id"]
        async with stream_from_thread(
            self.stream_pool, self.space, lambda: trace(self.store, trace_id)
        ) as pieces:
            first = await anext(pieces, None)
            if first is None:
                raise NoSuchTrace("no span of this trace is stored; it may have expired, or not have arrived")
            return await _send_lines(request, first, pieces)

    async def _spans(self, request: web.Request) -> web.StreamResponse:
        wanted = parse_span_filter(request.query)
        return await self._lines(request, lambda: spans(self.store, wanted, now_s=time.time()))

    async def _counts(self, request: web.Request) -> web.StreamResponse:
        counted = parse_count_query(request.query)
        return await self._lines(request, lambda: counts(self.store, counted, now_s=time.time()))

    async def _lines(self, request: web.Request, ask: Callable[[], Iterator[bytes]]) -> web.StreamResponse:
        async with stream_from_thread(self.stream_pool, self.space, ask) as pieces:
            first = await anext(pieces, b"")
            return await _send_lines(request, first, pieces)

    async def _ledger(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query, {"since", "project", "drain", "verify"})
        query = dict(request.query)
        answer = await asyncio.get_running_loop().run_in_executor(self.pool, self.ledger, query)
        return _json(HTTPStatus.OK, answer)

    async def _schema(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query)
        answer = await asyncio.get_running_loop().run_in_executor(self.pool, self.schema)
        return _json(HTTPStatus.OK, answer)

    async def _health(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query)
        checks = self.health()
        return _json(HTTPStatus.OK, {"ok": not any(checks.values()), "checks": checks})


async def _add_security_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to every response."""
    response.headers.update(HEADERS)


def parse_span_filter(query: Mapping[str, str]) -> SpanFilter:
    """Parse the parameters of a span query."""
    reject_unknown_parameters(query, {"since", "project", "service", "limit"})
    default = SpanFilter()
    return SpanFilter(
        since_s=parse_since(query["since"]) if query.get("since") else default.since_s,
        project=query.get("project"),
        service=query.get("service"),
        limit=parse_limit(query["limit"]) if query.get("limit") else default.limit,
    )


def parse_count_query(query: Mapping[str, str]) -> CountQuery:
    """Parse the parameters of a count query."""
    reject_unknown_parameters(query, {"trace_id", "digits", "since"})
    return CountQuery(
        trace_id=parse_prefix(query.get("trace_id", "")),
        digits=parse_digits(query.get("digits", "32")),
        since_s=parse_since(query.get("since", "1h")),
    )


@web.middleware
async def _map_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Map every exception to a status. Bodies are JSON and never contain input."""
    try:
        response = await handler(request)
    except web.HTTPException as refusal:
        return _error(refusal.status, refusal.reason, refusal.headers)
    except StoreTrouble as trouble:
        limited.warning(f"api: {trouble.label}", "query failed", error=trouble.label)
        return _error(STATUS_OF[StoreTrouble], f"the store: {trouble.label}", {"Retry-After": "2"})
    except ReceiverError as reason:
        status = STATUS_OF.get(type(reason), HTTPStatus.INTERNAL_SERVER_ERROR)
        more = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {}
        return _error(status, str(reason), more)
    return response


async def _send_lines(request: web.Request, first: bytes, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    """Send lines as they arrive, then their count. A failure after the first byte aborts the response."""
    response = web.StreamResponse(headers={"Content-Type": JSON_LINES})
    await response.prepare(request)
    count = first.count(b"\n")
    try:
        await response.write(first)
        async for piece in pieces:
            await response.write(piece)
            count += piece.count(b"\n")
    except ConnectionError:
        raise  # the client is gone, or was disconnected and counted
    except Exception as reason:  # noqa: BLE001 - whatever it is, the answer is not whole
        error = reason.label if isinstance(reason, StoreTrouble) else _safe_text(reason)
        limited.warning(f"api: {error}", "response aborted", error=error, lines=count)
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof(end_line(count))
    return response


def _safe_text(reason: Exception) -> str:
    """Return our own message; that of another exception may contain values of rows."""
    return str(reason) if isinstance(reason, ReceiverError) else type(reason).__name__


def _json(status: int, body: Any, more: Mapping[str, str] | None = None) -> web.Response:  # noqa: ANN401 - any JSON
    return web.Response(
        status=status,
        body=msgspec.json.encode(body) + b"\n",
        headers={**(more or {}), "Content-Type": "application/json"},
    )


def _error(status: int, message: str, more: Mapping[str, str] | None = None) -> web.Response:
    kept = {
        name: value
        for name, value in (more or {}).items()
        if name in {"Allow", "Retry-After", "WWW-Authenticate"}
    }
    return _json(status, {"error": message, "status": status}, kept)
