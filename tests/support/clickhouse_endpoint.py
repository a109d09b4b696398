"""The ClickHouse endpoint over a store, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from receiver.console.api.query_queue import QUERIES_MAX
from receiver.console.api.routes import Api
from receiver.console.api.spool import SpoolSpace
from receiver.console.tools.clickhouse_http.endpoint import ClickHouseEndpoint

Client = TestClient[Any, Any]
DATABASE = "otel"
TOKEN = "recorded-token"


@asynccontextmanager
async def served(store: Any, directory: Path, token: str = "") -> AsyncIterator[Client]:  # noqa: ANN401 - or a fake
    """Yield a client of the endpoint, which sends no token of its own."""
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(QUERIES_MAX) as stream_pool:
        api = Api(
            store=store,
            token=str,
            health=dict,
            schema=dict,
            ledger=dict,
            pool=pool,
            stream_pool=stream_pool,
            space=SpoolSpace(directory, 0, lambda: 0),
        )
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
