"""The endpoint over a source of spans that a test chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from receiver.console.api.problems import map_errors
from receiver.console.api.route import register
from receiver.console.api.source import Answer, Result, Row
from receiver.console.queries.filters.filter import Filter
from receiver.console.queries.group_key import GroupKey
from receiver.console.tools.mcp.endpoint import McpRoutes
from receiver.errors import ReceiverError

Client = TestClient[web.Request, web.Application]
Json = dict[str, Any]


class Spans:
    """Source with the same answer to every question; it keeps the parameters of the last question."""

    def __init__(self, answer: Answer | ReceiverError, spans: list[Row] | None = None) -> None:
        self._answer = answer
        self._spans = spans or []
        self.asked: Mapping[str, str] = {}

    async def ask(self, _name: str, query: Mapping[str, str]) -> Answer:
        self.asked = query
        if isinstance(self._answer, ReceiverError):
            raise self._answer
        return self._answer

    async def matching(self, _trace_id: str, _tree: Filter) -> list[str]:
        raise NotImplementedError

    async def hides_spans(self, _trace_id: str) -> bool:
        return False

    async def outline(
        self, _trace_id: str, read: Callable[[list[Row]], Result], by: GroupKey | None = None
    ) -> Result | None:
        assert by is None
        return read(self._spans) if self._spans else None

    async def span(self, _trace_id: str, span_id: str) -> Row | None:
        return next((row for row in self._spans if row["SpanId"] == span_id), None)


Start = Callable[[Spans], Awaitable[Client]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Return a function that starts the endpoint over a source of spans."""
    clients: list[Client] = []

    async def start_with(source: Spans) -> Client:
        application = web.Application(middlewares=[map_errors])
        register(application, McpRoutes(lambda _request: source).routes())
        client: Client = TestClient(TestServer(application))
        await client.start_server()
        clients.append(client)
        return client

    yield start_with
    for client in clients:
        await client.close()


def request_of(method: str, params: Json | None = None, id_: object = 1) -> Json:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params or {}}


async def called(client: Client, tool: str, **arguments: object) -> Json:
    """Call a tool and return its result."""
    answer = await client.post("/mcp", json=request_of("tools/call", {"name": tool, "arguments": arguments}))
    response = await answer.json()
    assert "result" in response, response
    result: Json = response["result"]
    return result
