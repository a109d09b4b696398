"""Tests of the emulated shop: traces across services, a release that is worse, builds, and joined events."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.cases import each_case
from trace_drain_testing.emulator.drains_traffic import ServiceSpans, Traffic
from trace_drain_testing.load.traffic import Span
from trace_drain_testing.shop.shop import (
    FAILED_BUILD,
    RELEASE_A,
    RELEASE_B,
    Shop,
    ShopRequest,
    ShopRunner,
    routes,
)
from trace_drain_testing.shop.shop_events import Event
from trace_drain_testing.shop.shop_traffic import WORSE_OPERATION, CustomerRequest, shop_request

NOW_S = 1_790_000_000
HOUR = ShopRequest(requests_per_s=0.5, history_s=3_600)


@dataclass
class Recorder:
    """A platform that records all calls of the shop."""

    clock_s: float = NOW_S
    projects: dict[str, str] = field(default_factory=dict)
    deployments: dict[str, str] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    traffic: list[Traffic] = field(default_factory=list)

    def add_project(self, project: str, name: str) -> None:
        self.projects[project] = name

    def add_deployment(self, deployment: str, project: str, url: str) -> None:  # noqa: ARG002 - the shop's protocol
        self.deployments[deployment] = project

    def add_events(self, deployment: str, events: Sequence[Event]) -> None:
        assert deployment in self.deployments
        self.events[deployment] += events

    async def forward(self, traffic: Traffic) -> None:
        self.traffic.append(traffic)

    def now_s(self) -> float:
        return self.clock_s

    async def sleep(self, seconds: float) -> None:
        self.clock_s += seconds
        # Other tasks run in the meantime, as with a real clock.
        await asyncio.sleep(0)

    def spans(self) -> list[tuple[ServiceSpans, bytes, int, Span]]:
        """Return source, trace id, base time and span of all spans."""
        return [
            (source, traffic.half + span.trace_end, traffic.base_ns, span)
            for traffic in self.traffic
            for source in traffic.sources
            for span in source.resource.spans
        ]

    def durations_ms(self, deployment: str, name: str) -> list[float]:
        return [
            (span.end_ns - span.start_ns) / 1e6
            for source, _, _, span in self.spans()
            if source.deployment == deployment and span.name == name
        ]


@pytest.fixture(scope="module")
def history() -> Recorder:
    """Return the platform after an hour of the shop. Tests only read it."""
    platform = Recorder()
    asyncio.run(Shop(platform, HOUR).send_history())
    return platform


def some_requests(*, is_worse: bool) -> list[CustomerRequest]:
    dice = Random(1)
    return [shop_request(dice, 0, is_worse=is_worse) for _ in range(2_000)]


async def test_same_seed_generates_the_same_traffic_and_events() -> None:
    same, again, other = Recorder(), Recorder(), Recorder()
    for platform, seed in ((same, 1), (again, 1), (other, 2)):
        await Shop(platform, ShopRequest(0.5, 600, seed)).send_history()

    assert same.traffic == again.traffic
    assert same.events == again.events
    assert same.traffic != other.traffic


def test_traces_cross_three_services_and_two_projects(history: Recorder) -> None:
    services, projects = defaultdict(set), defaultdict(set)
    for source, trace_id, _, _ in history.spans():
        services[trace_id].add(source.resource.service)
        projects[trace_id].add(source.project)

    assert {"web", "cart", "payments"} in services.values()
    assert all(crossed == {"prj_shop", "prj_backend"} for crossed in projects.values())
    assert history.projects == {"prj_shop": "shop", "prj_backend": "backend"}


def test_each_trace_is_one_tree_whose_children_run_within_their_parent(history: Recorder) -> None:
    traces: dict[bytes, list[Span]] = defaultdict(list)
    for _, trace_id, _, span in history.spans():
        traces[trace_id].append(span)

    for spans in traces.values():
        by_id = {span.span_id: span for span in spans}
        assert len(by_id) == len(spans)
        assert [span.parent_id for span in spans].count(b"") == 1
        for span in spans:
            if span.parent_id:
                parent = by_id[span.parent_id]
                assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns
    assert len(traces) == 1_800


def test_release_b_is_slower_and_fails_in_one_operation_only(history: Recorder) -> None:
    slowdown = {
        name: median(history.durations_ms(RELEASE_B.deployment, name))
        / median(history.durations_ms(RELEASE_A.deployment, name))
        for name in (WORSE_OPERATION, "call cart", "call payments", "GET /cart")
    }

    assert slowdown[WORSE_OPERATION] > 10
    assert all(ratio < 1.5 for name, ratio in slowdown.items() if name != WORSE_OPERATION)
    good, worse = some_requests(is_worse=False), some_requests(is_worse=True)
    assert sum(bool(request.failure) for request in worse) > 20
    assert sum(bool(request.failure) for request in good) < 10
    failed = {span.name for request in worse for span in request.spans["web"] if span.status == 2}
    assert failed == {WORSE_OPERATION, "POST /checkout"}
    request = next(request for request in worse if request.failure)
    root = request.spans["web"][-1]
    assert root.attributes["http.response.status_code"] == 500
    assert root.event is not None
    assert root.event.attributes["exception.message"] == root.message == request.failure


def test_p23_p24_request_event_has_the_stated_types_and_the_ids_of_its_root_span(history: Recorder) -> None:
    roots = {
        str(span.attributes["platform.requestId"]): (span, base_ns)
        for source, _, base_ns, span in history.spans()
        if source.deployment == RELEASE_B.deployment and not span.parent_id
    }
    requests = [event for event in history.events[RELEASE_B.deployment] if event["type"] == "request"]

    assert len(requests) == len(roots)
    for event in requests:
        payload, proxy = event["payload"], event["payload"]["proxy"]
        root, base_ns = roots[payload["requestId"]]
        assert proxy["platformId"] == root.attributes["platform.id"]
        assert payload["statusCode"] == root.attributes["http.response.status_code"]
        assert proxy["path"] == root.attributes["url.path"]
        assert event["created"] == (base_ns + root.start_ns) // 10**6
        types = [type(proxy[name]) for name in ("userAgent", "responseByteSize")]
        assert [*types, type(payload["serial"]), type(event["created"])] == [list, int, str, int]


def test_p26_builds_end_ready_or_with_an_error_and_its_log(history: Recorder) -> None:
    states = {
        deployment: [
            event["payload"]["info"]["readyState"] for event in events if event["type"] == "deployment-state"
        ]
        for deployment, events in history.events.items()
    }
    texts = [event["payload"]["text"] for event in history.events[FAILED_BUILD]]

    assert states[RELEASE_B.deployment] == ["QUEUED", "INITIALIZING", "BUILDING", "READY"]
    assert states[FAILED_BUILD][-1] == "ERROR"
    assert any("Type error" in text for text in texts)
    assert not any(event["type"] == "request" for event in history.events[FAILED_BUILD])
    warnings = [
        event for event in history.events[RELEASE_B.deployment] if WORSE_OPERATION in event["payload"]["text"]
    ]
    assert warnings


def test_serials_of_events_rise_and_ids_are_unique(history: Recorder) -> None:
    for events in history.events.values():
        serials = [event["payload"]["serial"] for event in events]
        assert serials == sorted(set(serials))
    ids = [event["payload"]["id"] for events in history.events.values() for event in events]
    assert len(set(ids)) == len(ids)


async def test_live_requests_follow_the_history_without_gap_or_repeat() -> None:
    platform = Recorder()
    shop = Shop(platform, ShopRequest(requests_per_s=3, history_s=60))
    await shop.send_history()
    for _ in range(10):
        await shop.send_next()

    starts = sorted(base_ns + span.start_ns for _, _, base_ns, span in platform.spans() if not span.parent_id)
    gaps = {after - before for before, after in itertools.pairwise(starts)}
    assert gaps == {10**9 // 3}
    assert all(base_ns + span.end_ns <= platform.clock_s * 10**9 for _, _, base_ns, span in platform.spans())


@pytest.fixture
async def control() -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    runner = ShopRunner(Recorder())
    application = web.Application()
    application.add_routes(routes(runner, "/control"))
    async with TestServer(application) as server, aiohttp.ClientSession() as session:
        yield str(server.make_url("/control/shop")), session
        await runner.stop()


async def test_control_api_starts_shows_and_stops_the_shop(
    control: tuple[str, aiohttp.ClientSession],
) -> None:
    url, session = control

    async with session.post(url, json={"requests_per_s": 1, "history_s": 60}) as answer:
        assert (await answer.json())["is_running"]
    async with session.post(url) as answer:
        assert answer.status == 409
    async with session.delete(url) as answer:
        assert await answer.json() == {"is_running": False}
    async with session.get(url) as answer:
        assert await answer.json() == {"is_running": False}


@each_case("body", [{"requests_per_s": 0}, {"history_s": -1}, {"rate": 1}, []])
async def test_control_api_refuses_wrong_parameters(
    control: tuple[str, aiohttp.ClientSession], body: object
) -> None:
    url, session = control

    async with session.post(url, json=body) as answer:
        assert answer.status == 400
