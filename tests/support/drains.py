"""Endpoint that writes down the deliveries of emulated drains, and traffic for them."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from trace_drain_testing.emulator.drains import Drains
from trace_drain_testing.emulator.drains_control import routes
from trace_drain_testing.emulator.drains_traffic import ServiceSpans, Traffic
from trace_drain_testing.load.traffic import Resource, Span, SpanEvent

NOW_S = 1_790_000_000
BASE_NS = NOW_S * 10**9
HALF = b"\x11" * 8


@dataclass
class Endpoint:
    """Endpoint of drains, with its drains and their switches."""

    url: str = ""
    control_url: str = ""
    clock_s: float = NOW_S
    statuses: deque[int] = field(default_factory=deque)
    """Statuses of the next answers; then 200."""
    deliveries: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    """Headers in lower case, and body, of each delivery."""
    pauses_s: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    is_paused: bool = False

    async def receive(self, request: web.Request) -> web.Response:
        """Write down a delivery."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.deliveries.append((headers, await request.read()))
        status = self.statuses.popleft() if self.statuses else 200
        return web.Response(status=status, headers={"Location": self.url})

    async def pause(self, seconds: float) -> None:
        """Write down a pause instead of waiting."""
        self.pauses_s.append(seconds)

    def take_fault(self, name: str) -> bool:
        """Return whether a fault is due, and use it up."""
        is_due = self.faults[name] > 0
        self.faults[name] -= is_due
        return is_due

    def documents(self) -> list[Any]:
        """Return the deliveries in JSON, without the test events that each new drain sends."""
        return [json.loads(body) for _, body in self.deliveries if b"platform-test" not in body]

    def names(self) -> list[list[str]]:
        """Return the names of the spans of each delivery."""
        return [
            [span["name"] for resource in document["resourceSpans"] for span in spans_of(resource)]
            for document in self.documents()
        ]


@dataclass
class Site:
    """Drains with their control API, and the endpoint that they send to."""

    endpoint: Endpoint
    drains: Drains
    session: aiohttp.ClientSession

    async def control(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request to the control API."""
        url = self.endpoint.control_url + path
        async with self.session.request(method, url, json=body) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.text())

    async def add(self, **fields: object) -> dict[str, Any]:
        """Create a drain that sends to the endpoint."""
        status, body = await self.control("POST", "/drains", {"url": self.endpoint.url, **fields})
        assert status == 200, body
        return dict(body)

    async def summary(self) -> Any:  # noqa: ANN401 - any JSON
        """Return the only drain."""
        return (await self.control("GET", "/drains"))[1]["drains"][0]


@asynccontextmanager
async def running_drains() -> AsyncIterator[Site]:
    """Run drains and their endpoint until the block ends."""
    endpoint = Endpoint()
    drains = Drains(
        lambda: endpoint.clock_s, endpoint.pause, endpoint.take_fault, lambda: endpoint.is_paused, "seed"
    )
    application = web.Application()
    application.add_routes(routes(drains, "/control"))
    application.router.add_post("/traces", endpoint.receive)
    async with TestServer(application) as server, aiohttp.ClientSession() as session:
        endpoint.url, endpoint.control_url = str(server.make_url("/traces")), str(server.make_url("/control"))
        yield Site(endpoint, drains, session)
        await drains.close()


def spans_of(resource: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Return the spans of a resource in JSON."""
    return (span for scope in resource["scopeSpans"] for span in scope["spans"])


def source(  # noqa: PLR0913 - what a sampling rule can depend on
    path: str = "/",
    trace: int = 1,
    *,
    name: str = "",
    environment: Literal["production", "preview"] = "production",
    runtime: Literal["node", "edge"] = "node",
    scope: str = "next.js",
    parent: bytes = b"",
    has_failed: bool = False,
) -> ServiceSpans:
    """Return a source with one span."""
    event = SpanEvent(500, "exception", {"exception.type": "TypeError"}) if has_failed else None
    attributes = {} if parent else {"url.path": path}
    half, span_id = trace.to_bytes(8, "big"), (trace + 1).to_bytes(8, "big")
    status = 2 if has_failed else 0
    message = "no cart" if has_failed else ""
    span = Span(half, span_id, parent, name or f"GET {path}", 2, 0, 1_000, attributes, event, status, message)
    resource = Resource({"service.name": "web"}, (scope, "1"), (span,))
    return ServiceSpans("prj_1", "dpl_1", environment, runtime, resource)


def traffic(*sources: ServiceSpans) -> Traffic:
    """Return the sources as collected at the base time."""
    return Traffic(sources, HALF, BASE_NS)
