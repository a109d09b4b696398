"""Web shop on the emulated platform: its deployments, an hour of history, and live requests.

Invariant: the same seed and start time generate the same requests, spans and events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Any, Protocol

import msgspec
from aiohttp import web

from trace_drain_testing.emulator.drains_traffic import Traffic
from trace_drain_testing.emulator.refusals import answering, conflict, decoded
from trace_drain_testing.shop.shop_events import HOST, Event, EventWriter
from trace_drain_testing.shop.shop_traffic import (
    BACKEND_PROJECT,
    MS_NS,
    WEB_PROJECT,
    CustomerRequest,
    Release,
    shop_request,
    traffic_of,
)

RELEASE_A, RELEASE_B = Release("dpl_shop_a"), Release("dpl_shop_b", is_worse=True)
BACKEND = "dpl_backend_1"
FAILED_BUILD = "dpl_shop_c"
PROJECT_NAMES = {WEB_PROJECT: "shop", BACKEND_PROJECT: "backend"}
B_SHARE = 1 / 3
"""Fraction of the history in which release B serves requests."""
BUILD_MS = 20_000
"""Time between the start of the build of a release and its first request."""
BATCH = 100
"""Number of requests in a delivery."""
TICK_S = 1.0
SECOND_NS = 10**9
AGE_NS = 2 * SECOND_NS
"""Age of the newest requests when they are sent, so that they have ended by then."""


class ShopPlatform(Protocol):
    """The parts of the platform that the shop uses."""

    def add_project(self, project: str, name: str) -> None:
        """Add a project, unless it exists."""

    def add_deployment(self, deployment: str, project: str, url: str) -> None:
        """Add a deployment, unless it exists."""

    def add_events(self, deployment: str, events: Sequence[Event]) -> None:
        """Add events; a deployment's state follows its events of type `deployment-state`."""

    async def forward(self, traffic: Traffic) -> None:
        """Send spans to the drains."""

    def now_s(self) -> float:
        """Return the platform's time."""

    async def sleep(self, seconds: float) -> None:
        """Wait by the platform's clock."""


class ShopRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    requests_per_s: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 2.0
    history_s: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = 3_600
    seed: int = 1


@dataclass
class Shop:
    platform: ShopPlatform
    parameters: ShopRequest
    sent_requests: int = 0
    is_live: bool = False
    """Whether the history is complete."""
    _end_ns: int = 0
    """Time up to which requests are sent."""
    _writers: dict[str, EventWriter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._dice = Random(self.parameters.seed)  # noqa: S311 - test data

    async def run(self) -> None:
        """Send the history, then new requests until cancelled."""
        await self.send_history()
        while True:
            await self.send_next()

    async def send_next(self) -> None:
        """Wait for a second, and send the requests since the last ones."""
        await self.platform.sleep(TICK_S)
        begin_ns, self._end_ns = self._end_ns, self._newest_ns()
        await self._send(RELEASE_B, begin_ns, self._end_ns)

    def _newest_ns(self) -> int:
        return int(self.platform.now_s() * SECOND_NS) - AGE_NS

    async def send_history(self) -> None:
        """Create projects and deployments, and send the history."""
        self._end_ns = end_ns = self._newest_ns()
        begin_ns = end_ns - self.parameters.history_s * SECOND_NS
        change_ns = end_ns - int(self.parameters.history_s * B_SHARE) * SECOND_NS
        for project, name in PROJECT_NAMES.items():
            self.platform.add_project(project, name)
        self._deploy(Release(BACKEND), BACKEND_PROJECT, begin_ns)
        self._deploy(RELEASE_A, WEB_PROJECT, begin_ns)
        await self._send(RELEASE_A, begin_ns, change_ns)
        self._deploy(RELEASE_B, WEB_PROJECT, change_ns)
        await self._send(RELEASE_B, change_ns, end_ns)
        self._deploy(Release(FAILED_BUILD), WEB_PROJECT, end_ns, has_failed=True)
        self.is_live = True

    def _deploy(
        self, release: Release, project: str, first_request_ns: int, *, has_failed: bool = False
    ) -> None:
        deployment = release.deployment
        writer = EventWriter(deployment, first_request_ns // MS_NS - BUILD_MS)
        self._writers[deployment] = writer
        url = f"{deployment.removeprefix('dpl_').replace('_', '-')}.{HOST}"
        self.platform.add_deployment(deployment, project, url)
        events = writer.build(is_worse=release.is_worse, has_failed=has_failed)
        self.platform.add_events(deployment, list(events))

    async def _send(self, release: Release, begin_ns: int, end_ns: int) -> None:
        """Send the requests that begin within a time range."""
        step_ns = int(SECOND_NS / self.parameters.requests_per_s)
        # Aligned to absolute times, so that adjacent ranges neither repeat nor skip a request.
        starts_ns = range(-(-begin_ns // step_ns) * step_ns, end_ns, step_ns)
        for index in range(0, len(starts_ns), BATCH):
            await self._send_batch(release, starts_ns[index : index + BATCH])

    async def _send_batch(self, release: Release, starts_ns: Sequence[int]) -> None:
        base_ns = starts_ns[0]
        requests = [
            shop_request(self._dice, start_ns - base_ns, is_worse=release.is_worse) for start_ns in starts_ns
        ]
        deployment_of = {WEB_PROJECT: release.deployment, BACKEND_PROJECT: BACKEND}
        traffic = traffic_of(requests, deployment_of, self._dice.randbytes(8), base_ns)
        self.platform.add_events(release.deployment, self._events_of(release, requests, base_ns))
        await self.platform.forward(traffic)
        self.sent_requests += len(requests)

    def _events_of(self, release: Release, requests: Sequence[CustomerRequest], base_ns: int) -> list[Event]:
        writer = self._writers[release.deployment]
        return [event for request in requests for event in writer.request(request, base_ns)]


@dataclass
class ShopRunner:
    platform: ShopPlatform
    shop: Shop | None = None
    _task: asyncio.Task[None] | None = None

    def start(self, parameters: ShopRequest) -> Shop:
        self.shop = Shop(self.platform, parameters)
        self._task = asyncio.get_running_loop().create_task(self.shop.run())
        return self.shop

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._task = self.shop = None

    def summary(self) -> dict[str, Any]:
        """Return the state of the shop. Raises the error that ended it."""
        if self._task is not None and self._task.done():
            self._task.result()
        if self.shop is None:
            return {"is_running": False}
        return {
            "is_running": True,
            "is_live": self.shop.is_live,
            "sent_requests": self.shop.sent_requests,
            "deployments": {"good": RELEASE_A.deployment, "worse": RELEASE_B.deployment},
            "failed_build": FAILED_BUILD,
            "project": WEB_PROJECT,
        }


def routes(runner: ShopRunner, control: str) -> list[web.RouteDef]:
    """Return the routes below `control` that start, show and stop the shop."""

    async def start(request: web.Request) -> web.StreamResponse:
        parameters = decoded(await request.read() or b"{}", ShopRequest)
        if runner.shop is not None:
            raise conflict("the shop runs already; DELETE stops it")
        runner.start(parameters)
        return web.json_response(runner.summary())

    async def show(_request: web.Request) -> web.StreamResponse:
        return web.json_response(runner.summary())

    async def stop(_request: web.Request) -> web.StreamResponse:
        await runner.stop()
        return web.json_response(runner.summary())

    path = f"{control}/shop"
    return [web.post(path, answering(start)), web.get(path, show), web.delete(path, stop)]
