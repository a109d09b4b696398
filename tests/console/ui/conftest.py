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
from urllib.parse import quote, urlencode

import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from playwright.async_api import Browser, Page, ViewportSize

from receiver import transcode
from receiver.console.api.route import register
from receiver.console.api.source import Row, SourceWithSql
from receiver.console.ui import site as site_module
from receiver.console.ui.pages.table import PAGES
from receiver.console.ui.views.routes import ViewRoutes
from receiver.dead_letters.replay import Replayer
from receiver.engine.store import Store
from receiver.journal.quarantine import Body, QuarantineNote
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.platform.deployment_events.event_table import store_events
from receiver.platform.installations.platform_records import PlatformRecords
from receiver.platform.installations.records import State
from receiver.refusals import HourCount, Refusal, RefusalReport
from receiver.settings import Access, Settings, User
from tests.support import engines
from tests.support.access import USERS, receiver_with
from tests.support.api import api_over
from tests.support.browser import chromium, faultless_page
from tests.support.installations import T0_S, installation
from tests.support.receiver_facts import DeadLettersToRead, FactsOfTest, facts_of, site_of
from tests.support.segments import DIGEST_KEY
from tests.support.token_server import PlatformServer, platform_server

SECOND_ADMIN = User(name="ann", token="token of ann....", role="admin")
LOOPBACK = "http://127.0.0.1:"
WIDE = ViewportSize(width=1280, height=800)
Client = TestClient[web.Request, web.Application]
StartSite = Callable[[SourceWithSql], Awaitable[Client]]
StartReceiver = Callable[..., Awaitable[Client]]

FIRST_SPAN_S = int(time.time()) // 3_600 * 3_600 - 8 * 3_600
"""Start of an hour within the last day, at any time of the day: the pickers count the spans of 24 hours."""
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
"""The same texts as stored; they must stay text."""
HOSTILE_TRACE = "f" * 32
HUGE = "W" * 2**20
KEY_CHARS = 2**16
"""Longest key of an attribute that the receiver keeps."""
HUGE_TRACE = "d" * 32
"""Trace of a span whose texts all have a megabyte."""
# The receiver of these tests has no dead letter: `test_dead_letters.py` has one with hostile texts.
PAGE_URLS = tuple(
    re.sub(r"\{\w+\}", HOSTILE_TRACE, page.path) for page in PAGES.values() if page.name != "dead-letter"
)
"""Every page."""
FULLER_URLS = (
    "/services?service=web",
    f"/services?service={quote(HOSTILE[0])}&operation={quote(HOSTILE[0])}",
    "/map?focus=web&levels=2",
    "/sql?q=SELECT+*+FROM+otel_traces+WHERE+TraceId+LIKE+%27ff%25%27",
    "/sql?q=SELECT+SpanName,+count()+FROM+otel_traces+GROUP+BY+1+ORDER+BY+2",
    f"/trace/{HOSTILE_TRACE}/with/{1:032x}",
    "/search?filter=status%3Derror&facet=http.route&selection=service%3Dweb",
    "/compare?a=dpl_1&b=dpl_2",
    "/deployment/dpl_2",
    "/deployment/dpl_2?kind=build",
    f"/trace/{HUGE_TRACE}",
    f"/trace/{HOSTILE_TRACE}?show=flame",
    f"/trace/{HOSTILE_TRACE}?show=statistics&by=http.route",
    "/connect?new=production&host=traces.example",
    "/platform",
)
"""Pages with parameters that add content."""
URLS = PAGE_URLS + FULLER_URLS

REFUSAL = Refusal(reason="no_such_path", status=404, path=f"/{HOSTILE[0]}", error=HOSTILE[0] * 20)
HOSTILE_REFUSALS = RefusalReport((REFUSAL,), (HourCount(FIRST_SPAN_S, "", "no_such_path", 404, 12_345),))


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
    """Return a sealed segment with these resources, as the receiver writes it."""
    # Not orjson, which cannot write half of a surrogate pair.
    body = json.dumps({"resourceSpans": resources}).encode()
    delivery = Delivery(
        "shop", body, ContentKind.JSON, (), time.time_ns(), strict=False, body_bytes_max=len(body)
    )
    committed = transcode.commit(transcode.policy(Settings()), [delivery], SegmentId(1, 1), DIGEST_KEY)
    assert committed.rows == len(resources)
    return committed.record + transcode.footer(committed.record)


def _events() -> Iterator[Row]:
    """Yield the build of `dpl_2`, in which a step fails, and requests."""
    begin_ms = (FIRST_SPAN_S + 1_700) * 1_000
    texts = ("Cloning shop", "Running build", "Compiled", "error: cart.ts has no types", "Build finished")
    for index, text in enumerate(texts):
        info = {"type": "build", "name": "bld_1", "step": text.partition(" ")[0]}
        payload = {"id": f"line_{index}", "serial": str(index), "text": text, "info": info}
        yield {
            "type": "stderr" if "error" in text else "stdout",
            "created": begin_ms + index * 5_000,
            "payload": payload,
        }
    for index, state in enumerate(("QUEUED", "BUILDING", "READY")):
        payload = {"id": f"state_{index}", "info": {"readyState": state}}
        yield {"type": "deployment-state", "created": begin_ms + index * 15_000, "payload": payload}
    for index, status in enumerate((200, 503)):
        proxy = {"method": "GET", "host": "shop.example", "path": "/cart", "statusCode": status}
        payload = {"id": f"request_{index}", "requestId": f"req_{index}", "proxy": proxy}
        yield {"type": "request", "created": begin_ms + 200_000 + index, "payload": payload}


def _hostile_events() -> Iterator[Row]:
    """Yield an event for each hostile text and for a long one. All of its texts are that text."""
    for index, text in enumerate((*HOSTILE, HUGE)):
        info = dict.fromkeys(("type", "name", "entrypoint", "path", "step", "readyState"), text)
        proxy = dict.fromkeys(("method", "host", "path", "platformId", "clientIp"), text)
        payload = {
            "text": text,
            "requestId": text if index % 2 else "",
            "info": info,
            "proxy": proxy,
            text: text,
        }
        yield {
            "type": "stderr" if index % 3 else text,
            "created": FIRST_SPAN_S * 1_000 + index,
            "payload": payload,
        }


@pytest.fixture(scope="module")
def shop_store(engine_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Yield the embedded store with the shop's spans, and spans whose texts are all hostile."""
    segment = tmp_path_factory.mktemp("segments") / "hostile.native.lz4"
    segment.write_bytes(
        _segment(
            *(_hostile_resource(text, HOSTILE_TRACE, index + 1, index) for index, text in enumerate(SENT)),
            _hostile_resource(HUGE, HUGE_TRACE, 1, 0),
        )
    )
    with engines.embedded(engine_dir) as store:
        lines = b"\n".join(orjson.dumps(row) for row in _shop())
        store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + lines.decode())
        store.insert(segment, token="hostile", query_id="hostile")
        store_events(store, "prj_1", "dpl_2", _events(), FIRST_SPAN_S * 1_000)
        # The deployment of the page in `URLS`.
        store_events(store, HOSTILE[0], HOSTILE_TRACE, _hostile_events(), FIRST_SPAN_S * 1_000)
        yield store


def _hostile_body(directory: Path) -> Body:
    """Return a quarantined body with every hostile text."""
    content = "".join(HOSTILE).encode()
    path = directory / f"{HOSTILE_TRACE}.json.body"
    path.write_bytes(content)
    return Body(HOSTILE_TRACE, path, len(content), QuarantineNote(HOSTILE[0]))


def add_hostile_records(records: PlatformRecords) -> None:
    """Add an installation of each state and removed projects, one of them kept. All texts are hostile."""
    hostile = {"user_id": HUGE, "scopes": HOSTILE, "team_id": "".join(HOSTILE)}
    records.installations.add(installation("icfg_hostile", **hostile), "token")
    states: tuple[State, ...] = ("disabled", "removed")
    for state in states:
        records.installations.add(installation(f"icfg_{state}"), "token")
        records.installations.set_state(f"icfg_{state}", state, T0_S + 1)
    for at_s, text in enumerate(HOSTILE, 1):
        records.projects.created(text, text, at_s)
        records.projects.removed(text, at_s + 1)
    records.projects.revoke(HOSTILE[0])


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[FactsOfTest]:
    """Yield the facts of a receiver without deliveries. Tests replace some of them."""
    with ThreadPoolExecutor(2) as pool:
        facts = facts_of(tmp_path, pool)
        facts.refusals = lambda: HOSTILE_REFUSALS
        facts.dead_letters = DeadLettersToRead(lambda _name: _hostile_body(tmp_path), list)
        yield facts


@pytest.fixture
def whole_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send no frame first: a page that takes long has the status of its frame."""
    monkeypatch.setattr(site_module, "FRAME_AFTER_S", 600)


@asynccontextmanager
async def site_with(source: SourceWithSql, facts: FactsOfTest) -> AsyncIterator[Client]:
    """Start the pages with a source of spans."""
    application = web.Application()
    register(application, site_of(lambda _request: source, facts).routes())
    async with TestClient(TestServer(application)) as client:
        yield client


@pytest.fixture
async def start_site(facts: FactsOfTest) -> AsyncIterator[StartSite]:
    """Return a function that starts the pages with a source of spans."""
    async with AsyncExitStack() as stack:
        yield lambda source: stack.enter_async_context(site_with(source, facts))


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartReceiver]:
    """Return a function that starts the API and the pages with users, over an unreachable store."""
    async with AsyncExitStack() as stack:

        async def enter(access: Access = USERS, token: str = "", replayer: Replayer | None = None) -> Client:
            return await stack.enter_async_context(receiver_with(tmp_path, access, token, replayer=replayer))

        yield enter


@pytest.fixture
async def platform() -> AsyncIterator[PlatformServer]:
    """Yield a platform that exchanges codes for tokens."""
    async with platform_server() as server:
        yield server


@pytest.fixture
async def client(platform: PlatformServer, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a receiver whose users can install the platform's integration."""
    access = Access(user=(*USERS.user, SECOND_ADMIN))
    async with receiver_with(tmp_path, access, platform=platform.settings) as client:
        yield client


@asynccontextmanager
async def site_over(store: Store, facts: FactsOfTest) -> AsyncIterator[Client]:
    """Start the API and the pages over a store."""
    with api_over(store, allows_sql=True) as api:
        async with TestClient(
            TestServer(api.application(site_of(api.source, facts), ViewRoutes(facts)))
        ) as client:
            yield client


@pytest.fixture
async def site(shop_store: Store, facts: FactsOfTest, whole_pages: None) -> AsyncIterator[Client]:  # noqa: ARG001 - sends no frame
    """Return a client of the API and the pages over the shop's spans. It sends whole pages."""
    async with site_over(shop_store, facts) as client:
        yield client


# Tests in a browser share one browser and one site for each file, so they run in the loop of the file.


@pytest.fixture(scope="module")
def shop_facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FactsOfTest]:
    """Yield the facts of `shop`, with hostile records of the platform."""
    with ThreadPoolExecutor(2) as pool:
        facts = facts_of(tmp_path_factory.mktemp("site"), pool)
        add_hostile_records(facts.platform)
        yield facts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(shop_store: Store, shop_facts: FactsOfTest) -> AsyncIterator[Client]:
    """Yield one site over the shop's spans for all tests of a file."""
    async with site_over(shop_store, shop_facts) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Yield one browser for all tests of a file."""
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """Yield a page of the browser. An error of a script fails the test."""
    async with faultless_page(browser, LOOPBACK, viewport=WIDE) as page:
        yield page


def url_of(site: Client, path: str, **parameters: str) -> str:
    """Return the URL of a page, with the times of the shop."""
    separator = "&" if "?" in path else "?"
    return f"{LOOPBACK}{site.port}{path}{separator}{urlencode({**TIMES, **parameters})}"
