"""Tests of installations: redirect, token exchange, scopes, and the states of a configuration."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.cases import each_case
from tests.support.emulator import REDIRECT_URI, RunningEmulator
from tests.support.webhook_receiver import WebhookReceiver
from trace_drain_testing.emulator.installations import SCOPES

DAY_S = 86_400


async def act(platform: RunningEmulator, installation: str, action: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
    return await platform.control("POST", f"/installations/{installation}/{action}", body)


async def token_of(platform: RunningEmulator, made: dict[str, str]) -> str:
    """Exchange the code of an installation for its token."""
    return str((await platform.exchange(made["code"]))[1]["access_token"])


async def status_of_call(platform: RunningEmulator, token: str | None = None) -> tuple[int, str]:
    """Call the API. Return the status and the code of the error."""
    path = f"/v1/teams/{platform.facts['team_id']}/microfrontends/{next(iter(platform.state.groups))}"
    status, body = await platform.call("PATCH", path, token=token)
    return status, body.get("error", {}).get("code", "")


async def advance(platform: RunningEmulator, seconds: float) -> None:
    await platform.control("POST", "/clock", {"advance_s": seconds})


def parameters_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


async def test_p30_reinstallation_has_a_new_id(platform: RunningEmulator) -> None:
    first = await platform.install()
    await act(platform, first["id"], "remove")
    second = await platform.install()

    assert first["id"].startswith("icfg_")
    assert second["id"].startswith("icfg_")
    assert second["id"] != first["id"]
    state = await platform.control("GET", "/state")
    states = {each["id"]: each["state"] for each in state["installations"]}
    assert (states[first["id"]], states[second["id"]]) == ("removed", "active")


@each_case(
    ("shape", "names"),
    [
        ("common", {"code", "configurationId", "teamId", "state", "next"}),
        ("minimal", {"code", "state"}),
        ("renamed", {"code", "state", "installation", "team", "continue"}),
        ("renamed-code", {"authorization_code", "state"}),
    ],
)
async def test_p31_code_arrives_as_a_parameter_of_the_redirect(
    platform: RunningEmulator, shape: str, names: set[str]
) -> None:
    await platform.control("POST", "/unstated", {"P31": shape})

    made = await platform.install(state="st", next="https://platform.example/done")

    parameters = parameters_of(made["redirect"])
    assert made["redirect"].startswith(f"{REDIRECT_URI}?")
    assert set(parameters) == names
    assert set(parameters.values()) <= {
        made["code"],
        made["id"],
        platform.facts["team_id"],
        "st",
        "https://platform.example/done",
    }
    assert parameters.get("code", parameters.get("authorization_code")) == made["code"]


async def test_p31_browser_is_redirected_with_a_code_that_can_be_exchanged(platform: RunningEmulator) -> None:
    query = {"redirect_uri": f"{REDIRECT_URI}?kept=1", "state": "st", "webhook_url": "http://127.0.0.1:1/"}
    url = platform.facts["install_url"]
    async with platform.session.get(url, params=query, allow_redirects=False) as answer:
        assert answer.status == 302
        parameters = parameters_of(answer.headers["Location"])

    assert (parameters["kept"], parameters["state"]) == ("1", "st")
    status, _ = await platform.exchange(parameters["code"], redirect_uri=query["redirect_uri"])
    assert status == 200


@each_case("redirect_uri", ["javascript:alert(1)", "/installed", "http://"])
async def test_p31_redirect_to_no_http_address_is_refused(
    platform: RunningEmulator, redirect_uri: str
) -> None:
    url = platform.facts["install_url"]
    async with platform.session.get(url, params={"redirect_uri": redirect_uri}) as answer:
        assert answer.status == 400


@each_case(
    ("shape", "refusal"),
    [("400-invalid_grant", (400, "invalid_grant")), ("401-invalid_code", (401, "invalid_code"))],
)
async def test_p31_code_is_exchanged_once(
    platform: RunningEmulator, shape: str, refusal: tuple[int, str]
) -> None:
    await platform.control("POST", "/unstated", {"P32-errors": shape})
    made = await platform.install()

    token = await token_of(platform, made)
    status, second = await platform.exchange(made["code"])

    assert (status, second["error"]["code"]) == refusal
    assert (await status_of_call(platform, token))[0] == 200


@pytest.mark.parametrize(("age_s", "status"), [(30 * 60 - 1, 200), (30 * 60, 400)])
async def test_p31_code_is_valid_for_30_minutes(platform: RunningEmulator, age_s: int, status: int) -> None:
    made = await platform.install()
    await advance(platform, age_s)

    assert (await platform.exchange(made["code"]))[0] == status


@each_case("name", ["client_id", "client_secret", "code", "redirect_uri"])
async def test_p32_every_field_of_the_exchange_is_required_and_checked(
    platform: RunningEmulator, name: str
) -> None:
    made = await platform.install()

    missing = await platform.exchange(**{"code": made["code"], name: ""})
    wrong = await platform.exchange(**{"code": made["code"], name: "http://127.0.0.1:1/other"})

    assert (missing[0], missing[1]["error"]["code"]) == (400, "bad_request")
    assert name in missing[1]["error"]["message"]
    assert (wrong[0], wrong[1]["error"]["code"]) == (400, "invalid_grant")
    assert (await platform.exchange(made["code"]))[0] == 200, "a refused exchange does not spend the code"


@each_case(
    ("shape", "names"),
    [
        ("common", {"access_token", "token_type", "team_id", "installation_id", "user_id"}),
        ("minimal", {"access_token", "team_id"}),
    ],
)
async def test_p32_answer_has_the_token_and_a_team_that_is_null_for_an_account(
    platform: RunningEmulator, shape: str, names: set[str]
) -> None:
    await platform.control("POST", "/unstated", {"P32": shape})
    for is_team, team_id in ((True, platform.facts["team_id"]), (False, None)):
        made = await platform.install(team=is_team)

        _, answer = await platform.exchange(made["code"])

        assert (set(answer), answer["team_id"]) == (names, team_id)


async def test_interrupted_exchange_uses_up_the_code(platform: RunningEmulator) -> None:
    made = await platform.install()
    await platform.control("POST", "/faults", {"name": "api-cut"})

    with pytest.raises(Exception, match="payload"):
        await platform.exchange(made["code"])

    assert (await platform.exchange(made["code"]))[1]["error"]["code"] == "invalid_grant"


async def test_p33_every_scope_can_be_granted_and_no_other(platform: RunningEmulator) -> None:
    made = await platform.install(scopes=list(SCOPES))
    url = f"{platform.facts['control_url']}/installations"
    body = {"redirect_uri": REDIRECT_URI, "scopes": ["deployments"]}
    async with platform.session.post(url, json=body) as refused:
        assert refused.status == 400

    state = await platform.control("GET", "/state")
    (granted,) = (each["scopes"] for each in state["installations"] if each["id"] == made["id"])
    assert len(granted) == 11
    assert granted == [f"{scope}:write" for scope in SCOPES]


async def test_p34_removed_scopes_apply_at_once_and_added_ones_when_every_user_has_confirmed_them(
    platform: RunningEmulator, receiver: WebhookReceiver
) -> None:
    made = await platform.install(scopes=["deployment:read", "team"], webhook_url=receiver.url)
    token = await token_of(platform, made)
    requested_scopes = ["deployment:write", "project:write"]
    body = {"scopes": requested_scopes, "note": "For the deployments page."}
    requested = await act(platform, made["id"], "request-scopes", body)
    assert (requested["scopes"], requested["pending_scopes"]) == (["deployment:read"], requested_scopes)
    user, owner = requested["confirmers"]

    halfway = await act(platform, made["id"], "confirm-scopes", {"user": user})
    assert (halfway["scopes"], halfway["pending_scopes"]) == (["deployment:read"], requested_scopes)
    assert (await status_of_call(platform, token))[0] == 403
    assert receiver.types == []
    done = await act(platform, made["id"], "confirm-scopes", {"user": owner})

    assert (done["scopes"], done["pending_scopes"]) == (requested_scopes, [])
    assert (await status_of_call(platform, token))[0] == 200
    assert receiver.types == ["integration-configuration.scope-change-confirmed"]
    assert receiver.documents[0]["payload"]["configuration"] == {"id": made["id"], "scopes": requested_scopes}
    emails = (await platform.control("GET", "/state"))["emails"]
    assert [email["to"] for email in emails] == [user, owner]
    assert all("For the deployments page." in email["text"] for email in emails)


async def test_p40_every_call_of_a_disabled_configuration_fails_and_the_team_gets_an_email(
    platform: RunningEmulator,
) -> None:
    made = await platform.install()
    token = await token_of(platform, made)
    waiting = await platform.install()
    for each in (made, waiting):
        await act(platform, each["id"], "disable")
    deployment = next(iter(platform.state.deployments))

    path = f"/v3/deployments/{deployment}/events"
    _, without_team = await platform.call("GET", path, token=token)
    exchanged = await platform.exchange(waiting["code"])

    code = "integration_configuration_disabled"
    assert await status_of_call(platform, token) == (403, code)
    assert without_team["error"]["code"] == code
    assert (exchanged[0], exchanged[1]["error"]["code"]) == (403, code)
    emails = (await platform.control("GET", "/state"))["emails"]
    assert "within 30 days" in emails[0]["text"]
    assert (await status_of_call(platform))[0] == 200, "another installation is not affected"


@pytest.mark.parametrize(
    ("days", "expected"), [(29.9, (403, "integration_configuration_disabled")), (30, (401, "not_authorized"))]
)
async def test_p42_disabled_configuration_is_deleted_after_30_days(
    platform: RunningEmulator, receiver: WebhookReceiver, days: float, expected: tuple[int, str]
) -> None:
    made = await platform.install(webhook_url=receiver.url)
    token = await token_of(platform, made)
    await act(platform, made["id"], "disable")
    await advance(platform, days * DAY_S)

    assert await status_of_call(platform, token) == expected
    assert receiver.types == ([] if days < 30 else ["integration-configuration.removed"])


async def test_p42_transfer_of_ownership_restores_the_configuration(platform: RunningEmulator) -> None:
    made = await platform.install()
    token = await token_of(platform, made)
    await act(platform, made["id"], "disable")
    await advance(platform, 29 * DAY_S)
    await act(platform, made["id"], "transfer")
    await advance(platform, 29 * DAY_S)

    assert (await status_of_call(platform, token))[0] == 200


async def test_removed_configuration_has_no_token(platform: RunningEmulator) -> None:
    made = await platform.install()
    token = await token_of(platform, made)
    await act(platform, made["id"], "remove")

    assert await status_of_call(platform, token) == (401, "not_authorized")
    url = f"{platform.facts['control_url']}/installations/{made['id']}/disable"
    async with platform.session.post(url) as answer:
        assert answer.status == 409


async def test_p32_exchange_takes_no_json(platform: RunningEmulator) -> None:
    assert (await platform.call("POST", "/v2/oauth/access_token", json={"code": "x"}))[0] == 400
