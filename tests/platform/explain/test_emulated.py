"""Explanations by the emulated gateway, whose answers are derived from the requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from receiver.engine.store import Store
from receiver.settings import Explain, Platform
from tests.platform.explain.conftest import ACCESS, QUERY, TRACE, Receiver, ended, text_of
from tests.support.access import receiver_with
from tests.support.emulator import RunningEmulator, emulator
from tests.support.platform_server import PlatformServer

NOT_ASKED = PlatformServer()


@pytest.fixture
async def emulated(tmp_path: Path) -> AsyncIterator[RunningEmulator]:
    """Yield an emulator."""
    async with emulator(tmp_path / "platform") as running:
        yield running


@pytest.fixture
async def receiver(store: Store, emulated: RunningEmulator, tmp_path: Path) -> AsyncIterator[Receiver]:
    """Yield a receiver whose gateway is the emulator's."""
    settings = Explain(model="globex/vision", providers=("globex",))
    facts = emulated.facts
    platform = Platform(gateway_url=facts["gateway_url"], api_key=facts["api_key"], explain=settings)
    async with receiver_with(tmp_path, ACCESS, store=store, platform=platform) as client:
        yield Receiver(client, NOT_ASKED)


async def test_emulated_model_calls_a_tool_and_names_spans_of_the_trace(receiver: Receiver) -> None:
    events = await receiver.explained(TRACE)

    sentences = [event["stated"] for event in events if "stated" in event]
    named = {part["text"] for each in sentences for part in each["parts"] if part["is_span"]}
    assert ended(events)["outcome"] == "complete"
    assert QUERY in named
    assert not any(each["is_refuted"] for each in sentences)
    assert [event["called"]["name"] for event in events if "called" in event] == ["get_trace"]
    assert text_of(events)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("gateway-cut-stream", "cut"),
        ("gateway-malformed-line", "cut"),
        ("gateway-missing-done", "cut"),
        ("gateway-429", "none"),
        ("gateway-500", "none"),
    ],
)
async def test_fault_of_the_emulated_gateway_is_no_answer(
    receiver: Receiver, emulated: RunningEmulator, fault: str, outcome: str
) -> None:
    await emulated.control("POST", "/faults", {"name": fault})

    events = await receiver.explained(TRACE)

    assert ended(events)["outcome"] == outcome
    assert ended(events)["problem"]
