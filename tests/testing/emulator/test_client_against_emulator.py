"""The receiver's own client works against the emulator with every shape."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from receiver.platform.client.chat import Assembly, ChatRequest, Message
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.errors import ConfigurationDisabled
from receiver.platform.client.events import EventQuery, events, follow
from receiver.platform.client.gateway import Gateway
from receiver.platform.client.microfrontends import update_group
from receiver.platform.client.oauth import exchange
from tests.support.cases import each_case
from tests.support.emulator import REDIRECT_URI, RunningEmulator, emulator
from trace_drain_testing.emulator.platform import UNSTATED

SHAPES = [(rule, shape) for rule, shapes in UNSTATED.items() for shape in shapes]


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[RunningEmulator]:
    async with emulator(tmp_path) as running:
        yield running


def client_of(platform: RunningEmulator, token: str = "") -> PlatformClient:
    facts = platform.facts
    return PlatformClient(facts["base_url"], token or facts["token"], team=facts["team_id"])


@each_case(("rule", "shape"), SHAPES)
async def test_client_calls_and_follows_with_every_shape(
    platform: RunningEmulator, rule: str, shape: str
) -> None:
    await platform.control("POST", "/unstated", {rule: shape})
    deployment = await platform.deployment()
    lines = [{"type": "stdout", "payload": {"text": text}} for text in ("a", "b")]
    await platform.control("POST", f"/deployments/{deployment}/events", lines)
    await platform.control("POST", f"/deployments/{deployment}/state", {"state": "READY"})
    made = await platform.install()
    facts = platform.facts

    token = await exchange(
        facts["base_url"], facts["client_id"], facts["client_secret"], made["code"], REDIRECT_URI
    )
    async with client_of(platform, token.access_token) as client:
        listed = [event.payload.text for event in await events(client, deployment, EventQuery())]
        followed = [event.payload.text async for event in follow(client, deployment, EventQuery())]
        group = next(iter(platform.state.groups))
        updated, _ = await update_group(client, group, name="New name")

    assert listed[:2] == followed[:2] == ["a", "b"]
    assert len(followed) == 3
    assert updated.id == group
    assert platform.state.groups[group].slug == "new-name"


GATEWAY_SHAPES = [(rule, shape) for rule, shape in SHAPES if rule in {"P61", "P65", "P66"}]


@pytest.mark.parametrize(("rule", "shape"), GATEWAY_SHAPES)
async def test_client_uses_the_gateway_with_every_shape(
    platform: RunningEmulator, rule: str, shape: str
) -> None:
    await platform.control("POST", "/unstated", {rule: shape})
    assembly = Assembly()

    async with Gateway(platform.facts["gateway_url"], platform.facts["api_key"]) as gateway:
        models = await gateway.models()
        request = ChatRequest(model=models[0].id, messages=(Message(role="user", content="cats"),))
        answered = await gateway.chat(request)
        async for fragment in gateway.stream(request):
            assembly.add(fragment)

    assert answered.text == assembly.completion().text == "You wrote: cats"


@pytest.mark.parametrize("fault", ["api-cut", "events-twice", "api-500", "api-429", "api-slow-bytes"])
async def test_client_follows_without_gap_or_repeat_through_a_fault(
    platform: RunningEmulator, fault: str
) -> None:
    deployment = await platform.deployment()
    lines = [{"type": "stdout", "payload": {"text": str(number)}} for number in range(5)]
    await platform.control("POST", f"/deployments/{deployment}/events", lines)
    await platform.control("POST", f"/deployments/{deployment}/state", {"state": "READY"})
    await platform.control("POST", "/faults", {"name": fault})

    async def no_pause(_seconds: float) -> None:
        return

    async with client_of(platform) as client:
        stream = follow(client, deployment, EventQuery(), sleep=no_pause)
        texts = [event.payload.text async for event in stream]

    assert texts[:5] == ["0", "1", "2", "3", "4"]
    assert len(texts) == 6


@pytest.mark.parametrize("shape", UNSTATED["P6"])
async def test_client_recognises_a_disabled_installation_in_every_form_of_errors(
    platform: RunningEmulator, shape: str
) -> None:
    await platform.control("POST", "/unstated", {"P6": shape})
    await platform.control("POST", "/faults", {"name": "ownership-lost"})

    async with client_of(platform) as client:
        with pytest.raises(ConfigurationDisabled):
            await events(client, next(iter(platform.state.deployments)), EventQuery())
