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
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Protocol

import msgspec
from aiohttp import hdrs, web
from multidict import MultiDict

from receiver.console.api.access import ACCESS, CALLER, Access, log_changes, requires
from receiver.console.api.answers import send_document, send_lines, send_trace
from receiver.console.api.description import openapi
from receiver.console.api.description.page import page
from receiver.console.api.exports import export_answer
from receiver.console.api.lines import ARROW, StreamedAnswer, limited_answer, no_end
from receiver.console.api.problems import map_errors
from receiver.console.api.query_queue import Queues, default_queues
from receiver.console.api.reader import Reader
from receiver.console.api.responses import (
    add_security_headers,
    finish_whole_answers,
    head_of,
    send,
    whole_json,
)
from receiver.console.api.sessions import new_key
from receiver.console.api.source import ApiSource
from receiver.console.api.spool import SpoolSpace
from receiver.console.api.sql import sql_answer, statement_of
from receiver.console.api.traces import comparison_answer, trace_answer
from receiver.console.queries.aggregates.counts import counts, parse_counts
from receiver.console.queries.question import Asked, Question, reject_unknown_parameters
from receiver.console.queries.questions import QUESTIONS
from receiver.engine.store import Store
from receiver.http.origin import OriginCheck
from receiver.settings import Access as AccessSettings

REQUESTS_MAX = 4
"""Maximum number of concurrent requests that no queue admits: schema and dead letters."""


class Routes(Protocol):
    """Routes that share the API's listener, token and limits."""

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""


@dataclass(frozen=True)
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
    hosts: Collection[str] = ()
    """DNS names that clients may use."""
    allows_sql: bool = False
    access: Callable[[], AccessSettings] = AccessSettings
    """Returns the users besides the holder of the token."""
    session_key: bytes = field(default_factory=new_key)

    @cached_property
    def reader(self) -> Reader:
        """Return the reader of the store."""
        return Reader(self.store, self.stream_pool, self.space, self.queues, self.allows_sql)

    def source(self, request: web.Request) -> ApiSource:
        """Return the source of spans for a request."""
        return ApiSource(self.reader, request)

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
        answer = trace_answer(request.match_info["id"], request.query, request[CALLER].projects)
        return await send_trace(self.source(request), answer)

    @requires("viewer", within_projects=True)
    async def _comparison(self, request: web.Request) -> web.StreamResponse:
        ids = request.match_info["id"], request.match_info["other"]
        return await send_trace(self.source(request), comparison_answer(*ids, request.query))

    @requires("viewer", within_projects=True)
    async def _counts(self, request: web.Request) -> web.StreamResponse:
        counted = parse_counts(request.query)
        answer = limited_answer(lambda store: counts(store, counted, now_s=time.time()))
        return await send_lines(self.source(request), self.queues.heavy, answer)

    @requires("viewer", within_projects=True)
    async def _export(self, request: web.Request) -> web.StreamResponse:
        return await send_lines(self.source(request), self.queues.heavy, export_answer(request.query))

    @requires("operator")
    async def _sql(self, request: web.Request) -> web.StreamResponse:
        asked = await statement_of(request, is_allowed=self.allows_sql)
        answer = sql_answer(asked)
        if request.method == hdrs.METH_HEAD:
            return head_of(answer)
        source = self.source(request)
        async with source.stream_sql(self.queues.sql, asked.digest, answer.pieces) as pieces:
            return await send(request, await anext(pieces, b""), pieces, answer)

    @requires("viewer", within_projects=True)
    async def _question(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, QUESTIONS[request.path.rpartition("/")[2]], request.query)

    @requires("viewer", within_projects=True)
    async def _deployment_events(self, request: web.Request) -> web.StreamResponse:
        query = MultiDict([*request.query.items(), ("deployment", request.match_info["id"])])
        return await self._answer(request, QUESTIONS["deployment-events"], query)

    async def _answer(
        self, request: web.Request, question: Question, query: Mapping[str, str]
    ) -> web.StreamResponse:
        """Answer a question with these parameters."""
        asked, source = question.parse(query), self.source(request)
        if ARROW in request.headers.get("Accept", ""):
            return await send_lines(source, self.queues.heavy, _arrow(question, asked))
        answer = limited_answer(lambda store: question.ask(store, asked, time.time()))
        queue = self.queues.short if question.is_short else self.queues.heavy
        if question.is_single:
            return await send_document(source, queue, answer.pieces)
        return await send_lines(source, queue, answer)

    @requires("viewer")
    async def _ledger(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query, ("since", "project", "drain", "verify"))
        query = dict(request.query)
        queue = self.queues.heavy if "verify" in query else self.queues.short
        return await send_document(
            self.source(request), queue, lambda _: iter((msgspec.json.encode(self.ledger(query)) + b"\n",))
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


def _arrow(question: Question, asked: Asked) -> StreamedAnswer:
    """Return an Arrow stream, which ends with its own mark."""
    ask_arrow = question.ask_arrow
    if ask_arrow is None:
        raise web.HTTPNotAcceptable
    return StreamedAnswer(ARROW, lambda store: ask_arrow(store, asked, time.time()), no_end)


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
