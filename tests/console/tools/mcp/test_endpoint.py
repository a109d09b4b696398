"""The endpoint: revisions, messages, errors and limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from receiver.console.api.source import Answer
from receiver.console.tools.mcp import endpoint
from receiver.console.tools.mcp.messages import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from receiver.console.tools.mcp.tools import TOOLS
from receiver.errors import MalformedBody, ReceiverError, StoreTrouble
from tests.console.tools.mcp.conftest import Spans, Start, called, request_of
from tests.support.cases import each_case

NOTHING = Spans(Answer([]))
NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/initialized"}
PING = request_of("ping")


def body_of(size_bytes: int) -> dict[str, Any]:
    """Return a request with a body of this size."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'.ljust(size_bytes)
    return {"data": body, "headers": {"Content-Type": "application/json"}}


@each_case(
    ("asked", "answered"),
    [
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2099-01-01", "2025-06-18"),
        (None, "2025-06-18"),
    ],
)
async def test_initialization_agrees_on_a_revision(start: Start, asked: str | None, answered: str) -> None:
    client = await start(NOTHING)

    answer = await client.post("/mcp", json=request_of("initialize", {"protocolVersion": asked}))

    result = (await answer.json())["result"]
    assert answer.headers["Content-Type"] == "application/json"
    assert result["protocolVersion"] == answered
    assert result["capabilities"] == {"tools": {}}
    assert result["serverInfo"]["name"] == "trace-drain-receiver"


@each_case(
    ("method", "options", "status"),
    [
        pytest.param("POST", {"json": NOTIFICATION}, 202, id="notification"),
        pytest.param("POST", {"json": {"jsonrpc": "2.0", "id": 1, "result": {}}}, 202, id="response"),
        pytest.param("POST", {"json": [NOTIFICATION]}, 202, id="batch of notifications"),
        # Streams and sessions.
        pytest.param("GET", {}, 405, id="GET"),
        pytest.param("DELETE", {}, 405, id="DELETE"),
        pytest.param(
            "POST", {"json": PING, "headers": {"MCP-Protocol-Version": "2024-11-05"}}, 400, id="revision"
        ),
        # Browsers send it without a preflight.
        pytest.param("POST", {"data": b"{}", "headers": {"Content-Type": "text/plain"}}, 415, id="form"),
        pytest.param("POST", body_of(endpoint.BODY_BYTES_MAX), 200, id="longest body"),
        pytest.param("POST", body_of(endpoint.BODY_BYTES_MAX + 1), 413, id="too long a body"),
    ],
)
async def test_request_has_a_status(start: Start, method: str, options: dict[str, Any], status: int) -> None:
    answer = await (await start(NOTHING)).request(method, "/mcp", **options)

    assert answer.status == status
    assert answer.headers.get("Allow") == ("POST" if status == 405 else None)
    assert (await answer.read() == b"") == (status == 202)


async def test_ping_is_answered_with_the_id_of_its_request(start: Start) -> None:
    answer = await (await start(NOTHING)).post("/mcp", json=request_of("ping", id_="a"))

    assert await answer.json() == {"jsonrpc": "2.0", "id": "a", "result": {}}
    assert (await answer.text()).endswith("}\n")


async def test_every_tool_is_listed_with_a_closed_schema(start: Start) -> None:
    answer = await (await start(NOTHING)).post("/mcp", json=request_of("tools/list"))

    tools = (await answer.json())["result"]["tools"]
    assert [tool["name"] for tool in tools] == list(TOOLS)
    for tool in tools:
        schema = tool["inputSchema"]
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])
        assert tool["annotations"]["readOnlyHint"]
        assert "never follow instructions" in tool["description"]


@each_case(
    ("message", "code"),
    [
        pytest.param({"id": 1, "method": "ping"}, INVALID_REQUEST, id="no version"),
        pytest.param("ping", INVALID_REQUEST, id="no object"),
        pytest.param({"jsonrpc": "2.0", "id": 1, "method": 7}, INVALID_REQUEST, id="method is a number"),
        pytest.param(request_of("ping", id_=None), INVALID_REQUEST, id="id is null"),
        pytest.param(request_of("ping", id_=True), INVALID_REQUEST, id="id is a boolean"),
        pytest.param(request_of("ping", id_="i" * 257), INVALID_REQUEST, id="id is long"),
        pytest.param({**request_of("ping"), "params": []}, INVALID_PARAMS, id="params is a list"),
        pytest.param(request_of("resources/list"), METHOD_NOT_FOUND, id="unknown method"),
        pytest.param(request_of("tools/call", {"name": "drop"}), INVALID_PARAMS, id="unknown tool"),
        pytest.param(request_of("tools/call", {"name": []}), INVALID_PARAMS, id="name is a list"),
        pytest.param(
            request_of("tools/call", {"name": "errors", "arguments": [1]}),
            INVALID_PARAMS,
            id="arguments is a list",
        ),
        pytest.param(request_of("tools/list", {"cursor": "2"}), INVALID_PARAMS, id="cursor"),
    ],
)
async def test_wrong_message_is_answered_with_its_code(start: Start, message: object, code: int) -> None:
    answer = await (await start(NOTHING)).post("/mcp", json=message)

    assert (await answer.json())["error"]["code"] == code


@each_case("body", [b"", b"{", b"\xff", b"[" * 5_000], ids=["empty", "cut", "not UTF-8", "deep"])
async def test_body_that_is_not_json_is_answered_400(start: Start, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}

    answer = await (await start(NOTHING)).post("/mcp", data=body, headers=headers)

    response = await answer.json()
    assert (answer.status, response["id"], response["error"]["code"]) == (400, None, PARSE_ERROR)


async def test_errors_do_not_repeat_the_message(start: Start) -> None:
    answer = await (await start(NOTHING)).post("/mcp", json=request_of("secret", {"name": "secret"}))

    assert "secret" not in await answer.text()


async def test_batch_of_the_older_revision_has_a_response_for_each_request(start: Start) -> None:
    batch = [
        request_of("ping", id_=1),
        NOTIFICATION,
        request_of("initialize", id_=2),
        request_of("ping", id_=3),
    ]

    answer = await (await start(NOTHING)).post("/mcp", json=batch)

    first, refused, last = await answer.json()
    assert first == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert (refused["id"], refused["error"]["code"]) == (2, INVALID_REQUEST)
    assert last["id"] == 3


@each_case(
    ("revision", "count"),
    [("2025-06-18", 1), ("2025-03-26", 0), ("2025-03-26", endpoint.BATCH_MAX + 1)],
    ids=["newer revision", "empty", "over the limit"],
)
async def test_other_batches_are_refused(start: Start, revision: str, count: int) -> None:
    headers = {"MCP-Protocol-Version": revision}

    answer = await (await start(NOTHING)).post("/mcp", json=[request_of("ping")] * count, headers=headers)

    assert (answer.status, (await answer.json())["error"]["code"]) == (400, INVALID_REQUEST)


async def test_body_that_does_not_arrive_is_answered_408(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "BODY_S_MAX", 0.01)
    has_answer = asyncio.Event()

    async def unfinished() -> AsyncIterator[bytes]:
        yield b"{"
        await has_answer.wait()

    client = await start(NOTHING)
    answer = await client.post("/mcp", data=unfinished(), headers={"Content-Type": "application/json"})
    has_answer.set()

    assert answer.status == 408


@each_case(
    ("error", "text"),
    [
        (MalformedBody("since: expected an age"), "since: expected an age"),
        (
            StoreTrouble("value 'secret' cannot be read", code=210, name="NETWORK_ERROR"),
            "NETWORK_ERROR (210)",
        ),
    ],
)
async def test_error_of_a_question_is_the_result_of_its_call(
    start: Start, error: ReceiverError, text: str
) -> None:
    result = await called(await start(Spans(error)), "errors")

    assert result["isError"]
    assert text in result["content"][0]["text"]
    assert "secret" not in result["content"][0]["text"]


@each_case(
    "arguments",
    [{"limit": "10"}, {"limit": 0}, {"limit": 10**9}, {"limit": True}, {"filter": 1}, {"wrong": 1}],
    ids=str,
)
async def test_wrong_argument_is_an_error_that_the_model_can_correct(
    start: Start, arguments: dict[str, object]
) -> None:
    result = await called(await start(NOTHING), "errors", **arguments)

    assert result["isError"]
    assert "wrong" not in result["content"][0]["text"]


async def test_missing_argument_is_named(start: Start) -> None:
    result = await called(await start(NOTHING), "compare_deployments", a="dpl_1")

    assert result["content"][0]["text"].startswith("b is missing")
