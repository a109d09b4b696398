"""API routes for dead letters.

    GET    /api/v1/dead                every dead letter, one object per line
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
from typing import TypeVar

import msgspec
from aiohttp import web

from receiver.console.api.access import requires
from receiver.console.api.lines import end_line
from receiver.console.queries.question import reject_unknown_parameters
from receiver.http.media_types import JSON, JSON_LINES, require_json
from receiver.reports import DeadLetterOperations, Replayed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeadLetterRoutes:
    """Handlers for dead letters and their dependencies."""

    dead_letters: DeadLetterOperations
    pool: ThreadPoolExecutor

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the dead letter routes to the router of the API."""
        router.add_get("/api/v1/dead", self._list)
        router.add_get("/api/v1/dead/{id}", self._show)
        router.add_post("/api/v1/dead/{id}/replay", self._replay)
        router.add_delete("/api/v1/dead/{id}", self._drop)

    @requires("viewer")
    async def _list(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        listed = await self._run_in_pool(self.dead_letters.entries)
        lines = b"".join(map(_json_line, listed)) + end_line(len(listed))
        return web.Response(body=lines, headers={"Content-Type": JSON_LINES})

    @requires("viewer")
    async def _show(self, request: web.Request) -> web.Response:
        name = _dead_letter_id(request)
        return _answer(await self._run_in_pool(lambda: self.dead_letters.entry(name)))

    @requires("operator", changes=True)
    async def _replay(self, request: web.Request) -> web.Response:
        require_json(request.content_type)
        return _answer((await self.replay(_dead_letter_id(request)))._asdict())

    @requires("operator", changes=True)
    async def _drop(self, request: web.Request) -> web.Response:
        name = _dead_letter_id(request)
        await self.drop(name)
        return _answer({"id": name})

    async def replay(self, name: str) -> Replayed:
        """Move a dead letter back into the journal. Raises if it stays a dead letter."""
        return await self._run_in_pool(lambda: self.dead_letters.replay(name))

    async def drop(self, name: str) -> None:
        """Delete a dead letter permanently. Raises if it is kept."""
        await self._run_in_pool(lambda: self.dead_letters.drop(name))

    async def _run_in_pool(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, call)


def _dead_letter_id(request: web.Request) -> str:
    reject_unknown_parameters(request.query)
    return request.match_info["id"]


def _answer(content: object) -> web.Response:
    return web.Response(body=_json_line(content), headers={"Content-Type": JSON})


def _json_line(content: object) -> bytes:
    return msgspec.json.encode(content) + b"\n"
