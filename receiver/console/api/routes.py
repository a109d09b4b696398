"""Operators' API: queries over HTTP, answered as JSON or as lines of JSON.

    GET /api/v1/traces/{id}?format=lines                      the spans of a trace, or OTLP: see `traces`
    GET /api/v1/traces/{id}/compare/{other}                   differences of two traces
    GET /api/v1/search, spans, services, operations …         see `receiver.console.queries.questions`
    GET /api/v1/deployments/{id}/events                       the question `deployment-events`
    GET /api/v1/export?filter=&since=&until=&format=csv       every span that matches: see `query.export`
    GET /api/v1/sql?query=&limit=&format=, or POST            a SELECT statement: see `sql`
    GET /api/v1/ledger?since=24h&project=&drain=&verify=1     received spans by outcome
    GET /api/v1/counts?trace_id=ab12&digits=16&since=15m      spans by prefix of their trace id
    GET /api/v1/schema                                        state of the tables
    GET /api/v1/health                                        checks of store and writer
    GET /api/v1/openapi.json, /docs                           description of all routes: see `openapi`
    /api/v1/dead                                              dead letters: see `dead_letters`
    /api/v1/rollup                                            rollups: see `rollup`
    /api/v1/platform/projects                                 removed projects: see `platform_projects`
    /api/v1/platform/installations                            installations: see `platform`

Invariant: client input reaches the store as a parameter only; an unknown parameter is rejected. The last line
    of a streamed response holds the number of lines; an incomplete response lacks it and the last chunk.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

import msgspec
from aiohttp import hdrs, web
from multidict import MultiDict

from receiver.console.api.access import ACCESS, CALLER, Access, log_changes, requires
from receiver.console.api.description import openapi
from receiver.console.api.description.page import page
from receiver.console.api.exports import export_answer
from receiver.console.api.lines import ARROW, StreamedAnswer, limited_answer, no_end
from receiver.console.api.problems import map_errors
from receiver.console.api.query_queue import QueryQueue, Queues, default_queues
from receiver.console.api.responses import (
    JSON,
    add_security_headers,
    finish_whole_answers,
    head_of,
    read_whole,
    send,
    whole_json,
)
from receiver.console.api.sessions import new_key
from receiver.console.api.spool import SpoolSpace
from receiver.console.api.sql import audited, next_piece, sql_answer, statement_of, timely
from receiver.console.api.streaming import stream_from_thread
from receiver.console.api.traces import comparison_answer, trace_answer
from receiver.console.queries.aggregates.counts import counts, parse_counts
from receiver.console.queries.projects import table_filters
from receiver.console.queries.question import Asked, Question, reject_unknown_parameters
from receiver.console.queries.questions import QUESTIONS
from receiver.engine.store import Store
from receiver.errors import NoSuchTrace
from receiver.http.origin import OriginCheck
from receiver.http.peer import network_of
from receiver.settings import Access as AccessSettings

REQUESTS_MAX = 4
"""Maximum number of concurrent requests that no queue admits: schema and dead letters."""


class Routes(Protocol):
    """Routes that share the API's listener, token and limits."""

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""


OUTLINES_MAX = 2
"""Maximum number of traces whose spans are in memory at once: up to 300 MB each. Further requests wait."""


@dataclass(frozen=True, slots=True)
class Api:
    """Handlers of the queries, and their dependencies."""

    store: Store
    token: Callable[[], str]
    """Returns the token of the role `admin`; empty if there is none."""
    health: Callable[[], dict[str, str]]
    schema: Callable[[], object]
    ledger: Callable[[Mapping[str, str]], object]
    """Runs a ledger query with these parameters; blocks."""
    pool: ThreadPoolExecutor
    """Threads for short responses."""
    stream_pool: ThreadPoolExecutor
    """Threads for queries, which may take a minute: `QUERIES_MAX`, so that a slot never waits."""
    space: SpoolSpace
    queues: Queues = field(default_factory=default_queues)
    outlines: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OUTLINES_MAX))
    """A place for each trace whose spans are in memory."""
    hosts: Collection[str] = ()
    """DNS names that clients may use."""
    allows_sql: bool = False
    access: Callable[[], AccessSettings] = AccessSettings
    """Returns the users besides the holder of the token."""
    session_key: bytes = field(default_factory=new_key)

    def application(self, *more: Routes) -> web.Application:
        """Return the application with all routes. `more`: routes besides those of the queries."""
        origin = OriginCheck("api", self.hosts)
        access = Access(self.token, self.access, self.session_key)
        application = web.Application(
            middlewares=[origin.middleware, log_changes, map_errors, access.middleware, finish_whole_answers]
        )
        application[ACCESS] = access
        application.router.add_get("/api/v1/traces/{id}", self._trace)
        application.router.add_get("/api/v1/traces/{id}/compare/{other}", self._comparison)
        application.router.add_get("/api/v1/deployments/{id}/events", self._deployment_events)
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
        for routes in more:
            routes.add_to(application.router)
        application.on_response_prepare.append(add_security_headers)
        return application

    @requires("viewer", within_projects=True)
    async def _trace(self, request: web.Request) -> web.StreamResponse:
        projects = request[CALLER].projects
        answer = trace_answer(self.store, request.match_info["id"], request.query, projects)
        return await self.of_trace(request, answer)

    @requires("viewer", within_projects=True)
    async def _comparison(self, request: web.Request) -> web.StreamResponse:
        ids = request.match_info["id"], request.match_info["other"]
        return await self.of_trace(request, comparison_answer(self.store, *ids, request.query))

    async def of_trace(self, request: web.Request, answer: StreamedAnswer) -> web.StreamResponse:
        """Answer with a trace, as a whole if it is small, so that it has an entity tag."""
        if request.method == hdrs.METH_HEAD:
            return head_of(answer)
        async with self.stream(request, self.queues.short, answer.pieces) as pieces:
            first = await anext(pieces, None)
            if first is None:
                raise NoSuchTrace("no span of this trace is stored; it has expired or has not arrived")
            first, whole = await read_whole(first, pieces, answer)
            return whole or await send(request, first, pieces, answer)

    @requires("viewer", within_projects=True)
    async def _counts(self, request: web.Request) -> web.StreamResponse:
        counted = parse_counts(request.query)
        answer = limited_answer(lambda: counts(self.store, counted, now_s=time.time()))
        return await self._streamed(request, self.queues.heavy, answer)

    @requires("viewer", within_projects=True)
    async def _export(self, request: web.Request) -> web.StreamResponse:
        return await self._streamed(request, self.queues.heavy, export_answer(self.store, request.query))

    @requires("operator")
    async def _sql(self, request: web.Request) -> web.StreamResponse:
        asked = await statement_of(request, is_allowed=self.allows_sql)
        answer = sql_answer(self.store, asked)
        if request.method == hdrs.METH_HEAD:
            return head_of(answer)
        async with (
            audited(request, asked.digest),
            self.stream(request, self.queues.sql, answer.pieces) as pieces,
        ):
            return await send(request, await next_piece(pieces) or b"", timely(pieces), answer)

    @requires("viewer", within_projects=True)
    async def _question(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, QUESTIONS[request.path.rpartition("/")[2]], request.query)

    @requires("viewer", within_projects=True)
    async def _deployment_events(self, request: web.Request) -> web.StreamResponse:
        query = MultiDict([*request.query.items(), ("deployment", request.match_info["id"])])
        return await self._answer(request, QUESTIONS["deployment-events"], query)

    async def _answer(
        self, request: web.Request, question: Question[Any], query: Mapping[str, str]
    ) -> web.StreamResponse:
        """Answer a question with these parameters."""
        asked = question.parse(query)
        if ARROW in request.headers.get("Accept", ""):
            return await self._streamed(request, self.queues.heavy, self._arrow(question, asked))
        answer = limited_answer(lambda: question.ask(self.store, asked, time.time()))
        queue = self.queues.short if question.is_short else self.queues.heavy
        if question.is_single:
            return await self.document(request, queue, answer.pieces)
        return await self._streamed(request, queue, answer)

    def _arrow(self, question: Question[Any], asked: Asked[Any]) -> StreamedAnswer:
        """Return an Arrow stream, which ends with its own mark."""
        ask_arrow = question.ask_arrow
        if ask_arrow is None:
            raise web.HTTPNotAcceptable
        return StreamedAnswer(ARROW, partial(ask_arrow, self.store, asked, time.time()), no_end)

    async def document(
        self, request: web.Request, queue: QueryQueue, query: Callable[[], Iterator[bytes]]
    ) -> web.StreamResponse:
        """Answer with one JSON document."""
        answer = StreamedAnswer(JSON, query, no_end)
        if request.method == hdrs.METH_HEAD:
            return head_of(answer)
        async with self.stream(request, queue, query) as pieces:
            body = b"".join([piece async for piece in pieces])
        return web.Response(body=body, headers=head_of(answer).headers)

    async def _streamed(
        self, request: web.Request, queue: QueryQueue, answer: StreamedAnswer
    ) -> web.StreamResponse:
        """Answer while the query runs."""
        if request.method == hdrs.METH_HEAD:
            return head_of(answer)
        async with self.stream(request, queue, answer.pieces) as pieces:
            return await send(request, await anext(pieces, b""), pieces, answer)

    @asynccontextmanager
    async def stream(
        self,
        request: web.Request,
        queue: QueryQueue,
        query: Callable[[], Iterator[bytes]],
        projects: Sequence[str] | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Run a query in a thread, once the queue admits it. A client that leaves cancels its statements.

        The query reads only spans of the caller's projects, whatever its statements are. `projects`: some of
        them; the query then reads only these.
        """
        limit = request[CALLER].projects if projects is None else projects
        caller, filters = network_of(request.remote), table_filters(limit)

        def is_abandoned() -> bool:
            return request.transport is None or request.transport.is_closing()

        await queue.enter(caller, is_abandoned)
        is_lost = False
        mark = f"trace-drain-api-{secrets.token_hex(8)}"

        def marked_query() -> Iterator[bytes]:
            with self.store.marked(mark, filters):
                yield from query()

        def lose() -> None:
            nonlocal is_lost
            is_lost = queue.lose(caller)

        async with stream_from_thread(
            self.stream_pool,
            self.space,
            marked_query,
            cancel=lambda: self.store.cancel(mark),
            is_abandoned=is_abandoned,
            on_end=lambda: queue.leave(caller, is_lost=is_lost),
            on_lost=lose,
        ) as pieces:
            yield pieces

    @requires("viewer")
    async def _ledger(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query, ("since", "project", "drain", "verify"))
        query = dict(request.query)
        queue = self.queues.heavy if "verify" in query else self.queues.short
        return await self.document(
            request, queue, lambda: iter((msgspec.json.encode(self.ledger(query)) + b"\n",))
        )

    @requires("viewer")
    async def _schema(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query)
        answer = await asyncio.get_running_loop().run_in_executor(self.pool, self.schema)
        return whole_json(HTTPStatus.OK, answer)

    @requires("viewer", within_projects=True)
    async def _health(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query)
        checks = self.health()
        return whole_json(HTTPStatus.OK, {"ok": not any(checks.values()), "checks": checks})


@requires("viewer", within_projects=True)
async def _describe(request: web.Request) -> web.Response:
    """Answer with the description of the API, for a program or for a reader."""
    reject_unknown_parameters(request.query)
    # The description has no data of customers, so clients may store it; they ask whether it has changed.
    headers = {"Cache-Control": "no-cache"}
    if request.path == "/docs":
        return web.Response(
            body=page(openapi.document()).encode(),
            headers={**headers, "Content-Type": "text/html; charset=utf-8"},
        )
    return whole_json(HTTPStatus.OK, openapi.document(), headers)
