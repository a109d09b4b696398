"""Tests of deployment events: the array, and followed streams in every form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.emulator import RunningEmulator, emulator


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[RunningEmulator]:
    async with emulator(tmp_path) as running:
        yield running


async def test_p20_events_are_an_array(platform: RunningEmulator) -> None:
    deployment = await platform.deployment()
    await platform.control("POST", f"/deployments/{deployment}/events", [{"type": "stdout"}])

    path = f"/v3/deployments/{deployment}/events?teamId={platform.facts['team_id']}"
    status, events = await platform.call("GET", path)

    assert status == 200
    assert [event["type"] for event in events] == ["stdout"]
