"""API routes for rollups.

    GET  /api/v1/rollup                      an object for each day with closed hours, then for each table
    POST /api/v1/rollup/rebuild?since=7d     derive the hours since then again; without `since`, all

Invariant: a POST requires a content type that a browser sends across sites only after a CORS preflight.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import web

from receiver.console.api.description.operation import BY_STORE, Operation
from receiver.console.api.responses import whole_json, whole_lines
from receiver.console.api.route import Route
from receiver.console.queries.parameter_types import TIME
from receiver.console.queries.question import Parameter, reject_unknown_parameters
from receiver.console.queries.rollup import status
from receiver.console.queries.rollup.derivation import Closing
from receiver.console.queries.rollup.slots import invalidate
from receiver.console.queries.rollup.tables import HOUR_S
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.http.media_types import JSON_LINES, require_json
from receiver.time_range import parse_since

_STATUS: Final = Operation(
    "rollup", "State of the rollups: by day, then by table.", (), (JSON_LINES,), BY_STORE
)
_REBUILD: Final = Operation(
    "rebuildRollups",
    "Derive the rollups again from the spans.",
    (Parameter("since", "how far back, like 24h; all by default", schema=TIME),),
    errors=BY_STORE,
)


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

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route("GET", "/api/v1/rollup", self._status, "viewer", operation=_STATUS),
            Route(
                "POST", "/api/v1/rollup/rebuild", self._rebuild, "operator", changes=True, operation=_REBUILD
            ),
        )

    async def _status(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        return whole_lines(await asyncio.get_running_loop().run_in_executor(self.pool, self._rows))

    def _rows(self) -> list[status.DayStatus | status.TableStatus]:
        return [*status.days(self.store, self.closing()), *status.tables(self.store)]

    async def _rebuild(self, request: web.Request) -> web.Response:
        require_json(request.content_type)
        reject_unknown_parameters(request.query, ("since",))
        if not self.is_on:
            raise MalformedBody("rollups are off; expected store.rollup = true", field="since")
        since = request.query.get("since")
        from_hour = None if since is None else since_hour(since, time.time())
        await asyncio.get_running_loop().run_in_executor(self.pool, invalidate, self.store, from_hour)
        # After the slots are marked incomplete: a thread that wakes earlier could find no work.
        self.wake()
        return whole_json(HTTPStatus.OK, {})


def since_hour(since: str, now_s: float) -> int:
    """Return the hour at this age, in hours since 1970."""
    return max(0, int(now_s) - parse_since(since)) // HOUR_S
