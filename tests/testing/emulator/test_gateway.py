"""Tests of the emulated gateway over plain HTTP: answers, optional fields, and refusals."""

from __future__ import annotations

import json
from typing import Any

from tests.support.cases import each_case
from tests.support.gateway import API_KEY, MODEL, PNG, WEATHER, RunningGateway, question
from trace_drain_testing.emulator.gateway.gateway_wire import DONE

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def events(stream: bytes) -> list[Any]:
    assert stream.endswith(DONE)
    lines = stream.removesuffix(DONE).replace(b"\r\n", b"\n").split(b"\n")
    return [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]


def request_with(*messages: object) -> dict[str, object]:
    return {"model": MODEL, "messages": messages}


def tool(**function: object) -> dict[str, object]:
    return {"type": "function", "function": function}


async def test_p60_request_without_the_api_key_is_answered_401(gateway: RunningGateway) -> None:
    status, body = await gateway.chat(question("hello"), key="other")

    assert status == 401
    assert body["error"]["code"] == "not_authorized"
    async with gateway.session.get(f"{gateway.url}/v1/models") as answer:
        assert answer.status == 401


async def test_p62_answer_is_derived_from_the_messages(gateway: RunningGateway) -> None:
    first, again, other = [await gateway.chat(question(text)) for text in ("cats", "cats", "dogs")]

    assert first[1]["choices"][0]["message"]["content"] == "You wrote: cats"
    assert first[1]["choices"] == again[1]["choices"]
    assert first[1]["choices"] != other[1]["choices"]


@each_case(
    ("body", "part"),
    [
        ({"messages": []}, "model"),
        ({"model": "acme/large"}, "messages"),
        (question("x", model="large"), "provider"),
        (request_with(), "at least one message"),
        (
            request_with({"role": "king", "content": "x"}),
            "expected system, developer, user, assistant or tool",
        ),
        (request_with({"role": "user"}), "content"),
        (request_with({"role": "user", "content": []}), "empty list"),
        (request_with({"role": "user", "content": [{"type": "audio"}]}), "type text or image_url"),
        (question("x", stream="yes"), "stream"),
        (question("x", max_tokens=0), "tokens"),
        (question("x", tool_choice="always"), "tool_choice"),
        (question("x", tool_choice="required"), "tools"),
        (question("x", tools=[tool(name="a b")]), "name"),
        (question("x", tools=[WEATHER, WEATHER]), "same name"),
        (question("x", tools=[{"type": "web", "function": {"name": "a"}}]), "expected function"),
        (question("x", response_format={"type": "xml"}), "expected text, json_object or json_schema"),
        (question("x", response_format={"type": "json_schema"}), "json_schema` is required"),
        (question("x", tools=[tool(name="a", parameters={"type": "string"})]), "object"),
        (question("x", tools=[WEATHER], tool_choice=tool(name="other")), "names a function"),
        (question("x", providerOptions={"gateway": {"order": "acme"}}), "order"),
        (request_with({"role": "tool", "content": "x"}), "tool_call_id"),
        (request_with({"role": "tool", "content": "x", "tool_call_id": "1"}), "waits"),
        (request_with({"role": "assistant", "tool_calls": [CALL]}), "no answer"),
        (
            request_with({"role": "assistant", "tool_calls": [CALL]}, {"role": "user", "content": "and?"}),
            "no answer",
        ),
    ],
)
async def test_p62_invalid_request_is_answered_400_with_the_field(
    gateway: RunningGateway, body: object, part: str
) -> None:
    status, answer = await gateway.chat(body)

    assert status == 400
    assert part in answer["error"]["message"]
    assert "king" not in answer["error"]["message"]


async def test_p62_unknown_model_is_answered_404(gateway: RunningGateway) -> None:
    assert (await gateway.chat(question("x", model="acme/other")))[0] == 404


async def test_p62_next_provider_replaces_a_provider_that_is_off(gateway: RunningGateway) -> None:
    body = question("x", providerOptions={"gateway": {"order": ["globex", "unknown", "acme"]}})

    tried = []
    for name in (None, "globex", "acme"):
        if name:
            await gateway.control("/gateway/providers", {"name": name, "enabled": False})
        message = (await gateway.chat(body))[1]["choices"][0]["message"]
        routing = message["provider_metadata"]["gateway"]["routing"]
        tried.append([attempt["provider"] for attempt in routing["attempts"]])
        assert routing["finalProvider"] == tried[-1][-1]

    assert tried == [["globex"], ["globex", "acme"], ["globex", "acme", "initech"]]
    await gateway.control("/gateway/providers", {"name": "initech", "enabled": False})
    assert (await gateway.chat(body))[0] == 503


@each_case(
    ("url", "is_accepted"),
    [
        ("https://shop.example/cat.png", True),
        (PNG, True),
        ("http://shop.example/cat.png", False),
        ("https://", False),
        ("file:///etc/passwd", False),
        (PNG.replace("png", "svg+xml"), False),
        (PNG.replace("png", "jpeg"), False),
        (PNG + "@", False),
        ("data:image/png;base64,", False),
        ("data:image/png,abc", False),
    ],
)
async def test_p63_image_is_an_https_address_or_a_valid_data_url(
    gateway: RunningGateway, url: str, *, is_accepted: bool
) -> None:
    parts = [
        {"type": "text", "text": "cat?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "auto"}},
    ]

    status, body = await gateway.chat({"model": MODEL, "messages": [{"role": "user", "content": parts}]})

    if is_accepted:
        assert body["choices"][0]["message"]["content"] == "You wrote: cat?\nImages: 1."
    else:
        assert status == 400
        assert "image_url" in body["error"]["message"]


async def test_p64_tool_choice_none_calls_no_tool(gateway: RunningGateway) -> None:
    _, body = await gateway.chat(question("Oslo", tools=[WEATHER], tool_choice="none"))

    assert "tool_calls" not in body["choices"][0]["message"]


async def test_p65_stream_has_the_fragments_of_the_whole_answer(gateway: RunningGateway) -> None:
    chunks = events(await gateway.stream(question("a b c", stream_options={"include_usage": True})))

    whole = (await gateway.chat(question("a b c")))[1]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert len(deltas) > 4


async def test_p65_stream_has_tool_calls_in_deltas(gateway: RunningGateway) -> None:
    call = {"name": "weather", "arguments": {"town": "Oslo, a town of some size"}}
    await gateway.control("/gateway/script", [{"text": "one moment", "tool_calls": [call, call]}])

    chunks = events(await gateway.stream(question("x", tools=[WEATHER])))

    pieces = [piece for chunk in chunks for piece in chunk["choices"][0]["delta"].get("tool_calls", [])]
    begun = [(piece["index"], piece["id"]) for piece in pieces if "id" in piece]
    assert begun == [(0, "call_1_0"), (1, "call_1_1")]
    for index in (0, 1):
        arguments = [piece["function"]["arguments"] for piece in pieces if piece["index"] == index]
        assert json.loads("".join(arguments)) == call["arguments"]
        assert len(arguments) > 2


async def test_answer_longer_than_max_tokens_is_cut(gateway: RunningGateway) -> None:
    _, body = await gateway.chat(question("a long question", max_tokens=2))

    assert body["choices"][0]["message"]["content"] == "You wrot"
    assert body["choices"][0]["finish_reason"] == "length"


async def test_answer_names_spans_of_the_data_if_the_instructions_request_it(gateway: RunningGateway) -> None:
    rows = [
        {"part": "error", "span_id": "a1", "service": "web", "name": "GET /", "duration_ms": 12.4},
        {"part": "other", "span_id": "a2", "service": "db", "name": "SELECT", "duration_ms": 3},
    ]
    data = "\n".join(["<data>", *map(json.dumps, rows), json.dumps(rows[0]), "{broken", "</data>"])
    request = question(data)
    request["messages"].insert(0, {"role": "system", "content": "Name spans as [span:SPAN_ID]."})

    _, reply = await gateway.chat(request)
    _, quoted = await gateway.chat(question(data))

    assert reply["choices"][0]["message"]["content"] == (
        "GET / of web failed after 12 ms [span:a1]. SELECT of db took 3 ms [span:a2]."
    )
    assert quoted["choices"][0]["message"]["content"].startswith("You wrote: <data>")


async def test_scripted_answers_are_sent_once_in_their_order(gateway: RunningGateway) -> None:
    await gateway.control("/gateway/script", [{"text": "one"}, {"text": "two", "finish_reason": "length"}])

    answers = [(await gateway.chat(question("x")))[1]["choices"][0] for _ in range(3)]

    assert [answer["message"]["content"] for answer in answers] == ["one", "two", "You wrote: x"]
    assert [answer["finish_reason"] for answer in answers] == ["stop", "length", "stop"]


@each_case(
    ("path", "body", "status"),
    [
        ("/gateway/script", [{"words": "x"}], 400),
        ("/gateway/script", {"text": "x"}, 400),
        ("/gateway/script", [{"text": "x"}] * 1_001, 400),
        ("/gateway/providers", {"name": "acme"}, 400),
        ("/gateway/providers", {"name": "other", "enabled": True}, 404),
    ],
)
async def test_invalid_control_request_is_refused(
    gateway: RunningGateway, path: str, body: object, status: int
) -> None:
    assert (await gateway.control(path, body))[0] == status


async def test_control_api_lists_the_requests_of_clients(gateway: RunningGateway) -> None:
    await gateway.chat(question("x", unknown_field=1))

    async with gateway.session.get(gateway.url.replace("/gateway", "/control/gateway/requests")) as answer:
        assert await answer.json() == [question("x", unknown_field=1)]


@each_case(
    "nulls",
    [
        *({name: None} for name in ("stream", "tools", "tool_choice", "stream_options", "max_tokens")),
        *({name: None} for name in ("providerOptions", "max_completion_tokens", "response_format")),
        {"providerOptions": {"gateway": None}},
        {"providerOptions": {"gateway": {"order": None}}},
        {"stream_options": {"include_usage": None}},
        {"tools": [{"type": "function", "function": {"name": "a", "description": None, "parameters": None}}]},
    ],
    ids=str,
)
async def test_p62_null_stands_for_a_missing_field(gateway: RunningGateway, nulls: dict[str, Any]) -> None:
    status, answer = await gateway.chat(question("x", **nulls))

    assert (status, answer.get("error")) == (200, None)


async def test_p62_answer_has_the_response_format(gateway: RunningGateway) -> None:
    schema = {
        "type": "object",
        "properties": {"cause": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["cause", "count"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    texts = [
        (await gateway.chat(question("x", response_format=each)))[1]["choices"][0]["message"]["content"]
        for each in (form, {"type": "json_object"}, {"type": "text"})
    ]

    assert [json.loads(text) for text in texts[:2]] == [{"cause": "x", "count": 1}, {}]
    assert texts[2] == "You wrote: x"


@each_case("scheme", ["bearer", "BEARER", "Bearer"])
async def test_p60_scheme_of_the_api_key_is_accepted_in_any_case(
    gateway: RunningGateway, scheme: str
) -> None:
    headers = {"Authorization": f"{scheme} {API_KEY}"}
    async with gateway.session.get(f"{gateway.url}/v1/models", headers=headers) as answer:
        assert answer.status == 200


@each_case(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/embeddings", 404, "not_found"),
        ("POST", "/v1/completions", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
    ],
)
async def test_unknown_path_of_the_gateway_is_answered_with_an_error_body(
    gateway: RunningGateway, method: str, path: str, status: int, code: str
) -> None:
    headers = {"Authorization": f"Bearer {API_KEY}"}
    async with gateway.session.request(method, gateway.url + path, headers=headers) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (status, code)
