"""A site over the embedded store with traces of a shop, in which deployment `dpl_2` is worse than `dpl_1`."""

from __future__ import annotations

import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from receiver.api.query_queue import QUERIES_MAX
from receiver.api.routes import Api
from receiver.api.source import ApiSource, Row
from receiver.api.spool import SpoolSpace
from receiver.engine.store import Store
from receiver.settings import Access
from receiver.ui.facts import ReceiverFacts
from receiver.ui.pages import PAGES
from receiver.ui.site import Site
from receiver.ui.view import Source
from tests.support import engines
from tests.support.access import USERS, receiver_with
from tests.support.receiver_facts import facts_of

Client = TestClient[web.Request, web.Application]
StartSite = Callable[[Source], Awaitable[Client]]
StartReceiver = Callable[..., Awaitable[Client]]

NOON_S = int(time.time()) // 86_400 * 86_400 - 43_200
"""Noon of yesterday."""
TIMES = {
    "since": datetime.fromtimestamp(NOON_S, UTC).isoformat(),
    "until": datetime.fromtimestamp(NOON_S + 3_600, UTC).isoformat(),
}
"""The hour of all spans, as parameters of a page."""
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "</title><svg onload=alert(1)>",
    "\u202egnp.exe",
    "\x1b[2J",
    "=cmd|' /C calc'!A0",
    "' OR 1=1 --",
    "&lt;b&gt;",
)
"""Texts of senders that must stay text."""
HOSTILE_TRACE = "f" * 32
URLS = (
    *(re.sub(r"\{\w+\}", HOSTILE_TRACE, page.path) for page in PAGES.values()),
    "/search?q=status%3Derror",
    "/search?facet=http.route&selection=status%3Derror",
    "/compare?a=dpl_1&b=dpl_2",
)
"""Every page, and pages whose parameters make them show more."""


def _span(number: int, name: str, service: str, **more: object) -> Row:
    start_s = NOON_S + number % 3_600
    return {
        "Timestamp": f"{datetime.fromtimestamp(start_s, UTC):%Y-%m-%d %H:%M:%S}.000000000",
        "TraceId": f"{number + 1:032x}",
        "SpanId": f"{number:015x}1",
        "ParentSpanId": "",
        "ServiceName": service,
        "SpanName": name,
        "SpanKind": "Server",
        "ProjectId": "prj_1",
        "DeploymentId": "dpl_2" if number % 3_600 >= 1_800 else "dpl_1",
        "StatusCode": "Unset",
        "Duration": 100_000_000,
        "SpanAttributes": {"http.route": name},
        **more,
    }


def _shop() -> Iterator[Row]:
    rng = random.Random(14)
    for number in range(0, 3_600, 6):
        is_worse = number >= 1_800
        duration_ns = int(rng.lognormvariate(18, 0.3) * (1.5 if is_worse else 1))
        is_error = rng.random() < (0.1 if is_worse else 0.01)
        root = _span(number, "GET /cart", "web", Duration=duration_ns)
        if is_error:
            root |= {"StatusCode": "Error", "StatusMessage": f"deadlock on row {number}"}
        yield root
        child = {"ParentSpanId": root["SpanId"], "SpanId": f"{number:015x}2", "SpanKind": "Client"}
        yield _span(number, "SELECT cart", "db", Duration=duration_ns // 2, **child)


def _hostile() -> Iterator[Row]:
    for place, text in enumerate(HOSTILE):
        # Two exceptions: the engine keeps no byte that JSON cannot express, and a project is a name.
        yield _span(
            3_000,
            text,
            text,
            TraceId=HOSTILE_TRACE,
            SpanId=f"{place:016x}",
            ParentSpanId="" if not place else f"{place - 1:016x}",
            ProjectId=text,
            DeploymentId=text,
            StatusCode="Error",
            StatusMessage=text,
            SpanAttributes={text: text},
            ResourceAttributes={text: text},
            **{
                "Events.Timestamp": [0],
                "Events.Name": [text],
                "Events.Attributes": [{"exception.type": text, "exception.message": text}],
                "Links.TraceId": [text],
                "Links.SpanId": [text],
                "Links.TraceState": [""],
                "Links.Attributes": [{text: text}],
            },
        )


@pytest.fixture(scope="module")
def shop_store(engine_dir: Path) -> Iterator[Store]:
    """Yield the embedded store with the shop's spans, and spans whose texts are all hostile."""
    with engines.embedded(engine_dir) as store:
        lines = b"\n".join(orjson.dumps(row) for row in (*_shop(), *_hostile()))
        store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + lines.decode())
        yield store


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[ReceiverFacts]:
    """Yield facts about a receiver that has received nothing. Tests replace some of them."""
    with ThreadPoolExecutor(2) as pool:
        yield facts_of(tmp_path, pool)


@pytest.fixture
async def start_site(facts: ReceiverFacts) -> AsyncIterator[StartSite]:
    """Return a function that starts a site with a source of spans."""
    clients: list[Client] = []

    async def start(source: Source) -> Client:
        application = web.Application()
        Site(lambda _request: source, facts).add_to(application.router)
        client = TestClient(TestServer(application))
        await client.start_server()
        clients.append(client)
        return client

    yield start
    for client in clients:
        await client.close()


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartReceiver]:
    """Return a function that starts the API and the pages with users, over a store that is not reachable."""
    async with AsyncExitStack() as stack:

        async def enter(access: Access = USERS, token: str = "") -> Client:
            return await stack.enter_async_context(receiver_with(tmp_path, access, token))

        yield enter


@asynccontextmanager
async def site_over(store: Store, directory: Path, facts: ReceiverFacts) -> AsyncIterator[Client]:
    """Start the API and the pages over a store."""
    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(QUERIES_MAX) as stream_pool:
        space = SpoolSpace(directory, 0, lambda: 0)
        api = Api(store, str, dict, dict, dict, pool, stream_pool, space)
        pages = Site(lambda request: ApiSource(api, request), facts)
        async with TestClient(TestServer(api.application(pages))) as client:
            yield client


@pytest.fixture
async def site(shop_store: Store, tmp_path: Path, facts: ReceiverFacts) -> AsyncIterator[Client]:
    """Return a client of the API and the pages over the shop's spans."""
    async with site_over(shop_store, tmp_path, facts) as client:
        yield client
