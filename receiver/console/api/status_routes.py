"""Routes about the receiver itself and its embedded store, and the description of the API.

GET /api/v1/ledger?since=24h&project=&drain=&verify=1     received spans by outcome
GET /api/v1/schema                                        state of the tables
GET /api/v1/refusals                                      newest refusals, and their number by hour
GET /api/v1/health                                        checks of store and writer
POST /api/v1/store/snapshot                               link the files for `trace-drain store backup`
GET /api/v1/store/deletion?project=ID                     spans by day, and the deletion that runs
POST /api/v1/store/deletion?project=ID&day=20260131       begin to delete the spans of a day
GET /api/v1/openapi.json, /docs                           description of all routes: see `openapi`
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from receiver.console.api.answers import send_document
from receiver.console.api.description import openapi
from receiver.console.api.description.operation import BY_QUERY, BY_STORE, Operation, since
from receiver.console.api.description.page import page
from receiver.console.api.responses import whole_json
from receiver.console.api.route import Route, routes_of
from receiver.console.api.source import ApiSourceFor
from receiver.console.queries.parameter_types import with_default
from receiver.console.queries.question import Parameter, reject_unknown_parameters
from receiver.http.media_types import require_json
from receiver.refusals import refused
from receiver.reports import LEDGER_SINCE

_LEDGER: Final = Operation(
    "ledger",
    "Numbers of received spans by outcome.",
    (
        since(LEDGER_SINCE),
        Parameter("project", "the id of a project"),
        Parameter("drain", "the name of a drain"),
        Parameter(
            "verify",
            "whether to compare the numbers with the table",
            schema=with_default({"type": "boolean"}, default=False),
        ),
    ),
    errors=BY_QUERY,
)


_CHOSEN: Final = (
    Parameter("project", "the id of the project whose spans are deleted"),
    Parameter("trace", "instead: the id of a trace"),
)
_DAY: Final = Parameter("day", "the day of the spans in UTC, like 20260131")
_ERRORS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT, *BY_STORE)
_SNAPSHOT: Final = Operation(
    "snapshot",
    "Link the files of the embedded store in its data directory, for a backup.",
    errors=(HTTPStatus.CONFLICT, *BY_STORE),
)
_REPORT: Final = Operation(
    "deletionReport",
    "Numbers of stored spans of a project or a trace, and the deletion that runs.",
    _CHOSEN,
    errors=_ERRORS,
)
_BEGIN: Final = Operation(
    "deletionBegin",
    "Begin to delete the spans of a project or a trace of one day.",
    (*_CHOSEN, _DAY),
    errors=_ERRORS,
)


@dataclass(frozen=True, slots=True)
class StatusRoutes:
    """Handlers of the routes and their dependencies."""

    source_for: ApiSourceFor
    health: Callable[[], dict[str, str]]
    schema: Callable[[], object]
    ledger: Callable[[Mapping[str, str]], object]
    pool: ThreadPoolExecutor

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        schema = Operation("schema", "State of the tables.", errors=BY_STORE)
        refusals = Operation("refusals", "Newest refused requests, and their number by hour and reason.")
        health = Operation("health", "Checks of the store and the writer.")
        description = Operation("description", "This description.")
        return (
            Route("GET", "/api/v1/ledger", self._ledger, "viewer", operation=_LEDGER),
            Route("GET", "/api/v1/schema", self._schema, "viewer", operation=schema),
            Route("GET", "/api/v1/refusals", _refusals, "viewer", operation=refusals),
            Route("GET", "/api/v1/health", self._health, "viewer", within_projects=True, operation=health),
            Route(
                "GET",
                "/api/v1/openapi.json",
                _describe,
                "viewer",
                within_projects=True,
                operation=description,
            ),
            Route("GET", "/docs", _show_description, "viewer", within_projects=True),
        )

    async def _ledger(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query, tuple(each.name for each in _LEDGER.parameters))
        query, source = dict(request.query), self.source_for(request)
        queue = source.queues.heavy if "verify" in query else source.queues.short
        return await send_document(
            source, queue, lambda _: iter((msgspec.json.encode(self.ledger(query)) + b"\n",))
        )

    async def _schema(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query)
        answer = await asyncio.get_running_loop().run_in_executor(self.pool, self.schema)
        return whole_json(HTTPStatus.OK, answer)

    async def _health(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query)
        checks = self.health()
        return whole_json(HTTPStatus.OK, {"ok": not any(checks.values()), "checks": checks})


@dataclass(frozen=True, slots=True)
class StoreRoutes:
    """Handlers of the routes and their dependencies."""

    snapshot: Callable[[], object]
    deletion_report: Callable[[Mapping[str, str]], object]
    delete: Callable[[Mapping[str, str]], object]
    pool: ThreadPoolExecutor

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        path = "/api/v1/store/deletion"
        return (
            Route(
                "POST", "/api/v1/store/snapshot", self._snapshot, "admin", changes=True, operation=_SNAPSHOT
            ),
            Route("GET", path, self._report, "admin", operation=_REPORT),
            Route("POST", path, self._begin, "admin", changes=True, operation=_BEGIN),
        )

    async def _snapshot(self, request: web.Request) -> web.StreamResponse:
        require_json(request.content_type)
        reject_unknown_parameters(request.query)
        return await self._answer(self.snapshot)

    async def _report(self, request: web.Request) -> web.StreamResponse:
        reject_unknown_parameters(request.query, tuple(each.name for each in _REPORT.parameters))
        return await self._answer(partial(self.deletion_report, dict(request.query)))

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        require_json(request.content_type)
        reject_unknown_parameters(request.query, tuple(each.name for each in _BEGIN.parameters))
        return await self._answer(partial(self.delete, dict(request.query)))

    async def _answer(self, call: Callable[[], object]) -> web.StreamResponse:
        return whole_json(HTTPStatus.OK, await asyncio.get_running_loop().run_in_executor(self.pool, call))


async def _refusals(request: web.Request) -> web.Response:
    reject_unknown_parameters(request.query)
    return whole_json(HTTPStatus.OK, refused.report)


# The description has no data of customers, so clients may store it and revalidate it.
_HEADERS: Final = {"Cache-Control": "no-cache"}


async def _describe(request: web.Request) -> web.Response:
    """Answer with the description of the API for a program."""
    reject_unknown_parameters(request.query)
    return whole_json(HTTPStatus.OK, openapi.document(routes_of(request.app)), _HEADERS)


async def _show_description(request: web.Request) -> web.Response:
    """Answer with the description of the API for a reader."""
    reject_unknown_parameters(request.query)
    return web.Response(
        body=page(openapi.document(routes_of(request.app))).encode(),
        headers={**_HEADERS, "Content-Type": "text/html; charset=utf-8"},
    )
