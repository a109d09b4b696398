"""The admin port: `/livez`, `/readyz`, `/metrics`, `/version` for all processes, nothing else.

Served by the supervisor, because it is the one that is never busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from socket import socket

import msgspec
from aiohttp import web

from receiver.intake.parser import require_c_parser
from receiver.metrics import Snapshot
from receiver.supervisor.exposition import render
from receiver.supervisor.health import Readiness
from receiver.supervisor.versions import versions

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True)
class Admin:
    """What the admin port answers from."""

    readiness: Callable[[], Readiness]
    counts: Callable[[], Iterable[Snapshot]]
    version: Mapping[str, str] = field(default_factory=versions)

    async def serve(self, listening: socket) -> web.AppRunner:
        """Answer on this socket until the runner is cleaned up. Raises `OperatorError` without a C parser."""
        require_c_parser()
        app = web.Application()
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/version", self._version),
            ]
        )
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        return runner

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=HEADERS)

    async def _readyz(self, request: web.Request) -> web.Response:
        found = self.readiness()
        status = 200 if found.ready else 503
        if "json" in request.headers.get("Accept", ""):
            return _json(found, status)
        return web.Response(
            text=found.as_text(is_verbose="verbose" in request.query), status=status, headers=HEADERS
        )

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=render(self.counts()), headers={**HEADERS, "Content-Type": METRICS_TYPE})

    async def _version(self, _request: web.Request) -> web.Response:
        return _json(self.version, 200)


def _json(content: object, status: int) -> web.Response:
    headers = {**HEADERS, "Content-Type": "application/json"}
    return web.Response(body=msgspec.json.encode(content) + b"\n", status=status, headers=headers)
