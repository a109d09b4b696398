"""The shop's access to the emulated platform: its projects, deployments, events, drains and clock."""

from __future__ import annotations

from collections.abc import Sequence

from trace_drain_testing.emulator.deployments import EVENTS_MAX
from trace_drain_testing.emulator.drains_traffic import Traffic
from trace_drain_testing.emulator.platform import Platform
from trace_drain_testing.shop.shop_events import Event


class ShopPlatform:
    """Adapter from the emulated platform to the shop's protocol."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def add_project(self, project: str, name: str) -> None:
        """Add a project, unless an earlier shop has added it."""
        if project not in self._platform.projects:
            self._platform.add_project(project, name)

    def add_deployment(self, deployment: str, project: str, url: str) -> None:
        """Add a deployment, unless an earlier shop has added it."""
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
        """Send spans to the drains."""
        await self._platform.drains.forward(traffic)

    def now_s(self) -> float:
        """Return the platform's time."""
        return self._platform.clock.now_s()

    async def sleep(self, seconds: float) -> None:
        """Wait by the platform's clock."""
        await self._platform.clock.sleep(seconds)
