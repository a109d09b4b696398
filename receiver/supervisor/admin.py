"""Admin port: `/livez`, `/readyz`, `/metrics` and `/version` for all processes.

The supervisor serves it, because that process is never busy. The number of connections is limited, so that
the supervisor always has the descriptors that it needs to start a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from socket import socket

import msgspec
from aiohttp import web

from receiver.http.listener import Listener
from receiver.http.media_types import JSON
from receiver.http.origin import OriginCheck
from receiver.http.protocol import Limits
from receiver.metrics import Metrics, Snapshot
from receiver.settings import Settings
from receiver.supervisor.exposition import render
from receiver.supervisor.health import Readiness
from receiver.supervisor.versions import versions

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True)
class Admin:
    """Handlers of the admin port and their data sources."""

    readiness: Callable[[], Readiness]
    counts: Callable[[], Iterable[Snapshot]]
    settings: Settings
    metrics: Metrics
    version: Mapping[str, str] = field(default_factory=versions)

    async def serve(self, listening: socket) -> Listener:
        """Serve this socket until the listener is closed. Raises `OperatorError` without a C parser."""
        check = OriginCheck("admin", self.settings.api_hosts, allows_short_names=True)
        app = web.Application(middlewares=[check.middleware])
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/version", self._version),
            ]
        )
        limits = self.settings.limits
        listener = Listener(
            Limits("admin", limits.admin_connections_max, limits.header_timeout_s, limits.write_timeout_s),
            self.metrics,
        )
        await listener.open(app, listening)
        return listener

    # Ignores the children: the supervisor replaces them itself, and a restart of everything would not help.
    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=HEADERS)

    async def _readyz(self, request: web.Request) -> web.Response:
        readiness = self.readiness()
        status = 200 if readiness.ready else 503
        if "json" in request.headers.get("Accept", ""):
            return _json(readiness, status)
        return web.Response(
            text=readiness.as_text(is_verbose="verbose" in request.query), status=status, headers=HEADERS
        )

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=render(self.counts()), headers={**HEADERS, "Content-Type": METRICS_TYPE})

    async def _version(self, _request: web.Request) -> web.Response:
        return _json(self.version, 200)


def _json(content: object, status: int) -> web.Response:
    headers = {**HEADERS, "Content-Type": JSON}
    return web.Response(body=msgspec.json.encode(content) + b"\n", status=status, headers=headers)
