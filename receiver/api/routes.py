"""Operators' API: queries over HTTP, answered as JSON or as lines of JSON.

    GET /api/v1/traces/{id}?format=lines                      the spans of a trace, or OTLP: see `traces`
    GET /api/v1/traces/{id}/compare/{other}                   differences of two traces
    GET /api/v1/search, spans, services, operations …         the questions of `receiver.query.questions`
    GET /api/v1/export?filter=&since=&until=&format=csv       every span that matches: see `query.export`
    GET /api/v1/sql?query=&limit=, or POST                    a SELECT statement: see `sql`
    GET /api/v1/ledger?since=24h&project=&drain=&verify=1     received spans by outcome
    GET /api/v1/counts?trace_id=ab12&digits=16&since=15m      spans by prefix of their trace id
    GET /api/v1/schema                                        state of the tables
    GET /api/v1/health                                        checks of store and writer
    GET /api/v1/openapi.json, /docs                           description of all routes: see `openapi`
    /api/v1/dead                                              dead letters: see `dead_letters`
    /api/v1/rollup                                            rollups: see `rollup`

Invariant: client input reaches the store as a parameter only; an unknown parameter is rejected. The last line
    of a streamed response holds the number of lines; an incomplete response lacks it and the last chunk.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from receiver.api import openapi
from receiver.api.dead_letters import DeadLetterRoutes
from receiver.api.exports import export_answer
from receiver.api.lines import ARROW, JSON_LINES, LinesAnswer, StreamedAnswer
from receiver.api.query_queue import CallerBusy, QueryQueue, QueueFull, Queues, caller_of, default_queues
from receiver.api.rollup import RollupRoutes
from receiver.api.spool import ClientTooSlow, SpoolSpace
from receiver.api.sql import audited, first_piece, statement_of
from receiver.api.streaming import stream_from_thread
from receiver.api.traces import comparison_answer, trace_answer
from receiver.engine.error_codes import NO_TABLE_CODES
from receiver.engine.store import Store
from receiver.errors import (
    ANSWER_OF,
    RETRY_AFTER_S,
    DeadLetterConflict,
    InvalidFilter,
    InvalidStatement,
    LimitExceeded,
    MalformedBody,
    NoSuchDeadLetter,
    ReceiverError,
    StoreTrouble,
)
from receiver.http.origin import OriginCheck
from receiver.http.protocol import PROBLEM, problem_body
from receiver.logs import limited
from receiver.query.counts import counts, parse_counts
from receiver.query.limits import limit_exceeded
from receiver.query.question import Asked, Question, reject_unknown_parameters
from receiver.query.questions import QUESTIONS
from receiver.query.raw_sql.statement import sql

NO_TABLES = "the store has no tables; the receiver creates them when it starts, so retry in a few seconds"
REQUESTS_MAX = 4
"""Maximum number of concurrent requests that no queue admits: schema and dead letters."""
HEADERS = {
    "Cache-Control": "no-store",  # answers contain data of customers
    "Content-Security-Policy": "default-src 'none'",  # /docs has no scripts and no styles
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Unauthorized(ReceiverError):  # noqa: N818 - a verdict
    """The request has no token or a wrong token."""


class NoSuchTrace(ReceiverError):  # noqa: N818 - a verdict
    """No span of the trace is stored."""


STATUS_OF: Mapping[type[ReceiverError], int] = {
    **{kind: answer.status for kind, answer in ANSWER_OF.items()},
    InvalidFilter: HTTPStatus.BAD_REQUEST,
    InvalidStatement: HTTPStatus.BAD_REQUEST,
    LimitExceeded: HTTPStatus.UNPROCESSABLE_ENTITY,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    NoSuchTrace: HTTPStatus.NOT_FOUND,
    NoSuchDeadLetter: HTTPStatus.NOT_FOUND,
    DeadLetterConflict: HTTPStatus.CONFLICT,
    CallerBusy: HTTPStatus.TOO_MANY_REQUESTS,
    QueueFull: HTTPStatus.SERVICE_UNAVAILABLE,
    ClientTooSlow: HTTPStatus.SERVICE_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Api:
    """Handlers of the queries, and their dependencies."""

    store: Store
    token: Callable[[], str]
    """Returns the token that clients must send; empty if no token is required."""
    health: Callable[[], dict[str, str]]
    schema: Callable[[], object]
    ledger: Callable[[Mapping[str, str]], object]
    """Runs a ledger query with these parameters; blocks."""
    pool: ThreadPoolExecutor
    """Threads for short responses."""
    stream_pool: ThreadPoolExecutor
    """Threads for queries, which may take a minute: one for each place in the queues."""
    space: SpoolSpace
    queues: Queues = field(default_factory=default_queues)
    hosts: Collection[str] = ()
    """DNS names that clients may use."""
    allows_sql: bool = False

    def application(
        self,
        dead_letter_routes: DeadLetterRoutes | None = None,
        rollup_routes: RollupRoutes | None = None,
    ) -> web.Application:
        """Return the application with all routes."""
        origin = OriginCheck("api", self.hosts)
        application = web.Application(middlewares=[origin.middleware, _map_errors, self._require_token])
        application.router.add_get("/api/v1/traces/{id}", self._trace)
        application.router.add_get("/api/v1/traces/{id}/compare/{other}", self._comparison)
        for name in QUESTIONS:
            application.router.add_get(f"/api/v1/{name}", self._question)
        application.router.add_get("/api/v1/export", self._export)
        application.router.add_get("/api/v1/sql", self._sql)
        application.router.add_post("/api/v1/sql", self._sql)
        application.router.add_get("/api/v1/ledger", self._ledger)
        application.router.add_get("/api/v1/counts", self._counts)
        application.router.add_get("/api/v1/schema", self._schema)
        application.router.add_get("/api/v1/health", self._health)
        application.router.add_get("/api/v1/openapi.json", _describe)
        application.router.add_get("/docs", _describe)
        if dead_letter_routes is not None:
            dead_letter_routes.add_to(application.router)
        if rollup_routes is not None:
            rollup_routes.add_to(application.router)
        application.on_response_prepare.append(_add_security_headers)
        return application

    @web.middleware
    async def _require_token(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject a request without the configured token."""
        # As bytes: `compare_digest` refuses a text that is not ASCII. aiohttp decodes with surrogates.
        authorization = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        token = self.token()  # for each request: a reload may change it
        if token and not hmac.compare_digest(authorization, f"Bearer {token}".encode()):
            raise Unauthorized(
                "token is missing or wrong; expected 'Authorization: Bearer TOKEN' (api_token)"
            )
        return await handler(request)

    async def _trace(self, request: web.Request) -> web.StreamResponse:
        answer = trace_answer(self.store, request.match_info["id"], request.query)
        return await self._pieces_of_trace(request, answer)

    async def _comparison(self, request: web.Request) -> web.StreamResponse:
        ids = request.match_info["id"], request.match_info["other"]
        return await self._pieces_of_trace(request, comparison_answer(self.store, *ids, request.query))

    async def _pieces_of_trace(self, request: web.Request, answer: StreamedAnswer) -> web.StreamResponse:
        async with self._stream(request, self.queues.short, answer.pieces) as pieces:
            first = await anext(pieces, None)
            if first is None:
                raise NoSuchTrace("no span of this trace is stored; it has expired or has not arrived")
            return await _send(request, first, pieces, answer.content_type, answer.end)

    async def _counts(self, request: web.Request) -> web.StreamResponse:
        counted = parse_counts(request.query)
        answer = LinesAnswer(lambda: counts(self.store, counted, now_s=time.time()))
        return await self._lines(request, self.queues.heavy, answer)

    async def _export(self, request: web.Request) -> web.StreamResponse:
        answer = export_answer(self.store, request.query)
        async with self._stream(request, self.queues.heavy, answer.pieces) as pieces:
            first = await anext(pieces, b"")
            return await _send(request, first, pieces, answer.content_type, answer.end)

    async def _sql(self, request: web.Request) -> web.StreamResponse:
        asked = await statement_of(request, is_allowed=self.allows_sql)
        answer = LinesAnswer(lambda: sql(self.store, asked))
        async with audited(request, asked), self._stream(request, self.queues.sql, answer.pieces) as pieces:
            return await _send(request, await first_piece(pieces), pieces, JSON_LINES, answer.end)

    async def _question(self, request: web.Request) -> web.StreamResponse:
        question = QUESTIONS[request.path.rpartition("/")[2]]
        asked = question.parse(request.query)
        if ARROW in request.headers.get("Accept", ""):
            return await self._arrow(request, question, asked)
        answer = LinesAnswer(lambda: question.ask(self.store, asked, time.time()))
        queue = self.queues.short if question.is_short else self.queues.heavy
        if question.is_single:
            return await self._document(request, queue, answer.pieces)
        return await self._lines(request, queue, answer)

    async def _arrow(self, request: web.Request, question: Question, asked: Asked) -> web.StreamResponse:
        """Answer with an Arrow stream, which ends with its own mark."""
        ask_arrow = question.ask_arrow
        if ask_arrow is None:
            raise web.HTTPNotAcceptable
        rows = partial(ask_arrow, self.store, asked, time.time())
        async with self._stream(request, self.queues.heavy, rows) as pieces:
            return await _send(request, await anext(pieces, b""), pieces, ARROW, lambda _count: b"")

    async def _document(
        self, request: web.Request, queue: QueryQueue, query: Callable[[], Iterator[bytes]]
    ) -> web.StreamResponse:
        """Answer with one JSON document."""
        async with self._stream(request, queue, query) as pieces:
            body = b"".join([piece async for piece in pieces])
        return web.Response(body=body, headers={"Content-Type": "application/json"})

    async def _lines(
        self, request: web.Request, queue: QueryQueue, answer: LinesAnswer
    ) -> web.StreamResponse:
        async with self._stream(request, queue, answer.pieces) as pieces:
            first = await anext(pieces, b"")
            return await _send(request, first, pieces, JSON_LINES, answer.end)

    @asynccontextmanager
    async def _stream(
        self, request: web.Request, queue: QueryQueue, query: Callable[[], Iterator[bytes]]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Run a query in a thread, once the queue admits it. A client that leaves cancels its statements."""
        caller = caller_of(request.remote)

        def is_abandoned() -> bool:
            return request.transport is None or request.transport.is_closing()

        await queue.enter(caller, is_abandoned)
        mark = f"trace-drain-api-{secrets.token_hex(8)}"

        def marked_query() -> Iterator[bytes]:
            with self.store.marked(mark):
                yield from query()

        async with stream_from_thread(
            self.stream_pool,
            self.space,
            marked_query,
            cancel=lambda: self.store.cancel(mark),
            is_abandoned=is_abandoned,
            on_end=lambda: queue.leave(caller),
        ) as pieces:
            yield pieces

    async def _ledger(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query, ("since", "project", "drain", "verify"))
        query = dict(request.query)
        queue = self.queues.heavy if "verify" in query else self.queues.short
        return await self._document(
            request, queue, lambda: iter((msgspec.json.encode(self.ledger(query)) + b"\n",))
        )

    async def _schema(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query)
        answer = await asyncio.get_running_loop().run_in_executor(self.pool, self.schema)
        return _json(HTTPStatus.OK, answer)

    async def _health(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query)
        checks = self.health()
        return _json(HTTPStatus.OK, {"ok": not any(checks.values()), "checks": checks})


async def _describe(request: web.Request) -> web.Response:
    """Answer with the description of the API, for a program or for a reader."""
    reject_unknown_parameters(request.query)
    if request.path == "/docs":
        return web.Response(text=openapi.page(), content_type="text/html")
    return _json(HTTPStatus.OK, openapi.document())


async def _add_security_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to every response."""
    response.headers.update(HEADERS)


@web.middleware
async def _map_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Map every exception to a status. Bodies are JSON and never contain input."""
    try:
        response = await handler(request)
    except web.HTTPException as refusal:
        return _error(refusal.status, refusal.reason, refusal.headers)
    except StoreTrouble as trouble:
        limited.warning(f"api: {trouble.label}", "query failed", error=trouble.label)
        if exceeded := limit_exceeded(trouble):
            return _error(STATUS_OF[LimitExceeded], str(exceeded), None, **_place_of(exceeded))
        status = STATUS_OF[StoreTrouble]
        if trouble.code in NO_TABLE_CODES:
            return _error(status, NO_TABLES, _headers_of(status))
        return _error(status, f"the store: {trouble.label}", _headers_of(status))
    except ReceiverError as error:
        status = STATUS_OF.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
        return _error(status, str(error), _headers_of(status), **_place_of(error))
    return response


async def _send(
    request: web.Request,
    first: bytes,
    pieces: AsyncIterator[bytes],
    content_type: str,
    end: Callable[[int], bytes],
) -> web.StreamResponse:
    """Send pieces as they arrive, then the result of `end`, called with the number of lines.

    A failure after the first byte aborts the response.
    """
    response = web.StreamResponse(headers={"Content-Type": content_type})
    response.enable_compression()  # as the client accepts it
    await response.prepare(request)
    count = first.count(b"\n")
    try:
        await response.write(first)
        async for piece in pieces:
            await response.write(piece)
            count += piece.count(b"\n")
    except ConnectionError:
        raise  # the client has disconnected, or we closed the connection and counted that
    except Exception as error:  # noqa: BLE001 - after any failure the answer is incomplete
        text = error.label if isinstance(error, StoreTrouble) else _safe_text(error)
        limited.warning(f"api: {text}", "response aborted", error=text, lines=count)
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof(end(count))
    return response


def _safe_text(reason: Exception) -> str:
    """Return the text of our own errors. The text of other exceptions may contain values of rows."""
    return str(reason) if isinstance(reason, ReceiverError) else type(reason).__name__


def _json(status: int, body: Any, more: Mapping[str, str] | None = None) -> web.Response:  # noqa: ANN401 - any JSON
    return web.Response(
        status=status,
        body=msgspec.json.encode(body) + b"\n",
        headers={**(more or {}), "Content-Type": "application/json"},
    )


def _error(
    status: int, message: str, headers: Mapping[str, str] | None = None, **more: str | int
) -> web.Response:
    response = web.Response(
        status=status, body=problem_body(status, message, **more), headers={"Content-Type": PROBLEM}
    )
    for name in ("Allow", "Retry-After", "WWW-Authenticate"):
        if headers and name in headers:
            response.headers[name] = headers[name]
    return response


def _headers_of(status: int) -> dict[str, str]:
    """Return the headers that an error of this status has besides its content type."""
    if status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return {"Retry-After": str(RETRY_AFTER_S)}
    return {}


def _place_of(error: ReceiverError) -> dict[str, str | int]:
    """Return which part of the request an error is about, as members of the problem details."""
    if isinstance(error, InvalidFilter):
        return {"parameter": "filter", "column": error.column}
    if isinstance(error, LimitExceeded):
        return {"limit": error.field}
    if isinstance(error, InvalidStatement):
        return {"parameter": "query"}
    return {"parameter": error.field} if isinstance(error, MalformedBody) and error.field else {}
