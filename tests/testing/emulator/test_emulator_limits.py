"""Tests of the emulator's limits, and of retries by a real clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.emulator import REDIRECT_URI, RunningEmulator, emulator
from tests.support.webhook_receiver import webhook_receiver
from trace_drain_testing.emulator import deployments, installations, webhooks
from trace_drain_testing.emulator import platform as platforms
from trace_drain_testing.emulator.clock import Clock


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[RunningEmulator]:
    async with emulator(tmp_path) as running:
        yield running


async def refused(platform: RunningEmulator, path: str, body: object) -> tuple[int, str]:
    async with platform.session.post(platform.facts["control_url"] + path, json=body) as answer:
        return answer.status, (await answer.json())["error"]["message"]


async def test_deployment_has_a_maximum_of_events(
    platform: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployments, "EVENTS_MAX", 2)
    deployment = await platform.deployment()
    path = f"/deployments/{deployment}/events"
    await platform.control("POST", path, [{}, {}])

    assert await refused(platform, path, [{}]) == (400, "the deployment would have over 2 events")


async def test_projects_deployments_and_installations_have_a_maximum(
    platform: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platforms, "OBJECTS_MAX", 1)
    project = next(iter(platform.state.projects))

    for path, body in (
        ("/projects", {"name": "x"}),
        ("/deployments", {"project": project}),
        ("/installations", {"redirect_uri": REDIRECT_URI}),
    ):
        assert (await refused(platform, path, body))[0] == 409


async def test_oldest_webhooks_and_emails_are_dropped(
    platform: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "KEPT_MAX", 4)
    for number in range(5):
        body = {"type": f"type.{number}", "url": "http://127.0.0.1:1/"}
        await platform.control("POST", "/webhooks", body)
    installation = next(iter(platform.state.installations.by_id))
    for _ in range(installations.EMAILS_MAX + 1):
        for action in ("disable", "transfer"):
            target = platform.state.installations.find(installation)
            getattr(platform.state.installations, action)(target)

    state = await platform.control("GET", "/state")
    assert [each["type"] for each in state["webhooks"]] == ["type.2", "type.3", "type.4"]
    assert len(state["emails"]) == installations.EMAILS_MAX


async def test_real_clock_retries_a_webhook_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "RETRY_S_FIRST", 0.01)
    clock = Clock(time.time(), is_manual=False)
    async with webhook_receiver() as receiver, emulator(tmp_path, clock=clock) as platform:
        receiver.statuses = [503]
        await platform.control("POST", "/webhooks", {"type": "project.created", "url": receiver.url})
        while len(receiver.requests) == 1:  # noqa: ASYNC110 - another task sends it
            await asyncio.sleep(0.01)

    assert receiver.documents[0] == receiver.documents[1]
