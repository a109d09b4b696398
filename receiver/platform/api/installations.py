"""API routes for the platform.

GET /api/v1/platform/installations     every installation of the integration, the newest first
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
from aiohttp import web

from receiver.console.api.access import requires
from receiver.console.api.lines import end_line
from receiver.console.queries.question import reject_unknown_parameters
from receiver.http.media_types import JSON_LINES
from receiver.platform.installations.installations import Installations
from receiver.platform.installations.listing import entries


@dataclass(frozen=True, slots=True)
class PlatformRoutes:
    """Handlers for the platform and their dependencies."""

    installations: Installations
    pool: ThreadPoolExecutor

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes to the router of the API."""
        router.add_get("/api/v1/platform/installations", self._list)

    @requires("viewer")
    async def _list(self, request: web.Request) -> web.Response:
        reject_unknown_parameters(request.query)
        rows = await asyncio.get_running_loop().run_in_executor(self.pool, entries, self.installations)
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows) + end_line(len(rows))
        return web.Response(body=lines, headers={"Content-Type": JSON_LINES})
