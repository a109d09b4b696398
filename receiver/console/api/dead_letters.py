"""API routes for dead letters.

    GET    /api/v1/dead                all dead letters, one object per line
    GET    /api/v1/dead/{id}           one dead letter
    POST   /api/v1/dead/{id}/replay    move it back into the journal; 409 with the reason if impossible
    DELETE /api/v1/dead/{id}           delete it permanently; 409 while its segment still exists

Invariant: a POST requires a content type for which browsers send a CORS preflight before a cross-site
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar

from aiohttp import web

from receiver.console.api.description.operation import BY_STORE, Operation
from receiver.console.api.responses import whole_json, whole_lines
from receiver.console.api.route import Route
from receiver.console.queries.question import Parameter, reject_unknown_parameters
from receiver.http.media_types import JSON_LINES, require_json
from receiver.reports import DeadLetterOperations, Replayed

T = TypeVar("T")
_ID: Final = Parameter("id", "the id of a dead letter", is_required=True)
_LIST: Final = Operation("deadLetters", "Dead letters.", (), (JSON_LINES,), BY_STORE)
_SHOW: Final = Operation("deadLetter", "A dead letter.", (_ID,), errors=(HTTPStatus.NOT_FOUND, *BY_STORE))
_REPLAY: Final = Operation(
    "replayDeadLetter",
    "Move a dead letter back into the journal.",
    (_ID,),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, *BY_STORE),
)
_DELETE: Final = Operation(
    "deleteDeadLetter",
    "Delete a dead letter permanently.",
    (_ID,),
    errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, *BY_STORE),
)


@dataclass(frozen=True, slots=True)
class DeadLetterRoutes:
    """Handlers for dead letters and their dependencies."""

    dead_letters: DeadLetterOperations
    pool: ThreadPoolExecutor

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route("GET", "/api/v1/dead", self._list, "viewer", operation=_LIST),
            Route("GET", "/api/v1/dead/{id}", self._show, "viewer", operation=_SHOW),
            Route(
                "POST", "/api/v1/dead/{id}/replay", self._replay, "operator", changes=True, operation=_REPLAY
            ),
            Route("DELETE", "/api/v1/dead/{id}", self._drop, "operator", changes=True, operation=_DELETE),
        )

    async def _list(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        return whole_lines(await self._run_in_pool(self.dead_letters.entries))

    async def _show(self, request: web.Request) -> web.Response:
        name = _dead_letter_id(request)
        return _answer(await self._run_in_pool(lambda: self.dead_letters.entry(name)))

    async def _replay(self, request: web.Request) -> web.Response:
        require_json(request.content_type)
        return _answer((await self.replay(_dead_letter_id(request)))._asdict())

    async def _drop(self, request: web.Request) -> web.Response:
        name = _dead_letter_id(request)
        await self.drop(name)
        return _answer({"id": name})

    async def replay(self, name: str) -> Replayed:
        """Move a dead letter back into the journal. Raises if the store still refuses its rows."""
        return await self._run_in_pool(lambda: self.dead_letters.replay(name))

    async def drop(self, name: str) -> None:
        """Delete a dead letter permanently. Raises if it cannot be deleted."""
        await self._run_in_pool(lambda: self.dead_letters.drop(name))

    async def _run_in_pool(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, call)


def _dead_letter_id(request: web.Request) -> str:
    reject_unknown_parameters(request.query)
    return request.match_info["id"]


def _answer(content: object) -> web.Response:
    return whole_json(HTTPStatus.OK, content)
