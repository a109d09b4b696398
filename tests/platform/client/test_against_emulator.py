"""The client of the API against the emulator: with every shape of an answer, and every fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from receiver.platform.client import errors
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.event import Event
from receiver.platform.client.events import EventQuery, events, follow
from receiver.platform.client.microfrontends import update_group
from receiver.platform.client.oauth import exchange
from tests.support.cases import each_case
from tests.support.emulator import REDIRECT_URI, RunningEmulator, emulator
from tests.support.platform_events import no_sleep
from trace_drain_testing.emulator.switches import UNSTATED

SHAPES = [(rule, shape) for rule, shapes in UNSTATED.items() for shape in shapes]


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[RunningEmulator]:
    async with emulator(tmp_path) as running:
        yield running


def client_of(platform: RunningEmulator) -> PlatformClient:
    facts = platform.facts
    client = PlatformClient(facts["base_url"], facts["token"], team=facts["team_id"])
    client._sleep = no_sleep  # noqa: SLF001 - the delays are tested alone
    return client


async def built(platform: RunningEmulator, lines: int) -> str:
    """Return a deployment with lines of a build that is not finished."""
    deployment = await platform.deployment()
    log = [{"type": "stdout", "payload": {"text": f"line {number}"}} for number in range(lines)]
    await platform.control("POST", f"/deployments/{deployment}/events", log)
    return deployment


def texts(found: list[Event]) -> list[str]:
    return [event.payload.text for event in found if event.payload.text.startswith("line ")]


async def followed_to_the_end(platform: RunningEmulator, deployment: str) -> list[Event]:
    """Follow a deployment that becomes ready after its first events."""
    found = []
    async with (
        client_of(platform) as client,
        aclosing(follow(client, deployment, EventQuery(), sleep=no_sleep)) as stream,
    ):
        async for event in stream:
            found.append(event)
            if event.payload.text == "line 2":
                more = [{"type": "stdout", "payload": {"text": "line 3"}}]
                await platform.control("POST", f"/deployments/{deployment}/events", more)
                await platform.control("POST", f"/deployments/{deployment}/state", {"state": "READY"})
    return found


EXPECTED = [f"line {number}" for number in range(4)]


@each_case(("rule", "shape"), SHAPES)
async def test_client_reads_and_follows_events_updates_groups_and_exchanges_codes_in_every_shape(
    platform: RunningEmulator, rule: str, shape: str
) -> None:
    await platform.control("POST", "/unstated", {rule: shape})
    deployment = await built(platform, 3)

    assert texts(await followed_to_the_end(platform, deployment)) == EXPECTED
    async with client_of(platform) as client:
        assert texts(await events(client, deployment, EventQuery())) == EXPECTED
        group, _ = await update_group(client, next(iter(platform.state.groups)), name="New shop")
        assert group.id
        with pytest.raises(errors.NotFound):
            await events(client, "dpl_absent", EventQuery())
    await exchanged_once(platform)


async def exchanged_once(platform: RunningEmulator) -> None:
    facts, made = platform.facts, await platform.install()
    arguments = (facts["base_url"], facts["client_id"], facts["client_secret"], made["code"], REDIRECT_URI)
    token = await exchange(*arguments)
    assert token.team_id == facts["team_id"]
    with pytest.raises(errors.CodeRejected):
        await exchange(*arguments)


@each_case("shape", UNSTATED["P6"])
async def test_p40_disabled_configuration_is_recognized_in_every_form(
    platform: RunningEmulator, shape: str
) -> None:
    await platform.control("POST", "/unstated", {"P6": shape})
    await platform.control("POST", "/faults", {"name": "configuration-disabled"})
    deployment = await built(platform, 1)

    async with client_of(platform) as client:
        with pytest.raises(errors.ConfigurationDisabled):
            await events(client, deployment, EventQuery())
        assert await events(client, deployment, EventQuery())


@each_case("form", UNSTATED["P25"])
@each_case(
    "fault", ["api-cut", "api-slow-bytes", "api-429", "api-500", "events-twice", "events-out-of-order"]
)
async def test_followed_stream_survives_every_fault(platform: RunningEmulator, fault: str, form: str) -> None:
    await platform.control("POST", "/unstated", {"P25": form})
    deployment = await built(platform, 3)
    await platform.control("POST", "/faults", {"name": fault})

    found = texts(await asyncio.wait_for(followed_to_the_end(platform, deployment), 120))

    assert sorted(found) == EXPECTED
    assert fault == "events-out-of-order" or found == EXPECTED


async def test_p02_answer_without_the_team_says_how_to_name_it(platform: RunningEmulator) -> None:
    client = PlatformClient(platform.facts["base_url"], platform.facts["token"])

    async with client:
        with pytest.raises(errors.InvalidRequest, match=r"--team"):
            await events(client, "dpl_1", EventQuery())
