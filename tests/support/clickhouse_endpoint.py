"""The ClickHouse endpoint over a store, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from receiver.console.tools.clickhouse_http.endpoint import ClickHouseEndpoint
from tests.support.api import Client, api_over

DATABASE = "otel"
TOKEN = "recorded-token"


@asynccontextmanager
async def served(store: Any, token: str = "") -> AsyncIterator[Client]:  # noqa: ANN401 - also doubles
    """Yield a client of the endpoint, which sends no token of its own."""
    with api_over(store) as api:
        endpoint = ClickHouseEndpoint(api.source, lambda: token, DATABASE)
        async with TestClient(TestServer(endpoint.application())) as client:
            yield client


def port_of(client: Client) -> int:
    """Return the port on which the endpoint listens."""
    port = client.server.port
    assert port is not None
    return port


async def asked(client: Client, statement: str, **parameters: str) -> ClientResponse:
    """Send a statement in a body, and read its whole answer."""
    answer = await client.post("/", params=parameters, data=statement.encode())
    await answer.read()
    return answer


async def lines(client: Client, statement: str, **parameters: str) -> list[str]:
    """Return the lines of an answer, which has to be a success."""
    answer = await asked(client, statement, **parameters)
    text = await answer.text()
    assert answer.status == 200, text
    return text.splitlines()


async def code_of(client: Client, statement: str, **parameters: str) -> tuple[int, int]:
    """Return the status of an error and its code, which the header and the text have to agree on."""
    answer = await asked(client, statement, **parameters)
    code = answer.headers["X-ClickHouse-Exception-Code"]
    assert (await answer.text()).startswith(f"Code: {code}. DB::Exception: ")
    return answer.status, int(code)


def raw(target: str) -> URL:
    """Return a recorded request target as it was sent."""
    return URL(target, encoded=True)
