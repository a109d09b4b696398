"""The receiver's own gateway client against the emulated gateway: every shape, every fault."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from receiver.platform.client.chat import (
    Assembly,
    ChatRequest,
    Completion,
    Function,
    Message,
    TextPart,
    Tool,
    image_part,
)
from receiver.platform.client.errors import AnswerCut, PlatformError, RateLimited, ServerFailed, WrongAnswer
from receiver.platform.client.gateway import Gateway
from tests.support.cases import each_case
from tests.support.gateway import API_KEY, MODEL, PNG, SCHEMA, RunningGateway
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
async def client(gateway: RunningGateway) -> AsyncIterator[Gateway]:
    async with Gateway(gateway.url, API_KEY) as opened:
        yield opened


def request() -> ChatRequest:
    """Return a request with a text, an image, a tool and an order of providers."""
    image = image_part("image/png", PNG.partition(",")[2])
    return ChatRequest(
        model=MODEL,
        messages=(Message(role="user", content=(TextPart(text="hello"), image)),),
        tools=(Tool(function=Function(name="weather", parameters=SCHEMA)),),
        tool_choice="auto",
        provider_order=("globex", "acme"),
    )


async def streamed(client: Gateway) -> Completion:
    assembly = Assembly()
    async for fragment in client.stream(request()):
        assembly.add(fragment)
    return assembly.completion()


def towns(completion: Completion) -> list[str]:
    return [json.loads(call.function.arguments)["town"] for call in completion.tool_calls]


@each_case(("rule", "shape"), [(rule, shape) for rule, shapes in UNSTATED.items() for shape in shapes])
async def test_p61_p65_p66_receiver_reads_models_answers_and_streams_of_every_shape(
    gateway: RunningGateway, client: Gateway, rule: str, shape: str
) -> None:
    gateway.shapes |= {**{name: shapes[0] for name, shapes in UNSTATED.items()}, rule: shape}
    await gateway.control("/gateway/script", [{"text": "one moment", "tool_calls": CALLS}] * 2)

    assert MODEL in [model.id for model in await client.models()]
    for completion in (await client.chat(request()), await streamed(client)):
        assert completion.text == "one moment"
        assert towns(completion) == ["Oslo", "Bergen"]


@each_case("fault", sorted(ERRORS))
async def test_p65_receiver_never_accepts_a_broken_stream_as_an_answer(
    gateway: RunningGateway, client: Gateway, fault: str
) -> None:
    gateway.gateway.script.clear()
    gateway.faults[fault] = 1
    await gateway.control("/gateway/script", [{"text": "a whole answer of some words"}])

    with pytest.raises(ERRORS[fault]):
        await streamed(client)
    assert await streamed(client), "the fault happens once"


async def test_p65_receiver_reads_slow_answers(gateway: RunningGateway, client: Gateway) -> None:
    gateway.faults["gateway-slow-bytes"] = 2
    await gateway.control("/gateway/script", [{"text": "a whole answer"}] * 2)

    for completion in (await client.chat(request()), await streamed(client)):
        assert completion.text == "a whole answer"


def test_every_fault_of_the_gateway_has_a_test() -> None:
    assert {*ERRORS, "gateway-slow-bytes"} == set(FAULTS)
