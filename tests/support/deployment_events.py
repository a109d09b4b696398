"""Deployment events as the platform sends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.random_filters import NOW_S

NOW_MS = NOW_S * 1_000


def build_line(number: int, text: str = "line", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return a line of a build log."""
    info = {"type": "build", "name": "bld_1", "entrypoint": "api/cart.ts"}
    payload = {"id": f"ev_{number}", "serial": str(number), "text": text, "info": info}
    return {"type": "stdout", "created": NOW_MS + number, "payload": payload, **more}


def state_event(number: int, state: str) -> dict[str, Any]:
    """Return a change of the state of a deployment."""
    payload = {"id": f"state_{number}", "info": {"readyState": state}}
    return {"type": "deployment-state", "created": NOW_MS + number, "payload": payload}


def request_event(
    number: int,
    request: str,
    status: int = 200,
    **proxy: Any,  # noqa: ANN401 - any JSON
) -> dict[str, Any]:
    """Return a request. Its platform id is `platform` with the request id."""
    made = {
        "timestamp": NOW_MS + number,
        "method": "GET",
        "host": "shop.example",
        "path": "/cart",
        "statusCode": status,
        "platformId": f"platform {request}",
        **proxy,
    }
    payload = {"id": f"request_{number}_{request}", "requestId": request, "statusCode": status, "proxy": made}
    return {"type": "request", "created": NOW_MS + number, "payload": payload}


class EventsServer:
    """Server in the place of the platform, with the events of any deployment."""

    def __init__(self) -> None:
        self.url = ""
        self.events: list[dict[str, Any]] = []
        self.queries: list[dict[str, str]] = []
        self.ignores_since = False
        self.refusal: web.Response | None = None
        self.followers = 0
        self._change = asyncio.Event()

    def add(self, *events: dict[str, Any]) -> None:
        """Add events, which followers receive."""
        self.events += events
        self._change.set()
        self._change = asyncio.Event()

    def refuse(self, status: int, code: str = "bad_request") -> None:
        """Answer every call with an error."""
        body = json.dumps({"error": {"code": code, "message": "no"}})
        self.refusal = web.Response(status=status, text=body, content_type="application/json")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        if self.refusal is not None:
            body, status = self.refusal.text, self.refusal.status
            return web.Response(status=status, text=body, content_type="application/json")
        found = self._found(request.query)
        if "follow" not in request.query:
            limit = int(request.query.get("limit", "-1"))
            return web.json_response(found if limit == -1 else found[:limit])
        return await self._follow(request, len(self.events), found)

    def _found(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        since = 0 if self.ignores_since else int(query.get("since", "0"))
        return sorted((each for each in self.events if each["created"] >= since), key=itemgetter("created"))

    async def _follow(
        self, request: web.Request, sent: int, found: list[dict[str, Any]]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/stream+json"})
        await response.prepare(request)
        self.followers += 1
        try:
            for event in found:
                await response.write(json.dumps(event).encode() + b"\n")
            while not any(event["type"] == "deployment-state" for event in found[-1:]):
                if sent == len(self.events):
                    await self._change.wait()
                found, sent = self.events[sent:], len(self.events)
                for event in found:
                    await response.write(json.dumps(event).encode() + b"\n")
        finally:
            self.followers -= 1
        return response


@asynccontextmanager
async def events_server() -> AsyncIterator[EventsServer]:
    """Start the server."""
    platform = EventsServer()
    application = web.Application()
    application.router.add_get("/v3/deployments/{id}/events", platform.handle)
    async with TestServer(application) as server:
        platform.url = f"http://127.0.0.1:{server.port}"
        yield platform
