"""The emulator as an application: platform API, gateway, control API and control page on one address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import msgspec
from aiohttp import web

from receiver.http.origin import OriginCheck
from trace_drain_testing.emulator import api, control, control_page, drains_control
from trace_drain_testing.emulator.deployments import EVENTS_MAX
from trace_drain_testing.emulator.drains_traffic import Traffic
from trace_drain_testing.emulator.gateway import gateway
from trace_drain_testing.emulator.platform import Platform
from trace_drain_testing.shop import shop
from trace_drain_testing.shop.shop_events import Event

API, GATEWAY, CONTROL = "/platform", "/gateway", "/control"
"""Path of each part."""


class Facts(msgspec.Struct, frozen=True):
    """Addresses and credentials for clients, as in `platform.json`."""

    base_url: str
    gateway_url: str
    control_url: str
    token: str
    api_key: str
    client_id: str
    client_secret: str
    team_id: str
    webhook_secret: str
    install_url: str


def facts_of(platform: Platform, url: str) -> Facts:
    return Facts(
        base_url=url + API,
        gateway_url=url + GATEWAY,
        control_url=url + CONTROL,
        token=platform.first_token,
        api_key=platform.secrets.api_key,
        client_id=platform.secrets.client_id,
        client_secret=platform.secrets.client_secret,
        team_id=platform.team_id,
        webhook_secret=platform.webhooks.secret,
        install_url=f"{url}{CONTROL}/install",
    )


class EmulatedShopPlatform:
    """Implements `shop.ShopPlatform` with the emulated platform."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def add_project(self, project: str, name: str) -> None:
        if project not in self._platform.projects:
            self._platform.add_project(project, name)

    def add_deployment(self, deployment: str, project: str, url: str) -> None:
        if deployment not in self._platform.deployments:
            self._platform.add_deployment(deployment, project, url)

    def add_events(self, deployment: str, events: Sequence[Event]) -> None:
        """Add events. The last event with a state sets the state of the deployment."""
        emulated = self._platform.deployment(deployment)
        if len(emulated.events) + len(events) > EVENTS_MAX:
            # A shop that runs for days continues without events.
            return
        emulated.add(events, self._platform.clock.now_ms())
        for event in events:
            if event["type"] == "deployment-state":
                emulated.state = event["payload"]["info"]["readyState"]
        emulated.changed.notify()

    async def forward(self, traffic: Traffic) -> None:
        await self._platform.drains.forward(traffic)

    def now_s(self) -> float:
        return self._platform.clock.now_s()

    async def sleep(self, seconds: float) -> None:
        await self._platform.clock.sleep(seconds)


def application(platform: Platform) -> web.Application:
    async def to_control_page(_request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(CONTROL)

    check = OriginCheck("emulator", (), allows_short_names=True)
    made = web.Application(middlewares=[check.middleware], client_max_size=gateway.REQUEST_BYTES_MAX)
    shop_runner = shop.ShopRunner(EmulatedShopPlatform(platform))
    made.add_routes(
        [
            web.get("/", to_control_page),
            *control_page.routes(platform, CONTROL),
            *control.routes(platform, CONTROL),
            *drains_control.routes(platform.drains, CONTROL),
            *gateway.routes(platform.gateway, GATEWAY, CONTROL),
            *shop.routes(shop_runner, CONTROL),
            *api.routes(platform, API),
        ]
    )

    async def stop(_application: web.Application) -> None:
        platform.stop()

    async def background(_application: web.Application) -> AsyncIterator[None]:
        sending = asyncio.create_task(platform.webhooks.run())
        yield
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        await shop_runner.stop()
        await platform.webhooks.close()
        await platform.drains.close()

    made.on_shutdown.append(stop)
    made.cleanup_ctx.append(background)
    return made
