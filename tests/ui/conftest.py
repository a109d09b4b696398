"""A site over the embedded store with traces of a shop, in which deployment `dpl_2` is worse than `dpl_1`."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from playwright.async_api import Page

from receiver import transcode
from receiver.api.query_queue import QUERIES_MAX
from receiver.api.routes import Api
from receiver.api.source import ApiSource, Row, SourceWithSql
from receiver.api.spool import SpoolSpace
from receiver.dead_letters.replay import Replayer
from receiver.engine.store import Store
from receiver.journal.quarantine import Body, Note
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.settings import Access, Settings
from receiver.ui.facts import ReceiverFacts
from receiver.ui.pages import PAGES
from receiver.ui.site import Site
from tests.support import engines
from tests.support.access import USERS, receiver_with
from tests.support.browser import CHROMIUM, chromium, faultless_page
from tests.support.receiver_facts import facts_of
from tests.support.segments import DIGEST_KEY

LOOPBACK = "http://127.0.0.1:"
Client = TestClient[web.Request, web.Application]
StartSite = Callable[[SourceWithSql], Awaitable[Client]]
StartReceiver = Callable[..., Awaitable[Client]]

FIRST_SPAN_S = int(time.time()) // 3_600 * 3_600 - 8 * 3_600
"""A full hour within the last day, at any time of the day: the pickers count the spans of 24 hours."""
TIMES = {
    "since": f"{datetime.fromtimestamp(FIRST_SPAN_S, UTC):%FT%T.000Z}",
    "until": f"{datetime.fromtimestamp(FIRST_SPAN_S + 3_600, UTC):%FT%T.000Z}",
}
"""The hour of all spans, as parameters of a page, in the form of the links on pages."""
SENT = (
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
    "';alert(1)//`${alert(1)}`",
    "<!-- </textarea></script><style>*{display:none}</style>",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "+1;-1\t=1",
    "${{<%[%'\"}}%\\.",
    "'; DROP TABLE otel_traces; --",
    "a\0b\r\nc\u2028d",
    "half of \ud83d a pair",
    "👩‍👩‍👧‍👦🏳️‍🌈 e\u0301\u0489\u0489\u0489",
    "word" * 100,
    "%00%2f../../etc/passwd",
)
"""Texts of senders, as they are sent."""
HOSTILE = tuple(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in SENT)
"""The same texts as they are stored; they must stay text."""
HOSTILE_TRACE = "f" * 32
HUGE = "W" * 2**20
KEY_CHARS = 2**16
"""Longest key of an attribute that the receiver keeps."""
HUGE_TRACE = "d" * 32
"""Trace of a span whose texts all have a megabyte."""
URLS = (
    # The receiver of these tests has no dead letter: `test_dead_letters.py` has one with hostile texts.
    *(re.sub(r"\{\w+\}", HOSTILE_TRACE, page.path) for page in PAGES.values() if page.name != "dead-letter"),
    "/services?service=web",
    f"/services?service={quote(HOSTILE[0])}&operation={quote(HOSTILE[0])}",
    "/map?focus=web&levels=2",
    "/sql?q=SELECT+*+FROM+otel_traces+WHERE+TraceId+LIKE+%27ff%25%27",
    "/sql?q=SELECT+SpanName,+count()+FROM+otel_traces+GROUP+BY+1+ORDER+BY+2",
    f"/trace/{HOSTILE_TRACE}/with/{1:032x}",
    "/search?q=status%3Derror&facet=http.route&selection=service%3Dweb",
    "/compare?a=dpl_1&b=dpl_2",
    f"/trace/{HUGE_TRACE}",
)
"""Every page, and pages whose parameters make them show more."""


def _span(number: int, name: str, service: str, **more: object) -> Row:
    start_s = FIRST_SPAN_S + number % 3_600
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


def _attributes(**texts: str) -> list[Row]:
    return [{"key": key, "value": {"stringValue": text}} for key, text in texts.items()]


def _hostile_resource(text: str, trace_id: str, number: int, parent: int) -> Row:
    """Return a resource with a span. All of its texts are `text`."""
    key, start_ns = text[:KEY_CHARS], (FIRST_SPAN_S + 3_000) * 10**9
    resource = _attributes(
        **{"service.name": text, "platform.projectId": text, "platform.deploymentId": text, key: text}
    )
    failure = _attributes(**{"exception.type": text, "exception.message": text, key: text})
    span = {
        "traceId": trace_id,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": text,
        "kind": 2,
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(start_ns + 10**8),
        "status": {"code": 2, "message": text},
        "attributes": _attributes(**{key: text, "http.route": text}),
        "events": [{"timeUnixNano": str(start_ns), "name": text, "attributes": failure}],
        "links": [{"traceId": trace_id, "spanId": f"{number:016x}", "attributes": failure}],
    }
    scope = {"name": text, "version": text}
    return {"resource": {"attributes": resource}, "scopeSpans": [{"scope": scope, "spans": [span]}]}


def _segment(*resources: Row) -> bytes:
    """Return a sealed segment with these resources, as the receiver makes it of a delivery."""
    # Not orjson, which writes no half of a surrogate pair.
    body = json.dumps({"resourceSpans": resources}).encode()
    delivery = Delivery(
        "shop", body, ContentKind.JSON, (), time.time_ns(), strict=False, body_bytes_max=len(body)
    )
    committed = transcode.commit(transcode.policy(Settings()), [delivery], SegmentId(1, 1), DIGEST_KEY)
    assert committed.rows == len(resources)
    return committed.record + transcode.footer(committed.record)


@pytest.fixture(scope="module")
def shop_store(engine_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Yield the embedded store with the shop's spans, and spans whose texts are all hostile."""
    segment = tmp_path_factory.mktemp("segments") / "hostile.native.lz4"
    segment.write_bytes(
        _segment(
            *(_hostile_resource(text, HOSTILE_TRACE, place + 1, place) for place, text in enumerate(SENT)),
            _hostile_resource(HUGE, HUGE_TRACE, 1, 0),
        )
    )
    with engines.embedded(engine_dir) as store:
        lines = b"\n".join(orjson.dumps(row) for row in _shop())
        store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + lines.decode())
        store.insert(segment, token="hostile", query_id="hostile")
        yield store


def _hostile_body(directory: Path) -> Body:
    """Return a quarantined body with every hostile text."""
    content = "".join(HOSTILE).encode()
    path = directory / f"{HOSTILE_TRACE}.json.body"
    path.write_bytes(content)
    return Body(HOSTILE_TRACE, path, len(content), Note(HOSTILE[0]))


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[ReceiverFacts]:
    """Yield facts about a receiver that has received nothing. Tests replace some of them."""
    with ThreadPoolExecutor(2) as pool:
        facts = facts_of(tmp_path, pool)
        facts.find_dead_letter = lambda _name: _hostile_body(tmp_path)
        yield facts


@pytest.fixture
async def start_site(facts: ReceiverFacts) -> AsyncIterator[StartSite]:
    """Return a function that starts a site with a source of spans."""
    clients: list[Client] = []

    async def start(source: SourceWithSql) -> Client:
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

        async def enter(access: Access = USERS, token: str = "", replayer: Replayer | None = None) -> Client:
            return await stack.enter_async_context(receiver_with(tmp_path, access, token, replayer=replayer))

        yield enter


@asynccontextmanager
async def site_over(store: Store, directory: Path, facts: ReceiverFacts) -> AsyncIterator[Client]:
    """Start the API and the pages over a store."""
    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(QUERIES_MAX) as stream_pool:
        space = SpoolSpace(directory, 0, lambda: 0)
        api = Api(store, str, dict, dict, dict, pool, stream_pool, space, allows_sql=True)
        pages = Site(lambda request: ApiSource(api, request), facts)
        async with TestClient(TestServer(api.application(pages))) as client:
            yield client


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """Yield a page of a browser. An error of a script fails the test."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    viewport = {"width": 1280, "height": 800}
    async with chromium() as browser, faultless_page(browser, LOOPBACK, viewport=viewport) as page:
        yield page


@pytest.fixture
async def site(shop_store: Store, tmp_path: Path, facts: ReceiverFacts) -> AsyncIterator[Client]:
    """Return a client of the API and the pages over the shop's spans."""
    async with site_over(shop_store, tmp_path, facts) as client:
        yield client
