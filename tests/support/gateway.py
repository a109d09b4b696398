"""Emulated gateway in an application of its own."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from trace_drain_testing.emulator.gateway.gateway import REQUEST_BYTES_MAX, Gateway, routes
from trace_drain_testing.emulator.gateway.gateway_wire import UNSTATED

API_KEY = "gateway-key"
NOW_S = 1_790_000_000
MODEL = "acme/large"
PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()
SCHEMA = {
    "type": "object",
    "properties": {"town": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
    "required": ["town", "unit"],
}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Weather of a town", "parameters": SCHEMA},
}


@dataclass
class RunningGateway:
    """A gateway that listens, with its switches."""

    url: str
    session: aiohttp.ClientSession
    gateway: Gateway
    shapes: dict[str, str]
    faults: Counter[str] = field(default_factory=Counter)

    async def chat(self, body: object, key: str = API_KEY) -> tuple[int, Any]:
        """Post a chat request. Return the status, and the answer's JSON."""
        headers = {"Authorization": f"Bearer {key}"}
        url = f"{self.url}/v1/chat/completions"
        async with self.session.post(url, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def stream(self, body: dict[str, Any]) -> bytes:
        """Post a chat request, and return the bytes of the streamed answer."""
        headers = {"Authorization": f"Bearer {API_KEY}"}
        url = f"{self.url}/v1/chat/completions"
        async with self.session.post(url, json={**body, "stream": True}, headers=headers) as answer:
            assert answer.content_type == "text/event-stream"
            return await answer.read()

    async def control(self, path: str, body: object) -> tuple[int, Any]:
        """Post to the control API."""
        url = self.url.replace("/gateway", "/control") + path
        async with self.session.post(url, json=body) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def running_gateway() -> AsyncIterator[RunningGateway]:
    """Run a gateway until the block ends."""
    shapes = {rule: values[0] for rule, values in UNSTATED.items()}
    faults: Counter[str] = Counter()

    def take_fault(name: str) -> bool:
        is_due = faults[name] > 0
        faults[name] -= is_due
        return is_due

    gateway = Gateway(API_KEY, take_fault, shapes.__getitem__, lambda: NOW_S)
    application = web.Application(client_max_size=REQUEST_BYTES_MAX)
    application.add_routes(routes(gateway, "/gateway", "/control"))
    async with TestServer(application) as server, aiohttp.ClientSession() as session:
        yield RunningGateway(str(server.make_url("/gateway")), session, gateway, shapes, faults)


def question(text: str, **fields: object) -> dict[str, Any]:
    """Return a chat request with one message of the user."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
