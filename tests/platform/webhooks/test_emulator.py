"""Webhooks and the life cycle against the emulator of the platform, in every form that is left open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from receiver.platform.installations.installations import Installations
from receiver.platform.installations.lifecycle import LifeCycle, probe
from receiver.platform.installations.platform_records import records_in
from receiver.platform.installations.projects import Projects
from receiver.platform.installations.records import Installation, StateChange
from receiver.platform.webhooks.changes import Applier
from receiver.platform.webhooks.inbox import Inbox
from receiver.settings import Platform, Webhook
from tests.support.emulator import RunningEmulator, emulator
from tests.support.intake import SPAN_BODY, Intake, on_uvloop
from tests.support.webhooks import PATH, SETTINGS, webhook_intake

DAY_S = 86_400
SHAPES = (
    ("common", "x-platform-signature"),
    ("extra", "x-signature"),
    ("flat", "x-platform-signature"),
    ("iso-time", "x-platform-signature"),
)


@dataclass
class Connected:
    """A receiver whose webhook route is known to an emulator, with one installation."""

    platform: RunningEmulator
    intake: Intake
    projects: Projects
    installations: Installations
    applier: Applier
    cycle: LifeCycle
    id: str
    token: str
    clock: list[float]
    """Seconds by which the clocks of the receiver are ahead."""

    async def control(self, path: str, body: object = None, method: str = "POST") -> Any:  # noqa: ANN401 - JSON
        return await self.platform.control(method, path, {} if body is None else body)

    async def advance(self, seconds: float) -> None:
        self.clock[0] += seconds
        await self.control("/clock", {"advance_s": seconds})

    async def delivered(self, count: int) -> None:
        """Wait for answers to this many webhooks, and apply them."""
        while sum(each.outcome == "delivered" for each in self.platform.state.webhooks.sent) < count:  # noqa: ASYNC110 - the test has a time-out
            await asyncio.sleep(0.01)
        self.applier.apply_waiting()

    async def probed(self) -> Installation:
        """Probe the installation when it is due, and return its record."""
        self.clock[0] += 7 * 3_600
        await asyncio.to_thread(self.cycle.probe_due)
        found = self.installations.find(self.id)
        assert found is not None
        return found


@asynccontextmanager
async def connected(directory: Path, **settings: Any) -> AsyncIterator[Connected]:  # noqa: ANN401 - of `Webhook`
    async with emulator(directory) as platform:
        known = (platform.facts["webhook_secret"],)
        limits: Webhook = msgspec.structs.replace(SETTINGS, **{"secrets": known, **settings})
        data = directory / "data"
        data.mkdir()
        async with webhook_intake(data, limits) as intake:
            url = f"http://127.0.0.1:{intake.port}{PATH}"
            made = await platform.install(webhook_url=url, scopes=["deployment:read"])
            _, answer = await platform.exchange(made["code"])
            clock = [0.0]
            records = records_in(data / "platform")
            changes = (StateChange("active", time.time()),)
            team = answer["team_id"]
            installation = Installation(id=made["id"], team_id=team, changes=changes)
            records.installations.add(installation, answer["access_token"])
            yield Connected(
                platform,
                intake,
                records.projects,
                records.installations,
                Applier(Inbox(data), records, time.time),
                LifeCycle(
                    records.installations,
                    partial(probe, Platform(base_url=platform.facts["base_url"])),
                    now_s=lambda: time.time() + clock[0],
                    monotonic_s=lambda: time.monotonic() + clock[0],
                ),
                made["id"],
                answer["access_token"],
                clock,
            )


@pytest.mark.parametrize(("shape", "header"), SHAPES)
@on_uvloop
async def test_p51_webhooks_of_every_form_have_the_same_effect(
    tmp_path: Path, shape: str, header: str
) -> None:
    async with connected(tmp_path, signature_header=header) as receiver:
        await receiver.control("/unstated", {"P51": shape, "P51-header": header})
        await receiver.control("/projects", {"id": "prj_new", "name": "web shop"})
        await receiver.delivered(1)
        assert receiver.projects.name("prj_new") == "web shop"

        await receiver.advance(60)
        await receiver.control("/projects/prj_new", method="DELETE")
        await receiver.delivered(2)
        await receiver.control(f"/installations/{receiver.id}/request-scopes", {"scopes": ["project:write"]})
        await receiver.control(f"/installations/{receiver.id}/confirm-scopes")
        await receiver.delivered(3)
        await receiver.control(f"/installations/{receiver.id}/remove")
        await receiver.delivered(4)

    removed = receiver.projects.find("prj_new")
    ended = receiver.installations.find(receiver.id)
    assert removed is not None
    assert removed.is_removed
    assert ended is not None
    assert (ended.state, receiver.installations.token(receiver.id)) == ("removed", "")
    assert receiver.applier.outcomes["unknown"] == 0
    assert receiver.intake.counted("webhooks", "200") == 4


@on_uvloop
async def test_p41_disabled_installation_receives_spans_and_webhooks_and_is_restored(tmp_path: Path) -> None:
    async with connected(tmp_path) as receiver:
        assert (await receiver.probed()).state == "active"
        await receiver.control(f"/installations/{receiver.id}/disable")
        disabled = await receiver.probed()
        assert disabled.state == "disabled"
        assert disabled.deleted_at_s is not None

        # Spans and the webhooks that are still sent are received.
        assert (await receiver.intake.post(SPAN_BODY)).status == 200
        await receiver.control("/projects", {"id": "prj_new", "name": "web shop"})
        await receiver.control(f"/installations/{receiver.id}/request-scopes", {"scopes": ["project:write"]})
        await receiver.control(f"/installations/{receiver.id}/confirm-scopes")
        await receiver.delivered(1)
        assert receiver.projects.name("prj_new") == "web shop"
        assert receiver.intake.counted("webhooks", "200") == 1
        assert receiver.installations.token(receiver.id) == receiver.token

        await receiver.control(f"/installations/{receiver.id}/transfer")
        restored = await receiver.probed()
        await receiver.advance(1)
        await receiver.delivered(2)

    assert restored.state == "active"
    assert restored.deleted_at_s is None


@on_uvloop
async def test_p42_deleted_installation_is_noticed_without_a_webhook(tmp_path: Path) -> None:
    async with connected(tmp_path) as receiver:
        await receiver.control(f"/installations/{receiver.id}/disable")
        assert (await receiver.probed()).state == "disabled"
        receiver.platform.state.webhooks.secret = "the webhook about it never arrives"
        await receiver.advance(31 * DAY_S)
        deleted = await receiver.probed()

    assert deleted.state == "deleted"
    assert receiver.installations.token(receiver.id) == ""


@on_uvloop
async def test_p40_failing_platform_changes_no_state(tmp_path: Path) -> None:
    async with connected(tmp_path) as receiver:
        for fault in ("api-500", "api-cut", "api-429"):
            await receiver.control("/faults", {"name": fault, "count": 1})
            assert (await receiver.probed()).state == "active", fault
