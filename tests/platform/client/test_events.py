"""Events of a deployment: their parameters and their form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from receiver.platform.client import errors
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.event import Event, Info, Payload, Proxy, parse_event
from receiver.platform.client.events import EventQuery, events
from tests.support.cases import each_case
from tests.support.platform_events import FULL_EVENT, START_MS, ids, raw_event
from tests.support.platform_server import Answer, PlatformServer, platform_server


async def read(server: PlatformServer, query: EventQuery | None = None) -> list[Event]:
    async with PlatformClient(server.url, "token", team="team_1") as client:
        return await events(client, "dpl_1", query or EventQuery())


async def test_p20_events_are_read_from_an_array() -> None:
    async with platform_server(Answer([raw_event(1), raw_event(2)])) as server:
        assert ids(await read(server)) == ["evt_1", "evt_2"]
        server.script(Answer([]))
        assert await read(server) == []

    assert server.received[0].method == "GET"
    assert server.received[0].path == "/v3/deployments/dpl_1/events"
    assert server.received[0].body == b""


async def test_p21_each_option_is_a_parameter() -> None:
    query = EventQuery(
        direction="backward",
        limit=-1,
        since=1,
        until=2,
        status_code="5xx",
        build="bld_1",
        delimiter=True,
        builds=False,
    )
    async with platform_server(Answer([])) as server:
        await read(server, query)
        await read(server)

    expected = {
        "direction": "backward",
        "limit": "-1",
        "since": "1",
        "until": "2",
        "statusCode": "5xx",
        "name": "bld_1",
        "delimiter": "1",
        "builds": "0",
    }
    assert server.received[0].query == {**expected, "teamId": "team_1"}
    assert server.received[1].query == {"teamId": "team_1"}


@each_case("query", [{"limit": -2}, {"status_code": "6xx"}, {"status_code": "5x"}, {"build": "a b"}])
async def test_p21_option_out_of_range_is_not_sent(query: dict[str, Any]) -> None:
    async with platform_server(Answer([])) as server:
        with pytest.raises(errors.InvalidCall):
            await read(server, EventQuery(**query))

    assert server.received == []


def test_p22_p23_p24_an_event_has_all_sent_fields_and_those_that_the_receiver_reads() -> None:
    event = parse_event(json.dumps(FULL_EVENT).encode())

    assert (event.type, event.created, event.raw) == ("request", START_MS, FULL_EVENT)
    assert event.payload == Payload(
        info=Info(name="bld_1", path="api", step="install", ready_state="BUILDING"),
        text="GET /",
        id="evt_1",
        status_code=200,
        proxy=Proxy(method="GET", host="shop.example", path="/", status_code=200),
    )


@each_case(
    ("payload", "expected"),
    [
        ({"id": 7, "statusCode": "502"}, ("7", 502, "")),
        ({"id": None, "statusCode": None}, ("", None, "")),
        ({"id": True, "statusCode": [1], "text": {"a": 1}}, ("", None, "")),
        ({"id": "1", "info": "x", "proxy": [], "text": "t"}, ("1", None, "t")),
        ("text", ("", None, "")),
        (None, ("", None, "")),
    ],
)
def test_field_of_another_type_is_converted_or_missing(payload: Any, expected: tuple[Any, ...]) -> None:  # noqa: ANN401 - any JSON
    event = parse_event(json.dumps({"type": "a", "created": "5", "payload": payload}).encode())
    found = event.payload

    assert (found.id, found.status_code, found.text) == expected
    assert event.raw["payload"] == payload
    assert event.created == 5


def test_field_of_another_type_leaves_the_others_of_its_part() -> None:
    payload = {"proxy": {"host": ["a"], "statusCode": 200, "path": None}}

    event = parse_event(json.dumps({"type": "a", "created": 5, "payload": payload}).encode())

    assert event.payload.proxy == Proxy(status_code=200)


@each_case(
    "text",
    [
        b"1",
        b"[]",
        b"{}",
        b'{"type": "a"}',
        b'{"type": 1, "created": 1}',
        b'{"type": "a", "created": -1}',
        b'{"type": "a", "created": 1e300}',
        b'{"type": "a", "created": null}',
    ],
)
def test_event_without_type_or_time_is_an_error(text: bytes) -> None:
    with pytest.raises(errors.WrongShape):
        parse_event(text)


@each_case("body", [b"{}", b"[1", b"[}", b"[]]", b"[1]", b"[{]", b'[{"type": "a"}', b"", b"[][]"])
async def test_answer_that_is_no_array_of_events_is_an_error(body: bytes) -> None:
    async with platform_server(Answer(body)) as server:
        with pytest.raises(errors.WrongAnswer):
            await read(server)
