"""Tests of deployment events: the array, and followed streams in every form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.support.cases import each_case
from tests.support.emulator import RunningEmulator
from tests.support.platform_events import FULL_EVENT
from trace_drain_testing.emulator.deployments import STATES


async def add(platform: RunningEmulator, deployment: str, *events: dict[str, Any]) -> None:
    await platform.control("POST", f"/deployments/{deployment}/events", list(events))


async def get(platform: RunningEmulator, deployment: str, **query: str | int) -> tuple[int, Any]:
    parameters = {"teamId": platform.facts["team_id"], **query}
    return await platform.call("GET", f"/v3/deployments/{deployment}/events", params=parameters)


async def texts(platform: RunningEmulator, deployment: str, **query: str | int) -> list[str]:
    status, events = await get(platform, deployment, **query)
    assert status == 200, events
    return [event["payload"].get("text", event["type"]) for event in events]


def line(text: str, created: int, **payload: object) -> dict[str, Any]:
    return {"type": "stdout", "created": created, "payload": {"text": text, **payload}}


@asynccontextmanager
async def following(
    platform: RunningEmulator, deployment: str, **query: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Follow the events of a deployment."""
    parameters = {"teamId": platform.facts["team_id"], "follow": "1", **query}
    headers = {"Authorization": f"Bearer {platform.facts['token']}"}
    url = f"{platform.facts['base_url']}/v3/deployments/{deployment}/events"
    async with platform.session.get(url, params=parameters, headers=headers) as answer:
        assert answer.status == 200
        yield answer


async def test_p20_events_are_an_array_for_an_id_and_for_a_host_name(platform: RunningEmulator) -> None:
    deployment = await platform.deployment(url="shop.example")
    await add(platform, deployment, line("built", 1))

    by_id = await get(platform, deployment)
    by_host = await get(platform, "shop.example")

    assert by_id == by_host
    assert [event["payload"]["text"] for event in by_id[1]] == ["built"]


async def test_p20_unknown_deployment_is_answered_404(platform: RunningEmulator) -> None:
    status, body = await get(platform, "dpl_missing")

    assert (status, body["error"]["code"]) == (404, "not_found")


@each_case(
    ("query", "expected"),
    [
        ({}, ["a", "b", "c"]),
        ({"direction": "forward"}, ["a", "b", "c"]),
        ({"direction": "backward"}, ["c", "b", "a"]),
        ({"direction": "backward", "limit": 1}, ["c"]),
        ({"limit": 2}, ["a", "b"]),
        ({"limit": -1}, ["a", "b", "c"]),
        ({"since": 20}, ["b", "c"]),
        ({"until": 20}, ["a", "b"]),
        ({"since": 20, "until": 20}, ["b"]),
        ({"statusCode": "5xx"}, ["c"]),
        ({"statusCode": "404"}, ["b"]),
        ({"statusCode": "400-503"}, ["b", "c"]),
        ({"name": "bld_1"}, ["a"]),
    ],
)
async def test_p21_parameters_select_and_order_events(
    platform: RunningEmulator, query: dict[str, str | int], expected: list[str]
) -> None:
    deployment = await platform.deployment()
    await add(
        platform,
        deployment,
        line("c", 30, proxy={"statusCode": 503}),
        line("a", 10, info={"name": "bld_1"}),
        line("b", 20, statusCode=404),
    )

    assert await texts(platform, deployment, **query) == expected


async def test_p21_limit_of_minus_one_returns_more_events_than_the_default(platform: RunningEmulator) -> None:
    deployment = await platform.deployment()
    await add(platform, deployment, *(line("x", number) for number in range(1_500)))

    assert len(await texts(platform, deployment)) == 1_000
    assert len(await texts(platform, deployment, limit=-1)) == 1_500


async def test_p21_delimiters_and_build_events_can_be_left_out(platform: RunningEmulator) -> None:
    deployment = await platform.deployment()
    await add(platform, deployment, {"type": "delimiter"}, {"type": "stderr"}, {"type": "request"})

    assert await texts(platform, deployment) == ["delimiter", "stderr", "request"]
    assert await texts(platform, deployment, delimiter=0) == ["stderr", "request"]
    assert await texts(platform, deployment, builds=0) == ["request"]


@each_case(
    "query",
    [
        {"direction": "up"},
        {"follow": "yes"},
        {"limit": "-2"},
        {"limit": "1.5"},
        {"limit": "NaN"},
        {"since": "yesterday"},
        {"until": "1e999"},
        {"statusCode": "6xx"},
        {"name": "dpl_1"},
        {"delimiter": "2"},
    ],
)
async def test_p21_invalid_value_is_answered_400(platform: RunningEmulator, query: dict[str, str]) -> None:
    status, body = await get(platform, await platform.deployment(), **query)

    assert (status, body["error"]["code"]) == (400, "bad_request")


async def test_p22_event_has_type_created_and_payload(platform: RunningEmulator) -> None:
    deployment = await platform.deployment()
    await add(platform, deployment, {"type": "delimiter"})

    _, (event,) = await get(platform, deployment)

    assert (event["type"], event["created"]) == ("delimiter", 1_790_000_000_000)
    assert isinstance(event["payload"], dict)


async def test_p23_payload_has_ids_times_and_serial(platform: RunningEmulator) -> None:
    deployment = await platform.deployment()
    await add(platform, deployment, line("a", 7, requestId="req_1", statusCode=200), line("b", 7))

    _, (first, second) = await get(platform, deployment)

    assert first["payload"] == {
        "deploymentId": deployment,
        "text": "a",
        "id": first["payload"]["serial"],
        "date": 7,
        "serial": first["payload"]["serial"],
        "created": 7,
        "statusCode": 200,
        "requestId": "req_1",
    }
    assert first["payload"]["id"] != second["payload"]["id"]


async def test_p24_proxy_and_unknown_fields_are_kept(platform: RunningEmulator) -> None:
    deployment = await platform.deployment()
    await add(platform, deployment, FULL_EVENT)

    _, (document,) = await get(platform, deployment)

    assert document == FULL_EVENT


async def test_p25_followed_stream_sends_events_as_they_happen_and_ends_when_the_deployment_is_ready(
    platform: RunningEmulator,
) -> None:
    deployment = await platform.deployment()
    await add(platform, deployment, line("before", 1))

    async with following(platform, deployment) as answer:
        assert answer.content_type == "application/stream+json"
        assert json.loads(await answer.content.readline())["payload"]["text"] == "before"
        await add(platform, deployment, line("live", 2))
        assert json.loads(await answer.content.readline())["payload"]["text"] == "live"
        assert await answer.content.readline() == b"\n", "a keep-alive"
        await platform.control("POST", f"/deployments/{deployment}/state", {"state": "READY"})
        rest = [json.loads(each) for each in (await answer.content.read()).splitlines() if each]

    assert [event["payload"]["info"]["readyState"] for event in rest] == ["READY"]


@pytest.mark.parametrize("shape", ["json-lines", "without-keep-alive", "array", "event-stream"])
async def test_p25_every_form_of_a_followed_stream_has_every_event(
    platform: RunningEmulator, shape: str
) -> None:
    deployment = await platform.deployment()
    await platform.control("POST", "/unstated", {"P25": shape})
    await add(platform, deployment, line("a", 1))

    async with following(platform, deployment) as answer:
        # After the first bytes, the stream is live.
        first = await answer.content.readany()
        await add(platform, deployment, line("b", 2))
        await platform.control("POST", f"/deployments/{deployment}/state", {"state": "ERROR"})
        body = (first + await answer.content.read()).decode()

    if shape == "array":
        events = json.loads(body)
    else:
        lines = [each.removeprefix("data: ") for each in body.splitlines() if each and each[0] != ":"]
        events = [json.loads(each) for each in lines]
    assert [event["payload"].get("text") for event in events] == ["a", "b", None]


async def test_followed_stream_ends_when_the_installation_is_removed(platform: RunningEmulator) -> None:
    deployment = await platform.deployment()
    installation = next(iter(platform.state.installations.by_id))

    async with following(platform, deployment) as answer:
        await platform.control("POST", f"/installations/{installation}/remove")
        await asyncio.wait_for(answer.content.read(), 60)


async def test_p26_state_of_a_deployment_is_an_event(platform: RunningEmulator) -> None:
    deployment = await platform.deployment()
    for state in STATES:
        await platform.control("POST", f"/deployments/{deployment}/state", {"state": state})

    _, events = await get(platform, deployment)

    assert [event["payload"]["info"]["readyState"] for event in events] == list(STATES)


@each_case("fault", ["events-twice", "events-out-of-order"])
async def test_fault_repeats_or_reorders_events(platform: RunningEmulator, fault: str) -> None:
    deployment = await platform.deployment()
    await add(platform, deployment, line("a", 1), line("b", 2), line("c", 3))
    await platform.control("POST", "/faults", {"name": fault})

    order = await texts(platform, deployment)

    assert order == (["a", "a", "b", "c"] if fault == "events-twice" else ["b", "a", "c"])
    assert await texts(platform, deployment) == ["a", "b", "c"], "the fault happens once"


async def test_fault_cuts_a_followed_stream_in_an_event(platform: RunningEmulator) -> None:
    deployment = await platform.deployment()
    await add(platform, deployment, line("a", 1))

    async with following(platform, deployment) as answer:
        await answer.content.readline()
        await platform.control("POST", "/faults", {"name": "api-cut"})
        await add(platform, deployment, line("b", 2))
        # Without the cut, the stream would end here.
        await platform.control("POST", f"/deployments/{deployment}/state", {"state": "READY"})
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()


async def test_fault_sends_the_bytes_of_an_answer_slowly_and_completely(platform: RunningEmulator) -> None:
    deployment = await platform.deployment()
    await add(platform, deployment, line("a" * 100, 1))
    await platform.control("POST", "/faults", {"name": "api-slow-bytes"})

    assert await texts(platform, deployment) == ["a" * 100]
    assert (await platform.control("GET", "/state"))["faults"] == {}
