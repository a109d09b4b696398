"""Tests of access to the platform API: tokens, teams, scopes, and faults of responses."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from tests.support.cases import each_case
from tests.support.emulator import RunningEmulator


async def events_path(platform: RunningEmulator) -> str:
    return f"/v3/deployments/{await platform.deployment()}/events"


async def installed(platform: RunningEmulator, **fields: object) -> str:
    """Install the integration, and return the token."""
    code = (await platform.install(**fields))["code"]
    status, answer = await platform.exchange(code)
    assert status == 200
    return str(answer["access_token"])


@each_case("token", ["", "unknown", "tok_é"])
async def test_p1_call_without_a_valid_token_is_answered_401(platform: RunningEmulator, token: str) -> None:
    path = f"{await events_path(platform)}?teamId={platform.facts['team_id']}"

    status, body = await platform.call("GET", path, token=token)

    assert (status, body["error"]["code"]) == (401, "not_authorized")


async def test_p1_token_without_the_scope_is_answered_403(platform: RunningEmulator) -> None:
    path = f"{await events_path(platform)}?teamId={platform.facts['team_id']}"
    token = await installed(platform, scopes=["project:write", "log-drain"])

    status, body = await platform.call("GET", path, token=token)

    assert (status, body["error"]["code"]) == (403, "forbidden")
    assert "deployment:read" in body["error"]["message"]


@each_case(
    ("shape", "expected"),
    [("400", (400, "missing_team_param")), ("403", (403, "forbidden")), ("422", (422, "team_required"))],
)
async def test_p2_call_of_a_team_without_its_parameter_fails_in_the_switched_shape(
    platform: RunningEmulator, shape: str, expected: tuple[int, str]
) -> None:
    await platform.control("POST", "/unstated", {"P2": shape})

    status, body = await platform.call("GET", await events_path(platform))

    assert (status, body["error"]["code"]) == expected


@each_case(
    ("query", "status"),
    [
        ("slug=acme", 200),
        ("slug=other", 403),
        ("teamId=team_other", 403),
        ("slug=acme&teamId=team_other", 403),
    ],
)
async def test_p2_slug_names_the_team_as_well(platform: RunningEmulator, query: str, status: int) -> None:
    assert (await platform.call("GET", f"{await events_path(platform)}?{query}"))[0] == status


async def test_p2_installation_on_an_account_needs_no_team(platform: RunningEmulator) -> None:
    token = await installed(platform, team=False)

    assert (await platform.call("GET", await events_path(platform), token=token))[0] == 200


async def test_p3_control_api_and_page_show_no_token(platform: RunningEmulator) -> None:
    state = json.dumps(await platform.control("GET", "/state"))
    async with platform.session.get(platform.facts["control_url"]) as answer:
        page = await answer.text()

    text = state + page
    assert [name for name in ("token", "client_secret", "api_key") if platform.facts[name] in text] == []


async def test_p4_path_without_the_version_is_answered_404(platform: RunningEmulator) -> None:
    path = await events_path(platform)
    team = f"?teamId={platform.facts['team_id']}"

    assert (await platform.call("GET", path + team))[0] == 200
    for other in (path.removeprefix("/v3"), path.replace("/v3/", "/v2/")):
        assert (await platform.call("GET", other + team))[0] == 404


async def test_p5_answers_and_errors_are_json(platform: RunningEmulator) -> None:
    for query in ("", f"?teamId={platform.facts['team_id']}"):
        url = platform.facts["base_url"] + await events_path(platform) + query
        headers = {"Authorization": f"Bearer {platform.facts['token']}"}
        async with platform.session.get(url, headers=headers) as answer:
            assert answer.content_type == "application/json"


@each_case("shape", ["object", "flat", "problem", "text"])
async def test_p6_error_has_the_switched_shape_and_its_code(platform: RunningEmulator, shape: str) -> None:
    await platform.control("POST", "/unstated", {"P6": shape})
    url = platform.facts["base_url"] + await events_path(platform)

    async with platform.session.get(url) as answer:
        text = await answer.text()

    assert answer.status == 401
    if shape == "text":
        error_code = text.partition(":")[0]
    else:
        body = json.loads(text)
        error_code = body["error"]["code"] if shape == "object" else body["code"]
    assert error_code == "not_authorized"


@each_case(
    ("fault", "status", "code"),
    [
        ("api-429", 429, "rate_limited"),
        ("api-500", 500, "internal"),
        ("configuration-disabled", 403, "integration_configuration_disabled"),
    ],
)
async def test_fault_refuses_as_many_requests_as_it_counts(
    platform: RunningEmulator, fault: str, status: int, code: str
) -> None:
    url = f"{platform.facts['base_url']}{await events_path(platform)}?teamId={platform.facts['team_id']}"
    headers = {"Authorization": f"Bearer {platform.facts['token']}"}
    await platform.control("POST", "/faults", {"name": fault, "count": 2})

    for expected in (status, status, 200):
        async with platform.session.get(url, headers=headers) as answer:
            assert answer.status == expected
            assert expected == 200 or (await answer.json())["error"]["code"] == code
            assert (answer.headers.get("Retry-After") == "1") == (expected == 429)


async def test_fault_delays_an_answer_on_the_clock_of_the_emulator(platform: RunningEmulator) -> None:
    path = f"{await events_path(platform)}?teamId={platform.facts['team_id']}"
    await platform.control("POST", "/faults", {"name": "api-late"})
    call = asyncio.create_task(platform.call("GET", path))
    while (await platform.control("GET", "/state"))["faults"]:  # noqa: ASYNC110 - no event outside it
        await asyncio.sleep(0)
    await platform.control("POST", "/clock", {"advance_s": 4})
    assert not call.done()

    await platform.control("POST", "/clock", {"advance_s": 1})

    assert (await call)[0] == 200


async def test_fault_cuts_an_answer(platform: RunningEmulator) -> None:
    path = f"{await events_path(platform)}?teamId={platform.facts['team_id']}"
    await platform.control("POST", "/faults", {"name": "api-cut"})

    with pytest.raises(aiohttp.ClientPayloadError):
        await platform.call("GET", path)


async def test_fault_of_lost_ownership_disables_every_installation(platform: RunningEmulator) -> None:
    await platform.control("POST", "/faults", {"name": "ownership-lost"})

    state = await platform.control("GET", "/state")

    assert [each["state"] for each in state["installations"]] == ["disabled"]
    assert state["faults"] == {}
