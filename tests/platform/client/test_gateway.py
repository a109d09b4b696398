"""The gateway's models, and chat completions: whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from receiver.platform.client import chat, errors
from receiver.platform.client.chat import (
    Assembly,
    CalledFunction,
    ChatRequest,
    Completion,
    Function,
    ImagePart,
    ImageUrl,
    Message,
    TextPart,
    Tool,
    ToolCall,
    image_part,
)
from receiver.platform.client.gateway import Gateway
from receiver.platform.client.retries import ATTEMPTS_MAX
from tests.support.cases import each_case
from tests.support.gateway import SCHEMA
from tests.support.platform_corpus import HOSTILE_JSON
from tests.support.platform_events import no_sleep
from tests.support.platform_server import Answer, PlatformServer, platform_server

KEY = "key_Secret0123456789"
MODEL = "openai/gpt-4.1"
REQUEST = ChatRequest(model=MODEL, messages=(Message(role="user", content="Hello"),))
WEATHER = Tool(function=Function(name="get_weather", description="Current weather", parameters=SCHEMA))


def completion(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_741_569_952,
        "model": MODEL,
        "choices": [choice],
        "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29},
        "service_tier": "default",
    }


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]
    content = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": MODEL, "choices": choices}
    return b"data: " + json.dumps(content).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
USAGE = (
    b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}}\n\n'
)
TEXT_STREAM = [
    chunk({"role": "assistant", "content": "", "refusal": None}),
    chunk({"content": "Good "}),
    chunk({"content": "day 😀"}),
    chunk({}, "stop"),
    USAGE,
    DONE,
]


def tool_part(index: int, **fields: Any) -> bytes:  # noqa: ANN401 - any JSON
    return chunk({"tool_calls": [{"index": index, **fields}]})


TOOL_STREAM = [
    chunk({"role": "assistant", "content": None}),
    tool_part(0, id="call_a", type="function", function={"name": "get_weather", "arguments": ""}),
    tool_part(0, function={"arguments": '{"location"'}),
    tool_part(1, id="call_b", type="function", function={"name": "get_time", "arguments": ""}),
    tool_part(0, function={"arguments": ': "Paris"}'}),
    tool_part(1, function={"arguments": "{}"}),
    chunk({}, "tool_calls"),
    DONE,
]


def gateway_of(server: PlatformServer, timeout_s: float = 5.0) -> Gateway:
    return Gateway(server.url, KEY, timeout_s)


async def streamed(server: PlatformServer, request: ChatRequest = REQUEST) -> Completion:
    assembly = Assembly()
    async with gateway_of(server) as gateway:
        async for fragment in gateway.stream(request):
            assembly.add(fragment)
    return assembly.completion()


async def answered(server: PlatformServer, request: ChatRequest = REQUEST) -> Completion:
    async with gateway_of(server) as gateway:
        return await gateway.chat(request)


async def test_p60_request_has_key_and_content_type() -> None:
    async with platform_server(Answer(completion({"content": "Hi"}))) as server:
        await answered(server)

    received = server.received[0]
    assert (received.method, received.path) == ("POST", "/v1/chat/completions")
    assert received.headers["Authorization"] == f"Bearer {KEY}"
    assert received.headers["Content-Type"] == "application/json"


async def test_p62_request_has_only_the_fields_that_are_set() -> None:
    full = ChatRequest(
        model=MODEL,
        messages=REQUEST.messages,
        tools=(WEATHER,),
        tool_choice="auto",
        provider_order=("azure", "openai"),
        extra={"max_tokens": 100, "temperature": 0},
    )
    async with platform_server(Answer(completion({"content": "Hi"}))) as server:
        await answered(server)
        await answered(server, full)

    plain, whole = (json.loads(received.body) for received in server.received)
    assert plain == {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "stream": False}
    assert whole["tool_choice"] == "auto"
    assert whole["providerOptions"] == {"gateway": {"order": ["azure", "openai"]}}
    assert (whole["max_tokens"], whole["temperature"]) == (100, 0)


async def test_p63_message_has_text_and_image_parts() -> None:
    parts = (
        TextPart(text="What is this?"),
        ImagePart(image_url=ImageUrl(url="https://a.example/b.png", detail="auto")),
        image_part("image/png", "iVBORw0KGgo="),
    )
    request = ChatRequest(model=MODEL, messages=(Message(role="user", content=parts),))
    async with platform_server(Answer(completion({"content": "Hi"}))) as server:
        await answered(server, request)

    assert json.loads(server.received[0].body)["messages"][0]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png", "detail": "auto"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]


async def test_p64_tool_has_its_schema_and_results_go_back_by_id() -> None:
    call = ToolCall(
        id="call_a", function=CalledFunction(name="get_weather", arguments='{"location":"Paris"}')
    )
    messages = (
        Message(role="user", content="Weather?"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id="call_a", content="21 °C"),
    )
    request = ChatRequest(model=MODEL, messages=messages, tools=(WEATHER,))
    async with platform_server(Answer(completion({"content": "21 °C"}))) as server:
        await answered(server, request)

    body = json.loads(server.received[0].body)
    described = {"name": "get_weather", "description": "Current weather", "parameters": SCHEMA}
    assert body["tools"] == [{"type": "function", "function": described}]
    assert body["messages"][1]["tool_calls"] == [
        {
            "id": "call_a",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"location":"Paris"}'},
        }
    ]
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "call_a", "content": "21 °C"}


async def test_p66_whole_answer_has_text_reason_and_usage() -> None:
    answer = completion({"content": "Hi", "refusal": None, "annotations": []})
    async with platform_server(Answer(answer)) as server:
        found = await answered(server)

    assert (found.text, found.finish_reason, found.model) == ("Hi", "stop", MODEL)
    assert found.usage == chat.Usage(prompt_tokens=19, completion_tokens=10, total_tokens=29)
    assert found.raw == answer


async def test_p66_whole_answer_has_tool_calls() -> None:
    calls = [
        {"id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
        {"function": {"name": "get_time"}},
    ]
    async with platform_server(Answer(completion({"content": None, "tool_calls": calls}))) as server:
        found = await answered(server)

    assert found.text == ""
    named = [(call.id, call.function.name) for call in found.tool_calls]
    assert named == [("call_a", "get_weather"), ("call_1", "get_time")]


@each_case(
    ("content", "text"),
    [([{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}, 1], "ab"), (None, ""), (5, "")],
)
async def test_p66_content_of_another_form_has_its_texts(content: Any, text: str) -> None:  # noqa: ANN401 - any JSON
    async with platform_server(Answer({"choices": [{"message": {"content": content}}]})) as server:
        found = await answered(server)

    assert (found.text, found.usage, found.finish_reason) == (text, None, None)


@each_case("piece_bytes", [1, 5, 100_000])
@each_case("line_ends", [b"\n\n", b"\r\n\r\n", b"\n"])
async def test_p65_stream_brings_text_reason_and_usage(piece_bytes: int, line_ends: bytes) -> None:
    body = (b": keep-alive\n\n" + b"".join(TEXT_STREAM)).replace(b"\n\n", line_ends).rstrip()
    pieces = [body[place : place + piece_bytes] for place in range(0, len(body), piece_bytes)]
    async with platform_server(Answer(pieces=pieces)) as server:
        found = await streamed(server)

    assert (found.text, found.finish_reason, found.model) == ("Good day 😀", "stop", MODEL)
    assert found.usage
    assert found.usage.total_tokens == 21
    assert json.loads(server.received[0].body)["stream"] is True


async def test_p65_tool_calls_arrive_in_parts() -> None:
    async with platform_server(Answer(pieces=TOOL_STREAM)) as server:
        found = await streamed(server)

    assert found.finish_reason == "tool_calls"
    assert [(call.id, call.function.name, call.function.arguments) for call in found.tool_calls] == [
        ("call_a", "get_weather", '{"location": "Paris"}'),
        ("call_b", "get_time", "{}"),
    ]


async def test_nothing_after_done_is_read() -> None:
    async with platform_server(Answer(pieces=[*TEXT_STREAM, b"garbage\n"], hangs=True)) as server:
        assert (await streamed(server)).text == "Good day 😀"


@each_case(
    ("answer", "kind", "text"),
    [
        (Answer(pieces=TEXT_STREAM[:-1]), errors.AnswerCut, r"\[DONE\]"),
        (Answer(pieces=TEXT_STREAM[:2], is_cut=True), errors.AnswerCut, "before the end"),
        (Answer(pieces=[*TEXT_STREAM[:2], b'data: {"choices": [{"del']), errors.AnswerCut, r"\[DONE\]"),
        (Answer(pieces=[]), errors.AnswerCut, r"\[DONE\]"),
        (Answer(pieces=[*TEXT_STREAM[:2], b"data: {]\n\n", DONE]), errors.NotJson, "not JSON"),
        (Answer(pieces=[*TEXT_STREAM[:2], b"<html>\n\n", DONE]), errors.NotJson, "event stream"),
        (Answer(pieces=[b"data: 1\n\n", DONE]), errors.WrongShape, "object"),
        (Answer(pieces=[b'data: {"choices": {}}\n\n', DONE]), errors.WrongShape, "choices"),
        (Answer(pieces=[b'data: {"choices": [1]}\n\n', DONE]), errors.WrongShape, "choices"),
        (Answer(pieces=[chunk({"tool_calls": 1}), DONE]), errors.WrongShape, "tool_calls"),
        (Answer(pieces=[tool_part(0, function={"arguments": "{}"}), DONE]), errors.AnswerCut, "name"),
        (
            Answer(pieces=[b'data: {"error": {"message": "no credit", "code": "x"}}\n\n', DONE]),
            errors.ServerFailed,
            r"error x \(no credit\); try again",
        ),
        (Answer(pieces=[b'data: {"error": "no credit"}\n\n', DONE]), errors.ServerFailed, r"\(no credit\)"),
        (Answer(completion({"content": "Hi"})), errors.NotJson, "event stream"),
        (Answer({"error": {"code": "x"}}, 401), errors.NotAuthorized, "api_key_file or --api-key-file"),
        (Answer({}, 429, {"Retry-After": "0"}), errors.RateLimited, "too many"),
        (Answer({}, 503), errors.ServerFailed, "503"),
    ],
)
async def test_p65_incomplete_or_malformed_stream_is_an_error(
    answer: Answer, kind: type[errors.PlatformError], text: str
) -> None:
    async with platform_server(answer) as server:
        with pytest.raises(kind, match=text):
            await streamed(server)

    # Each request costs money.
    assert len(server.received) == 1


async def test_stream_that_stops_is_an_error() -> None:
    async with (
        platform_server(Answer(pieces=TEXT_STREAM[:2], hangs=True)) as server,
        gateway_of(server, 0.3) as gateway,
    ):
        with pytest.raises(errors.TimedOut):
            [fragment async for fragment in gateway.stream(REQUEST)]


@each_case(
    "body",
    [
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"message": 1}]},
        {"choices": [{"message": {"tool_calls": [{"id": "a"}]}}]},
        {"error": {"message": "x"}},
        *HOSTILE_JSON.values(),
    ],
)
async def test_p66_answer_of_another_shape_is_an_error(body: Any) -> None:  # noqa: ANN401 - any JSON
    async with platform_server(Answer(body)) as server:
        with pytest.raises((errors.WrongAnswer, errors.ServerFailed)):
            await answered(server)

    assert len(server.received) == 1


@each_case("body", HOSTILE_JSON.values(), ids=HOSTILE_JSON.keys())
async def test_hostile_line_of_a_stream_is_an_error_or_empty(body: bytes) -> None:
    async with platform_server(Answer(pieces=[b"data: " + body + b"\n\n", DONE])) as server:
        try:
            found = await streamed(server)
        except errors.WrongAnswer:
            return

    assert (found.text, found.tool_calls) == ("", ())


@each_case(
    "request_",
    [
        ChatRequest(model="gpt", messages=REQUEST.messages),
        ChatRequest(model=MODEL, messages=()),
        *(
            ChatRequest(
                model=MODEL,
                messages=(Message(role="user", content=(ImagePart(image_url=ImageUrl(url=url)),)),),
            )
            for url in ("http://a.example/b.png", "file:///etc/passwd", "data:text", "https://")
        ),
    ],
)
async def test_p62_p63_invalid_request_is_not_sent(request_: ChatRequest) -> None:
    async with platform_server(Answer(completion({"content": "Hi"}))) as server:
        with pytest.raises(errors.InvalidCall):
            await answered(server, request_)

    assert server.received == []


@each_case("tools", [{}, [{}], [{"type": "other", "function": {"name": "a"}}], "x", [1]])
def test_p64_invalid_tools_are_reported(tools: Any) -> None:  # noqa: ANN401 - any JSON
    with pytest.raises(errors.InvalidCall, match="expected an array"):
        chat.parse_tools(tools)


def test_number_of_tool_calls_is_limited() -> None:
    parts = [chat.ToolCallFragment(index=index, name="a") for index in range(chat.TOOL_CALLS_MAX + 1)]
    assembly = Assembly()
    for part in parts[:-1]:
        assembly.add(chat.Fragment(tool_calls=(part,)))
    with pytest.raises(errors.WrongShape, match="128 tool calls"):
        assembly.add(chat.Fragment(tool_calls=(parts[-1],)))


async def test_key_is_in_no_error() -> None:
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    async with platform_server(Answer(echo, 401)) as server:
        with pytest.raises(errors.NotAuthorized) as caught:
            await answered(server)

    assert KEY not in f"{caught.value} {caught.value!r} {gateway_of(server)!r}"
    with pytest.raises(errors.AddressMissing, match="API key"):
        Gateway(server.url, "")


LISTED = [{"id": MODEL, "object": "model", "created": 1, "owned_by": "openai"}, {"id": "a/b", "new": 1}]


@each_case("body", [{"object": "list", "data": LISTED}, {"models": LISTED}, LISTED, {"data": [MODEL, "a/b"]}])
async def test_p61_models_are_listed_from_any_shape(body: Any) -> None:  # noqa: ANN401 - any JSON
    async with platform_server(Answer(body)) as server, gateway_of(server) as gateway:
        models = await gateway.models()

    assert [model.id for model in models] == [MODEL, "a/b"]
    if "data" not in body or LISTED in body.values():
        assert [(model.owned_by, model.raw) for model in models] == [("openai", LISTED[0]), ("", LISTED[1])]
    assert (server.received[0].method, server.received[0].path) == ("GET", "/v1/models")
    assert server.received[0].body == b""


@each_case("body", [{}, {"data": {}}, {"data": [{}]}, [[]], *HOSTILE_JSON.values()])
async def test_p61_answer_without_models_is_an_error(body: Any) -> None:  # noqa: ANN401 - any JSON
    async with platform_server(Answer(body)) as server, gateway_of(server) as gateway:
        with pytest.raises(errors.WrongAnswer):
            await gateway.models()


async def test_p61_list_of_models_is_read_again_after_a_failure() -> None:
    async with platform_server(Answer({}, 503)) as server, gateway_of(server) as gateway:
        gateway._sleep = no_sleep  # noqa: SLF001 - the delays are tested alone
        with pytest.raises(errors.ServerFailed):
            await gateway.models()

    assert len(server.received) == ATTEMPTS_MAX
