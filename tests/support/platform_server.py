"""Server in the place of the platform or its gateway: a test scripts each answer and reads each request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Answer:
    """One answer. `pieces`: sent one after another, each after `pause_s`."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] | None = None
    pause_s: float = 0.0
    is_cut: bool = False
    """Close the connection in the middle of the body."""
    hangs: bool = False
    """Keep the connection open after the last piece."""


@dataclass
class Received:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class PlatformServer:
    """Answers each request with the next answer of the script; the last answer is repeated."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Answer] = []
        self.received: list[Received] = []
        self.is_left = asyncio.Event()
        """Whether a client closed the connection of an answer that hangs."""

    def script(self, *answers: Answer) -> None:
        """Set the answers."""
        self.answers = list(answers)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.received.append(
            Received(
                request.method,
                request.raw_path.partition("?")[0],
                dict(request.query),
                dict(request.headers),
                await request.read(),
            )
        )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.pieces is None:
            content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            return web.Response(
                body=content,
                status=answer.status,
                headers={"Content-Type": "application/json", **answer.headers},
            )
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        await response.prepare(request)
        for piece in answer.pieces:
            await response.write(piece)
            await asyncio.sleep(answer.pause_s)
        if answer.hangs:
            try:
                await asyncio.sleep(3_600)
            finally:
                self.is_left.set()
        if answer.is_cut and request.transport:
            # Everything that was written is sent before the connection closes.
            request.transport.close()
        return response


@asynccontextmanager
async def platform_server(*answers: Answer) -> AsyncIterator[PlatformServer]:
    """Run a server on a free port."""
    scripted = PlatformServer()
    scripted.script(*answers)
    server = web.Server(scripted.handle, access_log=None, handler_cancellation=True)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    scripted.url = f"http://{host}:{port}"
    try:
        yield scripted
    finally:
        await runner.cleanup()
