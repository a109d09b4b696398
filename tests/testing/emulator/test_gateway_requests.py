"""Tests of the emulated gateway: optional parts of a request, the form of its answer, and unknown paths."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.gateway import API_KEY, RunningGateway, question, running_gateway


@pytest.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    async with running_gateway() as running:
        yield running


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer"])
async def test_p60_scheme_of_the_api_key_is_accepted_in_any_case(
    gateway: RunningGateway, scheme: str
) -> None:
    headers = {"Authorization": f"{scheme} {API_KEY}"}
    async with gateway.session.get(f"{gateway.url}/v1/models", headers=headers) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
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
