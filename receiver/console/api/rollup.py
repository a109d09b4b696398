"""API routes for rollups.

    GET  /api/v1/rollup                      an object for each day with closed hours, then one for each table
    POST /api/v1/rollup/rebuild?since=7d     derive the hours since then again; without `since`, all

Invariant: a POST requires a content type that a browser sends across sites only after a CORS preflight.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
from aiohttp import web

from receiver.console.api.access import requires
from receiver.console.api.lines import end_line
from receiver.console.queries.question import reject_unknown_parameters
from receiver.console.queries.rollup import status
from receiver.console.queries.rollup.derivation import Closing
from receiver.console.queries.rollup.slots import invalidate
from receiver.console.queries.rollup.tables import HOUR_S
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.http.media_types import JSON, JSON_LINES, require_json
from receiver.time_range import parse_since


@dataclass(frozen=True, slots=True)
class RollupRoutes:
    """Handlers for rollups and their dependencies."""

    store: Store
    closing: Callable[[], Closing]
    is_on: bool
    """Whether the receiver derives hours."""
    wake: Callable[[], None]
    """Starts to derive the hours that are due."""
    pool: ThreadPoolExecutor

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes to the router of the API."""
        router.add_get("/api/v1/rollup", self._status)
        router.add_post("/api/v1/rollup/rebuild", self._rebuild)

    @requires("viewer")
    async def _status(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        rows = await asyncio.get_running_loop().run_in_executor(self.pool, self._rows)
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows) + end_line(len(rows))
        return web.Response(body=lines, headers={"Content-Type": JSON_LINES})

    def _rows(self) -> list[status.DayStatus | status.TableStatus]:
        return [*status.days(self.store, self.closing()), *status.tables(self.store)]

    @requires("operator", changes=True)
    async def _rebuild(self, request: web.Request) -> web.Response:
        require_json(request.content_type)
        reject_unknown_parameters(request.query, ("since",))
        if not self.is_on:
            raise MalformedBody("rollups are off; expected store.rollup = true", field="since")
        since = request.query.get("since")
        from_hour = None if since is None else since_hour(since, time.time())
        await asyncio.get_running_loop().run_in_executor(self.pool, invalidate, self.store, from_hour)
        # After the slots are incomplete; a thread that wakes earlier could find nothing due.
        self.wake()
        return web.Response(body=b"{}\n", headers={"Content-Type": JSON})


def since_hour(since: str, now_s: float) -> int:
    """Return the hour at this age, in hours since 1970."""
    return max(0, int(now_s) - parse_since(since)) // HOUR_S
