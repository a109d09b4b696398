"""Limits of explanations: calls, rounds, budget, callers, and answers that are cut or refused."""

from __future__ import annotations

import asyncio
import json
from typing import cast
from unittest.mock import Mock

import pytest
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs

from receiver.platform.explain import conversation, explainer
from receiver.platform.explain.conversation import CALLS_MAX, NO_MORE_CALLS, ROUNDS_MAX
from receiver.platform.explain.request import ANSWER_CHARACTERS_MAX
from receiver.platform.explain.routes import while_connected
from tests.platform.explain.conftest import (
    API_KEY,
    LIMITED,
    TRACE,
    Json,
    Receiver,
    Start,
    calling,
    ended,
    headers,
    path_of,
    results_of,
    spoken,
    streamed,
    text_of,
)
from tests.support.access import ADMIN, OPERATOR, VIEWER, bearer
from tests.support.cases import each_case
from tests.support.platform_server import Answer


async def test_calls_have_a_limit(start: Start) -> None:
    receiver = await start(calling(*[("errors", {})] * (CALLS_MAX + 2)), spoken("Yes."))

    events = await receiver.explained()

    results = results_of(receiver.requests[1])
    assert [result == NO_MORE_CALLS for result in results] == [False] * CALLS_MAX + [True] * 2
    assert ended(events)["outcome"] == "complete"


async def test_rounds_have_a_limit(start: Start) -> None:
    receiver = await start(calling(("errors", {})))

    events = await receiver.explained()

    assert len(receiver.requests) == ROUNDS_MAX
    assert ended(events)["outcome"] == "cut"
    assert "did not answer" in ended(events)["problem"]


async def test_budget_ends_the_calls(start: Start) -> None:
    receiver = await start(calling(("errors", {})), spoken("Yes."), tokens_max=6_000)

    await receiver.explained()

    assert results_of(receiver.requests[1]) == [NO_MORE_CALLS]


async def test_budget_ends_the_explanation(start: Start) -> None:
    receiver = await start(calling(("errors", {})), tokens_max=10_000)

    events = await receiver.explained()

    sent = sum(event["sent"]["tokens"] for event in events if "sent" in event)
    assert sent <= 10_000
    assert "would exceed the budget of 10000 tokens" in ended(events)["problem"]


async def test_answer_has_a_limit(start: Start) -> None:
    receiver = await start(spoken(*["word " * 1_000] * 6))

    events = await receiver.explained()

    assert len(text_of(events)) <= ANSWER_CHARACTERS_MAX
    assert "longer than" in ended(events)["problem"]


@each_case("part", ["id", "name", "arguments"])
async def test_calls_count_towards_the_length_of_the_answer(receiver: Receiver, part: str) -> None:
    texts = {"name": "errors", "arguments": "{}", part: "x" * (ANSWER_CHARACTERS_MAX + 1)}
    call = {"index": 0, "id": texts.pop("id", "call_0"), "function": texts}
    receiver.gateway.received.clear()
    receiver.gateway.script(streamed({"tool_calls": [call]}), spoken("Yes."))

    events = await receiver.explained()

    assert len(receiver.requests) == 1
    assert "longer than" in ended(events)["problem"]


@pytest.mark.parametrize("piece", [b": keep-alive\n\n", b'data: {"choices": [{"delta": {}}]}\n\n'])
async def test_stream_without_texts_is_ended(
    start: Start, monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    monkeypatch.setattr(conversation, "SECONDS_MAX", 0.5)
    endless = Answer(pieces=[piece] * 100_000, pause_s=0.05, headers={"Content-Type": "text/event-stream"})
    receiver = await start(endless)

    events = await receiver.explained()

    assert text_of(events) == ""
    assert ended(events)["outcome"] != "complete"
    assert "not complete after" in ended(events)["problem"]


BEGINNING = b'data: {"choices": [{"delta": {"content": "The cause is"}}]}\n\n'


@each_case(
    "answer",
    [
        spoken("The cause is", is_cut=True),
        spoken("The cause is", reason="length"),
        spoken("The cause is", reason="content_filter"),
        streamed({"content": "The cause is"}, {"content": 1}, is_cut=True),
        Answer(pieces=[BEGINNING, b"data: {\n\n"]),
        Answer(pieces=[BEGINNING, b'data: {"error": {}}\n\n']),
        Answer(pieces=[BEGINNING]),
    ],
    ids=["cut", "length", "filter", "cut with another shape", "malformed", "error", "no end"],
)
async def test_answer_that_was_cut_is_shown_as_cut(receiver: Receiver, answer: Answer) -> None:
    receiver.gateway.script(answer)

    events = await receiver.explained()

    assert ended(events)["outcome"] == "cut", events
    assert ended(events)["problem"]
    assert ended(events)["usage"]["input_tokens"] > 0


@each_case(
    ("status", "expected"),
    [(401, "key"), (403, ""), (404, "platform models"), (429, ""), (500, ""), (302, "")],
)
async def test_error_of_the_gateway_is_no_answer(receiver: Receiver, status: int, expected: str) -> None:
    receiver.gateway.received.clear()
    receiver.gateway.script(Answer({"error": {"message": f"secret {API_KEY}"}}, status=status))

    events = await receiver.explained()

    assert text_of(events) == ""
    assert ended(events)["outcome"] == "none"
    # A request that is refused costs nothing.
    is_refused = 300 < status < 500 and status != 429
    assert (ended(events)["usage"]["input_tokens"] == 0) == is_refused
    assert expected in ended(events)["problem"]
    assert API_KEY not in json.dumps(events)
    assert len(receiver.gateway.received) == 1


async def test_answer_without_text_is_no_answer(start: Start) -> None:
    receiver = await start(spoken("  "))

    assert ended(await receiver.explained())["problem"] == "the model answered without text"


@each_case(
    ("missing", "name"), [({"api_key": ""}, "platform.api_key"), ({"model": ""}, "platform.explain.model")]
)
async def test_nothing_is_sent_until_the_settings_are_set(start: Start, missing: Json, name: str) -> None:
    receiver = await start(spoken("Yes."), **missing)

    for method in ("GET", "POST"):
        answer = await receiver.client.request(method, path_of(TRACE), json={}, headers=headers())
        assert answer.status == 409
        assert name in await answer.text()
    assert receiver.gateway.received == []


async def test_only_operators_may_spend_money(receiver: Receiver) -> None:
    for user, status in ((VIEWER, 403), (OPERATOR, 200), (ADMIN, 200), (LIMITED, 200)):
        for method in ("GET", "POST"):
            answer = await receiver.client.request(method, path_of(TRACE), json={}, headers=bearer(user))
            assert answer.status == status, (method, user.name)
            await answer.read()
    assert len(receiver.gateway.received) == 3


async def test_form_of_another_site_is_refused(receiver: Receiver) -> None:
    answer = await receiver.client.post(path_of(TRACE), data={"a": "b"}, headers=headers())

    assert answer.status == 415
    assert receiver.gateway.received == []


async def test_explanations_of_each_caller_and_of_all_callers_have_a_limit(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explainer, "EXPLANATIONS_MAX", 2)
    client = (await start(spoken("Wait.", hangs=True))).client

    answers = [
        await client.post(path_of(TRACE), json={}, headers=bearer(user))
        for user in (OPERATOR, OPERATOR, ADMIN, LIMITED)
    ]

    assert [answer.status for answer in answers] == [200, 429, 200, 503]
    assert "one at a time" in await answers[1].text()
    for answer in answers:
        answer.close()


async def test_client_that_leaves_cancels_the_request_to_the_gateway(start: Start) -> None:
    receiver = await start(spoken("Wait. ", "More.", hangs=True), spoken("Yes."))
    with capture_logs() as logged:
        answer = await receiver.client.post(path_of(TRACE), json={}, headers=headers())
        assert b"sent" in await answer.content.readline()
        # After this line nothing is sent to the client, so no write can fail.
        assert b"Wait." in await answer.content.readline()
        answer.close()
        while not any(line["event"] == "explanation ended" for line in logged):  # noqa: ASYNC110 - a list
            await asyncio.sleep(0.05)

    (line,) = [line for line in logged if line["event"] == "explanation ended"]
    assert line["error"] == "cancelled"
    # Another explanation is possible again.
    assert ended(await receiver.explained())["outcome"] == "complete"


async def test_work_for_a_client_that_has_left_is_cancelled() -> None:
    # The server of the other tests cancels handlers by itself; that of the receiver does not.
    ended_by: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended_by.append("cancelled")

    request = make_mocked_request("POST", "/")
    cast("Mock", request.transport).is_closing.return_value = True
    with pytest.raises(ConnectionResetError):
        await while_connected(request, endless())

    assert ended_by == ["cancelled"]
