"""Ports of the store process: listeners with the same limits, opened one by one and closed together."""

from __future__ import annotations

import socket

from aiohttp import web

from receiver.http.listener import Listener
from receiver.http.protocol import Limits
from receiver.metrics import Metrics
from receiver.settings import Limits as LimitSettings


class Ports:
    """The open ports."""

    def __init__(self, limits: LimitSettings, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._listeners: list[Listener] = []

    async def serve(self, name: str, application: web.Application, listen_fd: int) -> None:
        """Serve the application on the inherited socket. `name`: for metrics and log lines."""
        limits = self._limits
        listener = Listener(
            Limits(name, limits.api_connections_max, limits.header_timeout_s, limits.write_timeout_s),
            self._metrics,
        )
        self._listeners.append(listener)
        await listener.open(application, socket.socket(fileno=listen_fd))

    async def close(self) -> None:
        """Stop accepting, let running requests finish, and close every connection."""
        for listener in self._listeners:
            await listener.close()
