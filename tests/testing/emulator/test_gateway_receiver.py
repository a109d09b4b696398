"""The receiver's own gateway client against the emulated gateway: every shape, every fault."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from receiver.platform.client.chat import Assembly, ChatRequest, Completion, Function, Message, Tool
from receiver.platform.client.errors import (
    AnswerCut,
    NotAuthorized,
    PlatformError,
    RateLimited,
    ServerFailed,
    WrongAnswer,
)
from receiver.platform.client.gateway import Gateway
from tests.support.gateway import API_KEY, MODEL, WEATHER, RunningGateway, running_gateway
from trace_drain_testing.emulator.gateway.gateway import FAULTS
from trace_drain_testing.emulator.gateway.gateway_wire import UNSTATED

ERRORS: dict[str, type[PlatformError]] = {
    "gateway-cut-stream": AnswerCut,
    "gateway-malformed-line": WrongAnswer,
    "gateway-missing-done": AnswerCut,
    "gateway-429": RateLimited,
    "gateway-500": ServerFailed,
}
"""Error of the client by fault; a slow answer is no error."""
CALLS = [{"name": "weather", "arguments": {"town": town}} for town in ("Oslo", "Bergen")]


@pytest.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    async with running_gateway() as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[Gateway]:
    async with Gateway(gateway.url, API_KEY) as opened:
        yield opened


def request(text: str = "hello") -> ChatRequest:
    offered = WEATHER["function"]
    assert isinstance(offered, dict)
    tool = Tool(function=Function(name="weather", parameters=offered["parameters"]))
    return ChatRequest(model=MODEL, messages=(Message(role="user", content=text),), tools=(tool,))


async def streamed(client: Gateway) -> Completion:
    assembly = Assembly()
    async for fragment in client.stream(request()):
        assembly.add(fragment)
    return assembly.completion()


def towns(completion: Completion) -> list[str]:
    return [json.loads(call.function.arguments)["town"] for call in completion.tool_calls]


@pytest.mark.parametrize("shape", UNSTATED["P61"])
async def test_p61_receiver_lists_the_models_of_every_shape(
    gateway: RunningGateway, client: Gateway, shape: str
) -> None:
    gateway.shapes["P61"] = shape

    assert MODEL in [model.id for model in await client.models()]


@pytest.mark.parametrize("shape", UNSTATED["P65"])
async def test_p65_receiver_reads_a_stream_of_every_shape(
    gateway: RunningGateway, client: Gateway, shape: str
) -> None:
    gateway.shapes["P65"] = shape
    await gateway.control("/gateway/script", [{"text": "one moment", "tool_calls": CALLS}])

    completion = await streamed(client)

    assert completion.text == "one moment"
    assert towns(completion) == ["Oslo", "Bergen"]


@pytest.mark.parametrize("shape", UNSTATED["P66"])
async def test_p66_receiver_reads_an_answer_of_every_shape(
    gateway: RunningGateway, client: Gateway, shape: str
) -> None:
    gateway.shapes["P66"] = shape
    await gateway.control("/gateway/script", [{"text": "one moment", "tool_calls": CALLS}])

    completion = await client.chat(request())

    assert completion.text == "one moment"
    assert towns(completion) == ["Oslo", "Bergen"]


async def test_p60_receiver_reports_a_wrong_key(gateway: RunningGateway) -> None:
    async with Gateway(gateway.url, "other") as client:
        with pytest.raises(NotAuthorized):
            await client.models()


@pytest.mark.parametrize("fault", sorted(ERRORS))
async def test_p65_receiver_never_accepts_a_broken_stream_as_an_answer(
    gateway: RunningGateway, client: Gateway, fault: str
) -> None:
    gateway.faults[fault] = 1
    await gateway.control("/gateway/script", [{"text": "a whole answer of some words"}])

    with pytest.raises(ERRORS[fault]):
        await streamed(client)


async def test_p65_receiver_reads_a_slow_stream(gateway: RunningGateway, client: Gateway) -> None:
    gateway.faults["gateway-slow-bytes"] = 1
    await gateway.control("/gateway/script", [{"text": "a whole answer"}])

    assert (await streamed(client)).text == "a whole answer"


def test_every_fault_of_the_gateway_has_a_test() -> None:
    assert {*ERRORS, "gateway-slow-bytes"} == set(FAULTS)
