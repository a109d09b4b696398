"""The API's routes for what was set aside.

    GET    /api/v1/dead                every dead letter, one object a line
    GET    /api/v1/dead/{id}           one dead letter
    POST   /api/v1/dead/{id}/replay    back into the journal; 409 says why not
    DELETE /api/v1/dead/{id}           delete it for good; 409 while its segment is being replayed

Keeps: what changes something asks for a content type that no page of another site may send unasked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from aiohttp import web

from receiver.api.lines import JSON_LINES, end_line
from receiver.api.parameters import refuse_unknown
from receiver.dead_letters.listing import entry_of
from receiver.dead_letters.replay import Replayer
from receiver.errors import UnsupportedMedia

JSON = "application/json"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeadLetterRoutes:
    """What the handlers need."""

    replays: Replayer
    pool: ThreadPoolExecutor

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Put the routes where they belong."""
        router.add_get("/api/v1/dead", self._listed)
        router.add_get("/api/v1/dead/{id}", self._shown)
        router.add_post("/api/v1/dead/{id}/replay", self._replay)
        router.add_delete("/api/v1/dead/{id}", self._drop)

    async def _listed(self, request: web.Request) -> web.Response:
        refuse_unknown(request.query)
        listed = await self._asked(self.replays.dead_letter_list.entries)
        lines = b"".join(map(_line, listed)) + end_line(len(listed))
        return web.Response(body=lines, headers={"Content-Type": JSON_LINES})

    async def _shown(self, request: web.Request) -> web.Response:
        name = _named(request)
        return _answer(await self._asked(lambda: entry_of(self.replays.dead_letter_list.find(name))))

    async def _replay(self, request: web.Request) -> web.Response:
        _refuse_pages(request)
        name = _named(request)
        replayed = await self._asked(lambda: self.replays.replay(name))
        return _answer(replayed._asdict())

    async def _drop(self, request: web.Request) -> web.Response:
        name = _named(request)
        await self._asked(lambda: self.replays.dead_letter_list.drop(name))
        return _answer({"id": name})

    async def _asked(self, ask: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, ask)


def _named(request: web.Request) -> str:
    refuse_unknown(request.query)
    return request.match_info["id"]


def _refuse_pages(request: web.Request) -> None:
    if request.content_type != JSON:
        raise UnsupportedMedia(f"content type is not '{JSON}'; expected it, with any body")


def _answer(found: object) -> web.Response:
    return web.Response(body=_line(found), headers={"Content-Type": JSON})


def _line(found: object) -> bytes:
    return msgspec.json.encode(found) + b"\n"
