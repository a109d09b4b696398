"""Stock OpenAI libraries against the emulated gateway: Python's, and requests of JavaScript's.

`recorded/openai_js.json` holds the requests that the JavaScript library (openai 6.49.0, Node 20) sent when
`openai_client.mjs` ran against this gateway behind a middleware that wrote down each request and the status
of its answer. The script checks the answers itself; it is not run here, because tests download nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.support.gateway import API_KEY, MODEL, WEATHER, RunningGateway
from trace_drain_testing.emulator.gateway.gateway_wire import DONE

RECORDED = json.loads((Path(__file__).parent / "recorded" / "openai_js.json").read_text())
TOOL = cast("ChatCompletionToolParam", WEATHER)


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{gateway.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=API_KEY, max_retries=0) as opened:
        yield opened


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


async def test_p61_python_library_lists_the_models_with_their_provider(client: openai.AsyncOpenAI) -> None:
    listed = {model.id: (model.object, model.owned_by) async for model in client.models.list()}

    assert listed[MODEL] == ("model", "acme")


async def test_p66_python_library_reads_an_answer(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=[user("hello")])

    assert answer.choices[0].message.content == "You wrote: hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 10


async def test_p64_python_library_calls_a_tool_and_sends_its_result(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model=MODEL, messages=[user("Oslo")], tools=[TOOL]) as stream:
        choice = (await stream.get_final_completion()).choices[0]
    message = choice.message

    assert choice.finish_reason == "tool_calls"
    assert message.tool_calls is not None
    call = message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"town": "Oslo", "unit": "C"}
    final = await client.chat.completions.create(
        model=MODEL,
        messages=[
            user("Oslo"),
            cast("ChatCompletionMessageParam", message.to_dict()),
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
        ],
        tools=[TOOL],
    )
    assert final.choices[0].message.content == "You wrote: Oslo\nA tool answered: sunny"


async def test_p60_python_library_reports_errors_by_their_status(
    client: openai.AsyncOpenAI, gateway: RunningGateway
) -> None:
    with pytest.raises(openai.BadRequestError, match="model"):
        await client.chat.completions.create(model="large", messages=[user("hello")])
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="other").models.list()
    gateway.faults["gateway-429"] = 1
    with pytest.raises(openai.RateLimitError):
        await client.models.list()


@pytest.mark.parametrize(
    "recorded", RECORDED, ids=[f"{index} {each['path']}" for index, each in enumerate(RECORDED)]
)
async def test_p60_recorded_request_of_the_javascript_library_is_answered_as_it_was(
    gateway: RunningGateway, recorded: dict[str, Any]
) -> None:
    url = gateway.url.removesuffix("/gateway") + recorded["path"]
    request = {"method": recorded["method"], "headers": recorded["headers"], "json": recorded["body"]}
    async with aiohttp.ClientSession() as session, session.request(url=url, **request) as answer:
        body = await answer.read()

    assert answer.status == recorded["status"], body
    if answer.content_type == "text/event-stream":
        assert body.endswith(DONE)
    else:
        assert set(json.loads(body)) & {"data", "choices", "error"}


def test_recordings_cover_models_chat_streams_tools_images_and_errors() -> None:
    bodies = [recorded["body"] or {} for recorded in RECORDED]

    assert {recorded["status"] for recorded in RECORDED} == {200, 400, 401}
    assert {recorded["method"] for recorded in RECORDED} == {"GET", "POST"}
    assert any(body.get("stream") and body.get("tools") for body in bodies)
    assert any("image_url" in json.dumps(body) for body in bodies)
    assert any("providerOptions" in body for body in bodies)
