"""Wrapper of the platform API's handlers: turns refusals into responses, and injects faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from receiver.http.origin import Handler
from trace_drain_testing.emulator.installations import DISABLED_CODE
from trace_drain_testing.emulator.platform import Platform
from trace_drain_testing.emulator.refusals import Refusal, response_of

LATE_S = 5.0
"""Delay of a response by the fault `api-late`, on the emulator's clock."""
RETRY_AFTER_S = 1
SLOW_BYTES = 16
SLOW_S = 0.01
"""Size of the pieces of a slow response, and the pause after each."""


class Cut(Exception):  # noqa: N818 - an injected fault, not an error
    """The connection was closed by a fault."""


@dataclass
class AnswerWriter:
    """A response that is being written, with the faults that change it."""

    request: web.Request
    response: web.StreamResponse
    is_slow: bool
    is_cut: bool

    async def write(self, content: bytes) -> None:
        """Write a part. Raises `Cut` after half of it if a fault cuts the response."""
        part = content[: len(content) // 2] if self.is_cut and len(content) > 1 else content
        if self.is_slow:
            for start in range(0, len(part), SLOW_BYTES):
                await self.response.write(part[start : start + SLOW_BYTES])
                await asyncio.sleep(SLOW_S)
        else:
            await self.response.write(part)
        if part is not content:
            raise Cut


async def begin(platform: Platform, request: web.Request, response: web.StreamResponse) -> AnswerWriter:
    """Send the head of a response, and return the body to write."""
    await response.prepare(request)
    take = platform.faults.take
    return AnswerWriter(request, response, is_slow=take("api-slow-bytes"), is_cut=take("api-cut"))


async def send_json(platform: Platform, request: web.Request, document: object) -> web.StreamResponse:
    body = msgspec.json.encode(document)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(body)
    answer = await begin(platform, request, response)
    await answer.write(body)
    return response


def guarded(platform: Platform, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Handler:
    """Wrap a handler with the faults of the platform API, and with its form of errors."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            await _inject(platform)
            return await handler(request)
        except Refusal as refusal:
            return response_of(refusal, platform.unstated.shape_of("P6"))
        except Cut:
            if request.transport is not None:
                # Without the end of the body, so that the client detects an incomplete response.
                request.transport.close()
            raise asyncio.CancelledError from None

    return handle


async def _inject(platform: Platform) -> None:
    """Wait or refuse, if a fault is due."""
    take = platform.faults.take
    if take("api-late"):
        await platform.clock.sleep(LATE_S)
    if take("api-429"):
        headers: dict[str, Any] = {"Retry-After": str(RETRY_AFTER_S)}
        raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "rate_limited", "too many requests", headers)
    if take("api-500"):
        raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the platform failed")
    if take("configuration-disabled"):
        raise Refusal(HTTPStatus.FORBIDDEN, DISABLED_CODE, "the integration is disabled by a fault")
